// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/adaptive_max_pool3d_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// A sequence [N, C, L] is pooled as an image of height one.
Tensor AsImage(const Tensor& x) { return x.dim() == 3 ? x.unsqueeze(2) : x; }
Tensor FromImage(const Tensor& x, const Tensor& like) {
  return like.dim() == 3 ? x.squeeze(2) : x;
}

// A pool as ATen takes it: channels first, two or three spatial dimensions,
// equal paddings on both sides of no more than half a window.
struct Plan {
  Tensor x;
  WindowLists window;
  bool channels_last;
};

// Whether ATen does not take the paddings as they are.
bool MustPadBefore(const std::vector<program::Window>& windows) {
  return std::any_of(windows.begin(), windows.end(),
                     [](const program::Window& w) {
                       return w.begin != w.end || 2 * w.begin > w.kernel;
                     });
}

Plan MakePlan(const Tensor& input, at::IntArrayRef ksize,
              at::IntArrayRef strides, at::IntArrayRef paddings, bool ceil_mode,
              const std::string& algorithm, const std::string& data_format) {
  TORCH_CHECK(input.dim() >= 3, "too few dimensions");
  Plan plan;
  plan.channels_last = program::ChannelsLast(data_format);
  plan.x = ChannelsFirst(input, plan.channels_last);
  auto windows = WindowsOver(plan.x, ksize, strides, {}, paddings, algorithm);
  if (input.dim() == 3) {
    plan.x = plan.x.unsqueeze(2);
    windows.insert(windows.begin(), program::Window{});
  }
  // ATen asks whether a window begins inside of what it is given. Where the
  // padding is done before, that would count the padding too: it is made just
  // as long as the windows that count.
  if (ceil_mode && MustPadBefore(windows)) {
    for (size_t i = 0; i < windows.size(); ++i) {
      program::Window& w = windows[i];
      const int64_t size = plan.x.size(static_cast<int64_t>(i) + 2);
      auto count = program::WindowCount(size, w, true);
      TORCH_CHECK(count.ok(), count.status().message());
      w.end = std::max<int64_t>(
          (*count - 1) * w.stride + w.kernel - size - w.begin, 0);
    }
  }
  plan.window = Lists(windows);
  WindowLists& w = plan.window;
  for (size_t i = 0; w.before.empty() && i < windows.size(); ++i) {
    if (2 * windows[i].begin <= windows[i].kernel) continue;
    w.padding.assign(windows.size(), 0);
    for (auto it = windows.rbegin(); it != windows.rend(); ++it) {
      w.before.insert(w.before.end(), {it->begin, it->end});
    }
  }
  return plan;
}

// ---- maximum

Tensor PadForMax(const Plan& plan) {
  if (plan.window.before.empty()) return plan.x;
  return at::constant_pad_nd(plan.x, plan.window.before,
                             -std::numeric_limits<double>::infinity());
}

// ---- maximum over bare floats
// Most networks halve their images. ATen looks at every element of a window
// through its bounds; two passes without branches are ten times faster.

bool HalvesAnImage(const Tensor& x, const WindowLists& w, bool ceil_mode) {
  bool even = !ceil_mode || (x.size(2) % 2 == 0 && x.size(3) % 2 == 0);
  return x.dim() == 4 && w.kernel[0] == 2 && w.kernel[1] == 2 &&
         w.stride[0] == 2 && w.stride[1] == 2 && w.padding[0] == 0 &&
         w.padding[1] == 0 && w.before.empty() && even && x.size(2) > 1 &&
         x.size(3) > 1 && x.size(2) * x.size(3) < (int64_t{1} << 31) &&
         x.is_contiguous();
}

// Planes that are worth a thread of their own.
int64_t PlaneGrain(int64_t plane_size) {
  return std::max<int64_t>(65536 / plane_size, 1);
}

