// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_REDUCTION_H_
#define FLEET_OPS_REDUCTION_H_

#include <algorithm>
#include <vector>

#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>

// What the kernels of reductions share.

namespace fleet::ops {

// The axes to reduce, counted from the front, in order and without repetition;
// all of them when none is named.
inline std::vector<int64_t> ReducedAxes(const at::Tensor& x,
                                        at::IntArrayRef dim, bool all) {
  std::vector<int64_t> axes(dim.begin(), dim.end());
  if (all || axes.empty()) {
    axes.resize(x.dim());
    for (int64_t i = 0; i < x.dim(); ++i) axes[i] = i;
  }
  for (int64_t& axis : axes) {
    axis = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

// x as a copy of it lies in memory: without gaps, and no element twice. ATen
// adds in an order that strides decide, and a program copies what an eager step
// only looks at (a detached view, the values of loops and branches): both then
// agree to the bit.
inline at::Tensor Packed(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? x : x.clone();
}

// How many elements of x go into one of the result.
inline int64_t ReducedCount(const at::Tensor& x,
                            const std::vector<int64_t>& axes) {
  int64_t count = 1;
  for (int64_t axis : axes) count *= x.size(axis);
  return count;
}

// A full reduction has shape [1], not [].
inline at::Tensor AtLeast1D(const at::Tensor& out) {
  return out.dim() == 0 ? out.reshape({1}) : out;
}

// `out` with ones where axes were reduced away, so that it broadcasts over x.
inline at::Tensor KeepAxes(const at::Tensor& out, const at::Tensor& x,
                           const std::vector<int64_t>& axes) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  for (int64_t axis : axes) shape[axis] = 1;
  return out.reshape(shape);
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_REDUCTION_H_
