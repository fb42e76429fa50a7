// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_EAGER_EAGER_H_
#define FLEET_OPS_EAGER_EAGER_H_

#include <span>

#include "fleet/base/status.h"
#include "fleet/ops/kernel.h"

namespace fleet::ops {

// Runs `op` now and returns its outputs, flat, in slot order. `inputs` holds
// the tensors of all slots one after the other and `slot_end` where each slot
// ends. If gradients are on and an input asks for one, the outputs remember how
// they came to be, and LibTorch's engine later calls the op's backward kernel;
// when a derivative of that is wanted too (create_graph), the same kernel runs
// with recording on, so it must then be made of differentiable ATen calls.
//
// InvalidArgument carries the op's name, the types of its inputs and the
// reason. Thread-safe for distinct outputs, as LibTorch is.
Result<Tensors> RunEager(const Op& op, std::span<const at::Tensor> inputs,
                         std::span<const uint32_t> slot_end, Attrs attrs,
                         const Context& context);

}  // namespace fleet::ops

#endif  // FLEET_OPS_EAGER_EAGER_H_