// Whether `b`, which comes later, beats `a`: all bits or none. A NaN wins.
int32_t Beats(float b, float a) {
  return -static_cast<int32_t>(!(b <= a)) & -static_cast<int32_t>(a == a);
}

// Halves a pair of rows of `width` elements, the first of which is number
// `first` of its plane. `larger` and `lower` have room for `width` elements.
void HalveRows(const float* top, int32_t width, int32_t first, float* larger,
               int32_t* lower, float* out, int64_t* index) {
  const float* bottom = top + width;
  for (int32_t j = 0; j < width; ++j) {
    int32_t down = Beats(bottom[j], top[j]);
    larger[j] = down ? bottom[j] : top[j];
    lower[j] = down & width;  // how far from the element above
  }
  for (int32_t j = 0; j < width / 2; ++j) {
    float a = larger[2 * j], b = larger[2 * j + 1];
    // Among equals the first in reading order wins.
    int32_t right =
        Beats(b, a) | (-static_cast<int32_t>(a == b) &
                       -static_cast<int32_t>(lower[2 * j + 1] < lower[2 * j]));
    out[j] = right ? b : a;
    index[j] = first + 2 * j + (right ? 1 + lower[2 * j + 1] : lower[2 * j]);
  }
}

std::tuple<Tensor, Tensor> HalveByMax(const Tensor& x) {
  int64_t height = x.size(2), width = x.size(3);
  int64_t rows = height / 2, columns = width / 2;
  Tensor out = at::empty({x.size(0), x.size(1), rows, columns}, x.options());
  Tensor mask = at::empty(out.sizes(), x.options().dtype(at::kLong));
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  int64_t* index = mask.mutable_data_ptr<int64_t>();
  auto halve = [=](int64_t begin, int64_t end) {
    std::vector<float> larger(width);
    std::vector<int32_t> lower(width);
    for (int64_t row = begin * rows; row < end * rows; ++row) {
      int64_t first = row % rows * 2 * width;
      HalveRows(from + row / rows * height * width + first,
                static_cast<int32_t>(width), static_cast<int32_t>(first),
                larger.data(), lower.data(), to + row * columns,
                index + row * columns);
    }
  };
  at::parallel_for(0, x.size(0) * x.size(1), PlaneGrain(height * width), halve);
  return {out, mask};
}

Tensor HalveByMaxGrad(const Tensor& x, const Tensor& mask, const Tensor& dout) {
  Tensor dx = at::zeros(x.sizes(), x.options());
  int64_t plane = x.size(2) * x.size(3), part = dout.size(2) * dout.size(3);
  const float* from = dout.const_data_ptr<float>();
  const int64_t* index = mask.const_data_ptr<int64_t>();
  float* to = dx.mutable_data_ptr<float>();
  auto spread = [=](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t i = p * part; i < (p + 1) * part; ++i) {
        to[p * plane + index[i]] = from[i];
      }
    }
  };
  at::parallel_for(0, x.size(0) * x.size(1), PlaneGrain(plane), spread);
  return dx;
}

std::tuple<Tensor, Tensor> MaxPool(const Tensor& input, at::IntArrayRef ksize,
                                   at::IntArrayRef strides,
                                   at::IntArrayRef paddings, bool ceil_mode,
                                   const std::string& algorithm,
                                   const std::string& data_format) {
  Plan plan = MakePlan(input, ksize, strides, paddings, ceil_mode, algorithm,
                       data_format);
  const WindowLists& w = plan.window;
  if (!plan.channels_last && FastOnCpu(plan.x) &&
      HalvesAnImage(plan.x, w, ceil_mode)) {
    return HalveByMax(plan.x);
  }
  Tensor x = PadForMax(plan);
  auto [out, mask] =
      x.dim() == 4
          ? at::max_pool2d_with_indices(x, w.kernel, w.stride, w.padding,
                                        {1, 1}, ceil_mode)
          : at::max_pool3d_with_indices(x, w.kernel, w.stride, w.padding,
                                        {1, 1, 1}, ceil_mode);
  return {BackToLayout(FromImage(out, input), plan.channels_last),
          BackToLayout(FromImage(mask, input), plan.channels_last)};
}

