// SPDX-License-Identifier: Apache-2.0

// Smaller programs made of a larger one.

#ifndef FLEET_PLAN_PRUNE_H_
#define FLEET_PLAN_PRUNE_H_

#include <memory>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// A program of its own with the operations that compute `targets` from `feeds`
// and from what lives longer than a step, and with their variables. NotFound
// for a name that the program does not have, InvalidArgument when a target
// depends on data that is not in `feeds`; says which.
Result<std::unique_ptr<program::Program>> Prune(
    const program::Program& program, const std::vector<std::string>& feeds,
    const std::vector<std::string>& targets);

// A program of its own for evaluation: without the operations of backward,
// optimizers and learning rates, and with is_test set in those that have it
// (dropout, batch_norm). Variables that only the removed ones used are gone.
std::unique_ptr<program::Program> CloneForTest(
    const program::OpRegistry& registry, const program::Program& program);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_PRUNE_H_
