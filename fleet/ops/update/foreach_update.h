// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_UPDATE_FOREACH_UPDATE_H_
#define FLEET_OPS_UPDATE_FOREACH_UPDATE_H_

#include <array>
#include <span>

#include <ATen/core/Tensor.h>

#include "fleet/optim/update.h"

namespace fleet::ops {

// One parameter in one step, as optim::Update, but of tensors: what
// optim::Apply does on bare memory, ApplyForeach does wherever ATen's foreach
// kernels run.
struct TensorUpdate {
  at::Tensor values;
  at::Tensor gradient;  // of the same shape; only read
  std::array<at::Tensor, optim::kMaxState> state;
  std::array<at::Tensor, optim::kMaxPowers> powers;  // one element, on the CPU
  double learning_rate = 0.0;
  optim::Decay decay;
  optim::Transform transform;
  // Multiplies the gradient too, where the clip's factor is known only on the
  // device. Undefined: 1.
  at::Tensor scale;
};

// The rules of optim/ over all updates at once, a few kernel launches in all.
// All tensors but powers are on one device and of one type, float or double.
// Never waits for the device. Results equal those of optim::Apply up to
// rounding. Gradient recording must be off. Throws what LibTorch throws.
void ApplyForeach(const optim::UpdateRule& rule,
                  std::span<const TensorUpdate> updates);

}  // namespace fleet::ops

#endif  // FLEET_OPS_UPDATE_FOREACH_UPDATE_H_
