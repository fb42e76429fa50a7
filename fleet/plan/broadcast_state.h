// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_BROADCAST_STATE_H_
#define FLEET_PLAN_BROADCAST_STATE_H_

#include "fleet/program/program.h"

namespace fleet::plan {

// All ranks begin with the values of rank 0: at the end of a startup program,
// c_broadcast_state of every persistable variable that it gives a value. False
// when there is none. Once more, it covers what was added since.
bool BroadcastState(program::Program& startup);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_BROADCAST_STATE_H_
