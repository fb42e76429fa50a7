// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_CPU_PATH_H_
#define FLEET_OPS_CPU_PATH_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fleet::ops {

// Whether autograd writes down the ATen calls of the kernel that runs now. It
// does so only in a backward kernel that is itself to be differentiated; the
// call of a forward kernel is recorded as a whole, by its op.
inline bool Recording() {
  return at::GradMode::is_enabled() &&
         !c10::impl::tls_is_dispatch_key_excluded(
             c10::DispatchKey::AutogradFunctionality);
}

// Whether a kernel may leave ATen and work on the bare floats of these tensors.
// Not when autograd records (then the kernel is being differentiated itself and
// must be made of ATen calls), and not on another device or type.
template <class... T>
bool FastOnCpu(const T&... tensors) {
  bool plain = (... && (tensors.device().is_cpu() &&
                        tensors.scalar_type() == at::kFloat &&
                        tensors.layout() == at::kStrided));
  return plain && !(Recording() && (... || tensors.requires_grad()));
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_CPU_PATH_H_
