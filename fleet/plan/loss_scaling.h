// SPDX-License-Identifier: Apache-2.0

// Training in mixed precision: the loss is multiplied by a scaling before
// backward, so that small gradients do not vanish in float16, and gradients are
// divided by it before the updates. A step whose gradients have an infinity or
// a NaN is skipped.

#ifndef FLEET_PLAN_LOSS_SCALING_H_
#define FLEET_PLAN_LOSS_SCALING_H_

#include <cstdint>

#include "fleet/base/status.h"
#include "fleet/plan/mixed_precision.h"
#include "fleet/plan/parameter_gradient.h"
#include "fleet/program/builder.h"

namespace fleet::plan {

struct LossScaling {
  double initial = 32768.0;
  // The scaling grows by incr_ratio after so many good steps on end, and
  // shrinks by decr_ratio after so many bad ones. Else it stays.
  bool dynamic = true;
  int64_t incr_every_n_steps = 1000;
  int64_t decr_every_n_nan_or_inf = 2;
  double incr_ratio = 2.0;
  double decr_ratio = 0.8;
};

// What a user says about training in mixed precision.
struct Amp {
  MixedPrecision precision = {};
  LossScaling scaling = {};
};

// InvalidArgument for numbers that make no sense.
Status CheckScaling(const LossScaling& options);

// Whether the loss is scaled at all: bfloat16 has the range of float32.
bool ScalesLoss(const Amp& amp);

struct ScaledLoss {
  program::Value loss;     // float32; where nothing is scaled, the loss itself
  program::Value scaling;  // [1], 1 where nothing is scaled
};

// Rewrites the main program, which has no backward yet, to compute in a short
// type, and appends the scaling of `loss`. Errors are those of CheckScaling and
// UseMixedPrecision.
Result<ScaledLoss> ScaleLoss(program::Builder& b, const program::Value& loss,
                             const Amp& amp);

// Divides gradients where they are by `scaling`, and lets it follow good and
// bad steps if it is dynamic. Returns the variable, a bool of shape [1], that
// says whether the step is bad; then nothing may be updated by the gradients.
program::Value UnscaleGradients(program::Builder& b, const Gradients& gradients,
                                const program::Value& scaling,
                                const LossScaling& options);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_LOSS_SCALING_H_
