// SPDX-License-Identifier: Apache-2.0

// Gradients as further operations of the same program. For an operation `mul`
// with inputs X, Y and output Out, its gradient is the operation `mul_grad`
// with inputs X, Y, Out@GRAD and outputs X@GRAD, Y@GRAD, by the gradient rule
// of its definition.

#ifndef FLEET_PLAN_BACKWARD_H_
#define FLEET_PLAN_BACKWARD_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// One output whose gradient is asked for. Without `gradient`, a variable that
// holds the gradient to start from, it starts from ones.
struct BackwardTarget {
  std::string variable;
  std::string gradient;
};

// Appends to the main block the operations that compute the gradients of the
// sum of all targets by every variable that they depend on, and returns the
// names of these gradients by variable. Variables with stop_gradient and those
// in `no_grad` have none, nor has what they alone depend on; where a variable
// goes into several operations, its gradients are added up. NotFound for a
// target that is not there. Unimplemented names an operation in the way that
// has no gradient, and the user's line.
Result<std::map<std::string, std::string>> AppendBackward(
    const program::OpRegistry& registry, program::Program& program,
    const std::vector<BackwardTarget>& targets,
    const std::set<std::string>& no_grad);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_BACKWARD_H_
