// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_LAYOUT_H_
#define FLEET_OPS_LAYOUT_H_

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/program/window.h"

// Grids [N, C, spatial...] and [N, spatial..., C]. Kernels compute on the first
// form; the other is viewed as it, without copying.

namespace fleet::ops {

inline at::Tensor ChannelsFirst(const at::Tensor& x, bool channels_last) {
  return channels_last && x.dim() > 2 ? x.movedim(-1, 1) : x;
}

// The inverse of ChannelsFirst().
inline at::Tensor BackToLayout(const at::Tensor& x, bool channels_last) {
  return channels_last && x.dim() > 2 ? x.movedim(1, -1) : x;
}

// One number per dimension from a list that may hold one for all.
inline std::vector<int64_t> PerDimension(at::IntArrayRef list, size_t rank) {
  if (list.size() == 1) return std::vector<int64_t>(rank, list[0]);
  return list.vec();
}

// The windows of an op over the spatial dimensions of `x` (channels first).
inline std::vector<program::Window> WindowsOver(const at::Tensor& x,
                                                at::IntArrayRef kernel,
                                                at::IntArrayRef strides,
                                                at::IntArrayRef dilations,
                                                at::IntArrayRef paddings,
                                                const std::string& algorithm) {
  auto windows = program::MakeWindows({.kernel = kernel,
                                       .strides = strides,
                                       .dilations = dilations,
                                       .paddings = paddings,
                                       .algorithm = algorithm},
                                      x.sizes().slice(2));
  TORCH_CHECK(windows.ok(), windows.status().message());
  return *windows;
}

// The windows taken apart into ATen's lists.
struct WindowLists {
  std::vector<int64_t> kernel, stride, dilation, padding;
  // What must be padded before, in the form of constant_pad_nd (last dimension
  // first); empty if the paddings are symmetric.
  std::vector<int64_t> before;
};

inline WindowLists Lists(const std::vector<program::Window>& windows) {
  WindowLists out;
  bool symmetric = true;
  for (const program::Window& w : windows) {
    out.kernel.push_back(w.kernel);
    out.stride.push_back(w.stride);
    out.dilation.push_back(w.dilation);
    out.padding.push_back(w.begin);
    symmetric = symmetric && w.begin == w.end;
  }
  if (symmetric) return out;
  out.padding.assign(windows.size(), 0);
  for (auto w = windows.rbegin(); w != windows.rend(); ++w) {
    out.before.push_back(w->begin);
    out.before.push_back(w->end);
  }
  return out;
}

// Cuts what was padded by `before` off again.
inline at::Tensor Unpad(at::Tensor x, const std::vector<int64_t>& before) {
  for (size_t i = 0; 2 * i < before.size(); ++i) {
    int64_t dim = x.dim() - 1 - static_cast<int64_t>(i);
    int64_t kept = x.size(dim) - before[2 * i] - before[2 * i + 1];
    x = x.narrow(dim, before[2 * i], kept);
  }
  return x;
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_LAYOUT_H_
