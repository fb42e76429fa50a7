// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_REMOVE_UNREAD_H_
#define FLEET_PLAN_REMOVE_UNREAD_H_

#include <set>
#include <string>

#include "fleet/program/program.h"

namespace fleet::plan {

// After updates were taken out: removes from block 0 the operations of
// optimizers and schedules that worked for them alone. `candidates` are the
// variables that the updates read. Returns the persistable variables that no
// operation touches any more: the state of rules. Those in `keep`, parameters
// and data are not among them.
std::set<std::string> RemoveUnread(program::Program& program,
                                   std::set<std::string> candidates,
                                   const std::set<std::string>& keep);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_REMOVE_UNREAD_H_
