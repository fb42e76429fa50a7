// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_BROADCAST_H_
#define FLEET_OPS_BROADCAST_H_

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

namespace fleet::ops {

// `grad` summed over the dimensions that broadcasting gave to `like`, in the
// element type of `like`.
inline at::Tensor Unbroadcast(const at::Tensor& grad, const at::Tensor& like) {
  at::Tensor g = at::sum_to(grad, like.sizes());
  return g.scalar_type() == like.scalar_type() ? g : g.to(like.scalar_type());
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_BROADCAST_H_
