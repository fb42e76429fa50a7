// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/window.h"

#include <algorithm>

namespace fleet::program {
namespace {

// The number for dimension `i` in a list with one number for all or one each.
int64_t At(std::span<const int64_t> list, size_t i, int64_t absent) {
  if (list.empty()) return absent;
  return list.size() == 1 ? list[0] : list[i];
}

Status CheckLength(std::span<const int64_t> list, size_t rank,
                   std::string_view what) {
  if (list.size() <= 1 || list.size() == rank) return OkStatus();
  return InvalidArgument(what, " has ", list.size(), " numbers for ", rank,
                         " spatial dimensions");
}

}  // namespace

Result<std::vector<Window>> MakeWindows(const WindowAttrs& attrs,
                                        std::span<const int64_t> input) {
  size_t rank = input.size();
  RETURN_IF_ERROR(CheckLength(attrs.kernel, rank, "kernel_size"));
  RETURN_IF_ERROR(CheckLength(attrs.strides, rank, "stride"));
  RETURN_IF_ERROR(CheckLength(attrs.dilations, rank, "dilation"));
  bool is_same = attrs.algorithm == "SAME";
  bool is_explicit = attrs.algorithm == "EXPLICIT";
  if (!is_same && !is_explicit && attrs.algorithm != "VALID") {
    return InvalidArgument("padding must be 'SAME', 'VALID' or numbers, not '",
                           attrs.algorithm, "'");
  }
  bool in_pairs = is_explicit && rank > 0 && attrs.paddings.size() == 2 * rank;
  if (is_explicit && !in_pairs) {
    RETURN_IF_ERROR(CheckLength(attrs.paddings, rank, "padding"));
  }
  std::vector<Window> windows(rank);
  for (size_t i = 0; i < rank; ++i) {
    Window& w = windows[i];
    w.kernel = At(attrs.kernel, i, 1);
    w.stride = At(attrs.strides, i, w.kernel);
    w.dilation = At(attrs.dilations, i, 1);
    if (w.kernel < 1 || w.stride < 1 || w.dilation < 1) {
      return InvalidArgument("kernel_size ", w.kernel, ", stride ", w.stride,
                             " and dilation ", w.dilation, " must be positive");
    }
    if (in_pairs) {
      w.begin = attrs.paddings[2 * i];
      w.end = attrs.paddings[2 * i + 1];
    } else if (is_explicit) {
      w.begin = w.end = At(attrs.paddings, i, 0);
    } else if (is_same && input[i] > 0) {
      int64_t count = (input[i] + w.stride - 1) / w.stride;
      int64_t reach = (count - 1) * w.stride + w.dilation * (w.kernel - 1) + 1;
      int64_t pad = std::max<int64_t>(reach - input[i], 0);
      w.begin = pad / 2;
      w.end = pad - w.begin;
    }
    if (w.begin < 0 || w.end < 0) {
      return InvalidArgument("padding must not be negative");
    }
  }
  return windows;
}

void HideUnknownWindows(std::span<int64_t> kernel, std::span<int64_t> input) {
  for (size_t i = 0; i < kernel.size() && i < input.size(); ++i) {
    if (kernel[i] != -1) continue;
    kernel[i] = 1;
    input[i] = -1;
  }
}

Result<int64_t> WindowCount(int64_t size, const Window& w, bool ceil_mode) {
  if (size < 0) return -1;
  int64_t room = size + w.begin + w.end - w.dilation * (w.kernel - 1) - 1;
  if (room < 0) {
    return InvalidArgument("a window of ", w.dilation * (w.kernel - 1) + 1,
                           " does not fit into ", size, " elements padded by ",
                           w.begin, " and ", w.end);
  }
  int64_t count = (room + (ceil_mode ? w.stride - 1 : 0)) / w.stride + 1;
  if (ceil_mode && (count - 1) * w.stride >= size + w.begin) --count;
  return count;
}

}  // namespace fleet::program
