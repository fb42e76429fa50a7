// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_PARAMETER_GRADIENT_H_
#define FLEET_PLAN_PARAMETER_GRADIENT_H_

#include <vector>

#include "fleet/program/building.h"

namespace fleet::plan {

// A parameter and the variable of its gradient.
struct ParameterGradient {
  program::Value parameter;
  program::Value gradient;
};
using Gradients = std::vector<ParameterGradient>;

}  // namespace fleet::plan

#endif  // FLEET_PLAN_PARAMETER_GRADIENT_H_
