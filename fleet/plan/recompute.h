// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_RECOMPUTE_H_
#define FLEET_PLAN_RECOMPUTE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// Saves memory for time: backward computes the values between two checkpoints
// once more, right before it needs them, instead of keeping them from forward
// on. `checkpoints` are variables that forward makes, and that are kept; what
// comes behind the last one is kept, too.
//
// The main block of `program` has its backward (AppendBackward), and nothing
// behind that. Operations are repeated with new names for what they make,
// "h@AGAIN", which the operations of backward then read. Results are the same:
// an operation that draws numbers, changes something that is there already or
// runs a body is not repeated, and what it makes is kept.
//
// Returns how many operations are repeated. NotFound for a checkpoint that
// forward does not make, FailedPrecondition without backward; then nothing is
// changed.
Result<size_t> Recompute(const program::OpRegistry& registry,
                         program::Program& program,
                         const std::vector<std::string>& checkpoints);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_RECOMPUTE_H_