Tensor MaxPoolGrad(const Tensor& input, const Tensor& mask, const Tensor& dout,
                   at::IntArrayRef ksize, at::IntArrayRef strides,
                   at::IntArrayRef paddings, bool ceil_mode,
                   const std::string& algorithm,
                   const std::string& data_format) {
  Plan plan = MakePlan(input, ksize, strides, paddings, ceil_mode, algorithm,
                       data_format);
  const WindowLists& w = plan.window;
  if (!plan.channels_last && FastOnCpu(plan.x, dout) &&
      HalvesAnImage(plan.x, w, ceil_mode)) {
    return HalveByMaxGrad(plan.x, mask.contiguous(), dout.contiguous());
  }
  Tensor x = PadForMax(plan);
  Tensor dy = AsImage(ChannelsFirst(dout, plan.channels_last));
  Tensor index = AsImage(ChannelsFirst(mask, plan.channels_last));
  Tensor dx =
      x.dim() == 4
          ? at::max_pool2d_with_indices_backward(
                dy, x, w.kernel, w.stride, w.padding, {1, 1}, ceil_mode, index)
          : at::max_pool3d_with_indices_backward(dy, x, w.kernel, w.stride,
                                                 w.padding, {1, 1, 1},
                                                 ceil_mode, index);
  return BackToLayout(FromImage(Unpad(dx, w.before), input),
                      plan.channels_last);
}

// ---- average

std::optional<int64_t> Divisor(int64_t divisor) {
  if (divisor == 0) return std::nullopt;
  return divisor;
}

Tensor Average(const Tensor& x, const WindowLists& w, bool ceil_mode,
               bool exclusive, int64_t divisor) {
  return x.dim() == 4 ? at::avg_pool2d(x, w.kernel, w.stride, w.padding,
                                       ceil_mode, !exclusive, Divisor(divisor))
                      : at::avg_pool3d(x, w.kernel, w.stride, w.padding,
                                       ceil_mode, !exclusive, Divisor(divisor));
}

// Which share of each window holds elements rather than padding; for paddings
// that ATen does not know of.
Tensor FilledShare(const Plan& plan, bool ceil_mode) {
  std::vector<int64_t> shape(plan.x.sizes().begin(), plan.x.sizes().end());
  shape[0] = shape[1] = 1;
  Tensor ones = at::constant_pad_nd(at::ones(shape, plan.x.options()),
                                    plan.window.before);
  return Average(ones, plan.window, ceil_mode, false, 0);
}

Tensor AvgPool(const Tensor& input, at::IntArrayRef ksize,
               at::IntArrayRef strides, at::IntArrayRef paddings,
               bool ceil_mode, const std::string& algorithm,
               const std::string& data_format, bool exclusive,
               int64_t divisor) {
  Plan plan = MakePlan(input, ksize, strides, paddings, ceil_mode, algorithm,
                       data_format);
  bool padded = !plan.window.before.empty();
  Tensor x = padded ? at::constant_pad_nd(plan.x, plan.window.before) : plan.x;
  Tensor out =
      Average(x, plan.window, ceil_mode, exclusive && !padded, divisor);
  if (padded && exclusive && divisor == 0) {
    out = out / FilledShare(plan, ceil_mode);
  }
  return BackToLayout(FromImage(out, input), plan.channels_last);
}

