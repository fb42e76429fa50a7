// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_READ_RATE_H_
#define FLEET_PLAN_READ_RATE_H_

#include <map>
#include <string>

#include "fleet/base/status.h"
#include "fleet/plan/program_index.h"
#include "fleet/table/learning_rate.h"

namespace fleet::plan {

// The learning rate that the variable `name` of the main program holds, step by
// step: a number of the startup program, one of `schedules` (by the name of a
// variable), a schedule that fluid.layers made of operations, or one of these
// times a factor (ParamAttr's learning_rate). Unimplemented for other
// operations; the message says which, and which schedules there are.
Result<table::LearningRate> ReadRate(
    const ProgramIndex& main, const ProgramIndex& startup,
    const std::map<std::string, table::LearningRate>& schedules,
    const std::string& name);

// What fill_constant puts into `name`, which nothing else may write.
// NotFound if there is no such operation.
Result<double> ReadConstant(const ProgramIndex& program,
                            const std::string& name);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_READ_RATE_H_
