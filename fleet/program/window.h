// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_WINDOW_H_
#define FLEET_PROGRAM_WINDOW_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"

// The arithmetic of sliding windows, which convolutions and pools share: shape
// rules ask it for sizes, kernels for paddings.

namespace fleet::program {

// A window along one dimension.
struct Window {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t begin = 0;  // padding before the first element
  int64_t end = 0;    // padding behind the last one
};

// How a window is described by the attributes of an op.
struct WindowAttrs {
  std::span<const int64_t> kernel;
  std::span<const int64_t> strides;    // empty: equal to the kernel
  std::span<const int64_t> dilations;  // empty: one
  // One number for all, one per dimension, or two per dimension (before,
  // behind). Read only if `algorithm` is "EXPLICIT".
  std::span<const int64_t> paddings;
  // "VALID": no padding. "SAME": as much as makes the output ceil(input /
  // stride) long; an odd element goes behind.
  std::string_view algorithm = "EXPLICIT";
};

// One window per dimension of `input`, whose sizes may be -1 (not known).
// InvalidArgument if the lists do not fit.
Result<std::vector<Window>> MakeWindows(const WindowAttrs& attrs,
                                        std::span<const int64_t> input);

// Number of places of the window over `size` elements; -1 if `size` is -1. With
// `ceil_mode` a window that starts inside but ends outside counts too. A window
// that fits nowhere is an InvalidArgument.
Result<int64_t> WindowCount(int64_t size, const Window& window,
                            bool ceil_mode = false);

// Where the size of the kernel is not known (-1), that of `input` becomes
// unknown and the kernel 1: such windows can be made and counted.
void HideUnknownWindows(std::span<int64_t> kernel, std::span<int64_t> input);

// "NHWC" and the like: the channels are the last dimension.
inline bool ChannelsLast(std::string_view data_format) {
  return data_format.size() > 1 && data_format.back() == 'C';
}

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_WINDOW_H_