Tensor AvgPoolGrad(const Tensor& input, const Tensor& dout,
                   at::IntArrayRef ksize, at::IntArrayRef strides,
                   at::IntArrayRef paddings, bool ceil_mode,
                   const std::string& algorithm, const std::string& data_format,
                   bool exclusive, int64_t divisor) {
  Plan plan = MakePlan(input, ksize, strides, paddings, ceil_mode, algorithm,
                       data_format);
  const WindowLists& w = plan.window;
  bool padded = !w.before.empty();
  Tensor dy = AsImage(ChannelsFirst(dout, plan.channels_last));
  Tensor x = padded ? at::constant_pad_nd(plan.x, w.before) : plan.x;
  if (padded && exclusive && divisor == 0) {
    dy = dy / FilledShare(plan, ceil_mode);
  }
  bool include = !(exclusive && !padded);
  Tensor dx =
      x.dim() == 4
          ? at::avg_pool2d_backward(dy, x, w.kernel, w.stride, w.padding,
                                    ceil_mode, include, Divisor(divisor))
          : at::avg_pool3d_backward(dy, x, w.kernel, w.stride, w.padding,
                                    ceil_mode, include, Divisor(divisor));
  return BackToLayout(FromImage(Unpad(dx, w.before), input),
                      plan.channels_last);
}

// ---- adaptive

// The output size for the image form of `x`; -1 keeps the input's.
std::vector<int64_t> ImageSize(const Tensor& x, at::IntArrayRef output_size) {
  size_t rank = x.dim() - 2;
  std::vector<int64_t> size = PerDimension(output_size, rank);
  TORCH_CHECK(size.size() == rank, "output_size does not fit");
  for (size_t i = 0; i < rank; ++i) {
    if (size[i] < 0) size[i] = x.size(i + 2);
  }
  if (rank == 1) size.insert(size.begin(), 1);
  return size;
}

bool IsGlobal(const std::vector<int64_t>& size) {
  for (int64_t n : size) {
    if (n != 1) return false;
  }
  return true;
}

Tensor AdaptiveAvg(const Tensor& input, at::IntArrayRef output_size,
                   const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last);
  std::vector<int64_t> size = ImageSize(x, output_size);
  Tensor image = AsImage(x), out;
  if (IsGlobal(size)) {
    out = image.dim() == 4 ? at::mean(image, {2, 3}, true)
                           : at::mean(image, {2, 3, 4}, true);
  } else {
    out = image.dim() == 4 ? at::_adaptive_avg_pool2d(image, size)
                           : at::_adaptive_avg_pool3d(image, size);
  }
  return BackToLayout(FromImage(out, input), last);
}

Tensor AdaptiveAvgGrad(const Tensor& input, const Tensor& dout,
                       at::IntArrayRef output_size,
                       const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last);
  std::vector<int64_t> size = ImageSize(x, output_size);
  Tensor image = AsImage(x), dy = AsImage(ChannelsFirst(dout, last)), dx;
  if (IsGlobal(size)) {
    int64_t count = 1;
    for (int64_t i = 2; i < image.dim(); ++i) count *= image.size(i);
    dx = (dy / count).expand(image.sizes());
  } else {
    dx = image.dim() == 4 ? at::_adaptive_avg_pool2d_backward(dy, image)
                          : at::_adaptive_avg_pool3d_backward(dy, image);
  }
  return BackToLayout(FromImage(dx, input), last);
}

std::tuple<Tensor, Tensor> AdaptiveMax(const Tensor& input,
                                       at::IntArrayRef output_size,
                                       const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last);
  std::vector<int64_t> size = ImageSize(x, output_size);
  Tensor image = AsImage(x);
  auto [out, mask] = image.dim() == 4 ? at::adaptive_max_pool2d(image, size)
                                      : at::adaptive_max_pool3d(image, size);
  return {BackToLayout(FromImage(out, input), last),
          BackToLayout(FromImage(mask, input), last)};
}

