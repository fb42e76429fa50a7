// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_READ_UPDATES_H_
#define FLEET_PLAN_READ_UPDATES_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/plan/program_index.h"
#include "fleet/table/learning_rate.h"
#include "fleet/table/options.h"

namespace fleet::plan {

// How a program updates one parameter, as a table can do it.
struct ParameterUpdate {
  std::string parameter;
  size_t op = 0;  // the position of the update
  // What goes into `options`: the gradient before the regularizers, clips by
  // value and factors that the options hold. Other operations on the gradient
  // come before it.
  std::string gradient;
  table::UpdateOptions options;
  // Between `gradient` and the update, those that the options stand for.
  std::vector<size_t> folded;
};

// Those of block 0, in order. Where `only` is not null, the other parameters
// have no options and the gradient that goes into their update. Unimplemented
// names a parameter that is updated twice, in the body of a branch or loop, by
// an operation that is no rule of optim/, or with a rate that servers cannot
// work out.
Result<std::vector<ParameterUpdate>> ReadUpdates(
    const program::Program& program, const ProgramIndex& main,
    const ProgramIndex& startup,
    const std::map<std::string, table::LearningRate>& schedules,
    const std::set<std::string>* only = nullptr);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_READ_UPDATES_H_
