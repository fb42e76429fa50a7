// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_GRADIENT_MERGE_H_
#define FLEET_PLAN_GRADIENT_MERGE_H_

#include <cstdint>
#include <functional>

#include "fleet/base/status.h"
#include "fleet/plan/parameter_gradient.h"
#include "fleet/program/builder.h"

namespace fleet::plan {

struct GradientMerge {
  int64_t steps = 1;    // every so many runs parameters are updated
  bool average = true;  // by the mean of the gradients, else by their sum
};

// Appends operations that add up gradients, and run what `update` appends in
// every steps'th run only, with the sums or means in place of the gradients.
// Where steps is 1, this is update(gradients). InvalidArgument for steps below
// 1; the errors of `update`.
Status MergeGradients(program::Builder& b, const Gradients& gradients,
                      const GradientMerge& options,
                      const std::function<Status(const Gradients&)>& update);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_GRADIENT_MERGE_H_