Tensor AdaptiveMaxGrad(const Tensor& input, const Tensor& mask,
                       const Tensor& dout, at::IntArrayRef,
                       const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor image = AsImage(ChannelsFirst(input, last));
  Tensor dy = AsImage(ChannelsFirst(dout, last));
  Tensor index = AsImage(ChannelsFirst(mask, last));
  // ATen reads the indices of three dimensions in the order of their memory.
  Tensor dx =
      image.dim() == 4
          ? at::adaptive_max_pool2d_backward(dy, image, index)
          : at::adaptive_max_pool3d_backward(dy, image, index.contiguous());
  return BackToLayout(FromImage(dx, input), last);
}

// ---- all of them in one op

std::vector<int64_t> AdaptiveSize(const Tensor& x, at::IntArrayRef ksize,
                                  bool global) {
  if (!global) return ksize.vec();
  return std::vector<int64_t>(x.dim() - 2, 1);
}

std::tuple<Tensor, Tensor> Pool(const Tensor& x, at::IntArrayRef ksize,
                                at::IntArrayRef strides,
                                at::IntArrayRef paddings, bool ceil_mode,
                                const std::string& algorithm,
                                const std::string& data_format,
                                const std::string& type, bool global,
                                bool exclusive, bool adaptive) {
  const bool max = type == "max";
  if (global || adaptive) {
    std::vector<int64_t> size = AdaptiveSize(x, ksize, global);
    if (max) return AdaptiveMax(x, size, data_format);
    return {AdaptiveAvg(x, size, data_format), Tensor()};
  }
  if (max) {
    return MaxPool(x, ksize, strides, paddings, ceil_mode, algorithm,
                   data_format);
  }
  return {AvgPool(x, ksize, strides, paddings, ceil_mode, algorithm,
                  data_format, exclusive, 0),
          Tensor()};
}

Tensor PoolGrad(const Tensor& x, const Tensor& mask, const Tensor& dout,
                at::IntArrayRef ksize, at::IntArrayRef strides,
                at::IntArrayRef paddings, bool ceil_mode,
                const std::string& algorithm, const std::string& data_format,
                const std::string& type, bool global, bool exclusive,
                bool adaptive) {
  const bool max = type == "max";
  if (global || adaptive) {
    std::vector<int64_t> size = AdaptiveSize(x, ksize, global);
    return max ? AdaptiveMaxGrad(x, mask, dout, size, data_format)
               : AdaptiveAvgGrad(x, dout, size, data_format);
  }
  return max ? MaxPoolGrad(x, mask, dout, ksize, strides, paddings, ceil_mode,
                           algorithm, data_format)
             : AvgPoolGrad(x, dout, ksize, strides, paddings, ceil_mode,
                           algorithm, data_format, exclusive, 0);
}

}  // namespace

void AddPoolKernels(KernelTable& k) {
  k.Add<Pool, PoolGrad>("pool2d");
  k.Add<Pool, PoolGrad>("pool3d");
  k.Add<MaxPool, MaxPoolGrad>("max_pool1d_with_index");
  k.Add<MaxPool, MaxPoolGrad>("max_pool2d_with_index");
  k.Add<MaxPool, MaxPoolGrad>("max_pool3d_with_index");
  k.Add<AvgPool, AvgPoolGrad>("avg_pool1d");
  k.Add<AvgPool, AvgPoolGrad>("avg_pool2d");
  k.Add<AvgPool, AvgPoolGrad>("avg_pool3d");
  k.Add<AdaptiveAvg, AdaptiveAvgGrad>("adaptive_avg_pool1d");
  k.Add<AdaptiveAvg, AdaptiveAvgGrad>("adaptive_avg_pool2d");
  k.Add<AdaptiveAvg, AdaptiveAvgGrad>("adaptive_avg_pool3d");
  k.Add<AdaptiveMax, AdaptiveMaxGrad>("adaptive_max_pool1d");
  k.Add<AdaptiveMax, AdaptiveMaxGrad>("adaptive_max_pool2d");
  k.Add<AdaptiveMax, AdaptiveMaxGrad>("adaptive_max_pool3d");
}

}  // namespace fleet::ops
