// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/affine_grid_generator_backward.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_3d_backward.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad2d_backward.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad2d_backward.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"

// Padding, resizing and patches: ops that move the elements of a grid.

namespace fleet::ops {
namespace {

using at::Tensor;

// A linear map along one dimension: output i is the sum over all taps of
// weight[i] * input[index[i]]. Padding by repetition needs one tap of weight
// one, linear interpolation two, cubic four.
struct Tap {
  std::vector<int64_t> index;
  std::vector<double> weight;  // empty: all one
};
using Taps = std::vector<Tap>;

Tensor IndexTensor(const std::vector<int64_t>& index, const Tensor& like) {
  Tensor cpu = at::from_blob(const_cast<int64_t*>(index.data()),
                             {static_cast<int64_t>(index.size())}, at::kLong);
  return like.device().is_cpu() ? cpu.clone() : cpu.to(like.device());
}

// The weights of a tap, shaped to broadcast along `dim`.
Tensor WeightTensor(const Tap& tap, const Tensor& like, int64_t dim) {
  Tensor cpu =
      at::from_blob(const_cast<double*>(tap.weight.data()),
                    {static_cast<int64_t>(tap.weight.size())}, at::kDouble);
  std::vector<int64_t> shape(like.dim(), 1);
  shape[dim] = cpu.numel();
  return cpu.to(like.options(), false, true).reshape(shape);
}

Tensor ApplyTaps(const Tensor& x, const Taps& taps, int64_t dim) {
  Tensor out;
  for (const Tap& tap : taps) {
    Tensor part = at::index_select(x, dim, IndexTensor(tap.index, x));
    if (!tap.weight.empty()) part = part * WeightTensor(tap, x, dim);
    out = out.defined() ? out + part : part;
  }
  return out;
}

// The transpose of ApplyTaps().
Tensor SpreadTaps(const Tensor& dout, const Taps& taps, int64_t dim,
                  int64_t input_size) {
  std::vector<int64_t> shape(dout.sizes().begin(), dout.sizes().end());
  shape[dim] = input_size;
  Tensor dx = at::zeros(shape, dout.options());
  for (const Tap& tap : taps) {
    Tensor part =
        tap.weight.empty() ? dout : dout * WeightTensor(tap, dout, dim);
    dx = at::index_add(dx, dim, IndexTensor(tap.index, dout), part);
  }
  return dx;
}

// ---- pad

int64_t Source(int64_t i, int64_t size, const std::string& mode) {
  if (mode == "replicate") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "circular") return (i + size) % size;
  if (i < 0) return -i;
  return i < size ? i : 2 * (size - 1) - i;
}

Taps PadTaps(int64_t size, int64_t before, int64_t behind,
             const std::string& mode) {
  int64_t most = mode == "reflect" ? size - 1 : size;
  TORCH_CHECK(
      size > 0 && (mode == "replicate" || (before <= most && behind <= most)),
      "padding is longer than the dimension");
  Tap tap;
  for (int64_t i = -before; i < size + behind; ++i) {
    tap.index.push_back(Source(i, size, mode));
  }
  return {tap};
}

// Last dimension first, as constant_pad_nd wants it.
std::vector<int64_t> Reversed(at::IntArrayRef paddings, int64_t sign) {
  std::vector<int64_t> out;
  for (int64_t i = static_cast<int64_t>(paddings.size()) - 2; i >= 0; i -= 2) {
    out.push_back(sign * paddings[i]);
    out.push_back(sign * paddings[i + 1]);
  }
  return out;
}

Tensor Pad(const Tensor& x, at::IntArrayRef paddings, const std::string& mode,
           double value) {
  TORCH_CHECK(static_cast<int64_t>(paddings.size()) == 2 * x.dim(),
              "pad does not fit");
  if (mode == "constant") {
    return at::constant_pad_nd(x, Reversed(paddings, 1), value);
  }
  TORCH_CHECK(mode == "reflect" || mode == "replicate" || mode == "circular",
              "unknown mode ", mode);
  Tensor out = x;
  for (int64_t d = 0; d < x.dim(); ++d) {
    int64_t before = paddings[2 * d], behind = paddings[2 * d + 1];
    if (before == 0 && behind == 0) continue;
    out = ApplyTaps(out, PadTaps(x.size(d), before, behind, mode), d);
  }
  return out.is_same(x) ? x.clone() : out;
}

Tensor PadGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef paddings,
               const std::string& mode, double) {
  if (mode == "constant") {
    return at::constant_pad_nd(dout, Reversed(paddings, -1));
  }
  Tensor dx = dout;
  for (int64_t d = 0; d < x.dim(); ++d) {
    int64_t before = paddings[2 * d], behind = paddings[2 * d + 1];
    if (before == 0 && behind == 0) continue;
    dx = SpreadTaps(dx, PadTaps(x.size(d), before, behind, mode), d, x.size(d));
  }
  return dx;
}

// ---- interpolate

struct Resize {
  int64_t from;
  int64_t to;
  double step;  // of the source for one step of the result
  bool align_corners;
  bool half_pixel;  // pixels are areas: their centres meet
};

double SourceAt(int64_t i, const Resize& r) {
  if (r.align_corners || !r.half_pixel) return r.step * i;
  return r.step * (i + 0.5) - 0.5;
}

Taps NearestTaps(const Resize& r) {
  Tap tap;
  for (int64_t i = 0; i < r.to; ++i) {
    double at =
        r.align_corners ? std::floor(r.step * i + 0.5) : std::floor(r.step * i);
    tap.index.push_back(
        std::clamp<int64_t>(static_cast<int64_t>(at), 0, r.from - 1));
  }
  return {tap};
}

Taps LinearTaps(const Resize& r) {
  Tap low, high;
  for (int64_t i = 0; i < r.to; ++i) {
    double at = std::max(SourceAt(i, r), 0.0);
    auto first = std::min<int64_t>(static_cast<int64_t>(at), r.from - 1);
    double share = std::min(at - static_cast<double>(first), 1.0);
    low.index.push_back(first);
    low.weight.push_back(1 - share);
    high.index.push_back(std::min(first + 1, r.from - 1));
    high.weight.push_back(share);
  }
  return {low, high};
}

// Keys' cubic kernel with a = -0.75.
double CubicWeight(double distance) {
  constexpr double a = -0.75;
  double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

Taps CubicTaps(const Resize& r) {
  Taps taps(4);
  for (int64_t i = 0; i < r.to; ++i) {
    double at = SourceAt(i, r);
    auto first = static_cast<int64_t>(std::floor(at));
    for (int64_t k = 0; k < 4; ++k) {
      int64_t index = first - 1 + k;
      taps[k].index.push_back(std::clamp<int64_t>(index, 0, r.from - 1));
      taps[k].weight.push_back(CubicWeight(at - static_cast<double>(index)));
    }
  }
  return taps;
}

Taps ResizeTaps(const Resize& r, const std::string& mode) {
  if (mode == "nearest") return NearestTaps(r);
  if (mode == "bicubic") return CubicTaps(r);
  TORCH_CHECK(mode == "linear" || mode == "bilinear" || mode == "trilinear",
              "unknown mode ", mode);
  return LinearTaps(r);
}

Resize MakeResize(int64_t from, int64_t to, size_t dim, bool align_corners,
                  int64_t align_mode, at::ArrayRef<double> scale) {
  Resize r{from, to, 0, align_corners, align_mode == 0};
  if (align_corners) {
    if (to > 1) r.step = static_cast<double>(from - 1) / (to - 1);
  } else if (scale.size() > dim && scale[dim] > 0) {
    r.step = 1 / scale[dim];
  } else {
    r.step = static_cast<double>(from) / to;
  }
  return r;
}

Tensor Interpolate(const Tensor& x, at::IntArrayRef out_shape,
                   const std::string& mode, bool align_corners,
                   int64_t align_mode, at::ArrayRef<double> scale,
                   const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor out = ChannelsFirst(x, last);
  size_t rank = x.dim() - 2;
  TORCH_CHECK(x.dim() > 2 && out_shape.size() == rank, "size does not fit");
  for (size_t d = 0; d < rank; ++d) {
    int64_t dim = static_cast<int64_t>(d) + 2;
    TORCH_CHECK(out_shape[d] > 0 && out.size(dim) > 0, "an empty dimension");
    Resize r = MakeResize(out.size(dim), out_shape[d], d, align_corners,
                          align_mode, scale);
    out = ApplyTaps(out, ResizeTaps(r, mode), dim);
  }
  return BackToLayout(out, last);
}

Tensor InterpolateGrad(const Tensor& x, const Tensor& dout,
                       at::IntArrayRef out_shape, const std::string& mode,
                       bool align_corners, int64_t align_mode,
                       at::ArrayRef<double> scale,
                       const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  Tensor in = ChannelsFirst(x, last);
  Tensor dx = ChannelsFirst(dout, last);
  for (size_t d = 0; d < out_shape.size(); ++d) {
    int64_t dim = static_cast<int64_t>(d) + 2;
    Resize r = MakeResize(in.size(dim), out_shape[d], d, align_corners,
                          align_mode, scale);
    dx = SpreadTaps(dx, ResizeTaps(r, mode), dim, in.size(dim));
  }
  return BackToLayout(dx, last);
}

// ---- patches

WindowLists UnfoldWindow(const Tensor& x, at::IntArrayRef kernel,
                         at::IntArrayRef strides, at::IntArrayRef paddings,
                         at::IntArrayRef dilations) {
  TORCH_CHECK(x.dim() == 4, "the input must have four dimensions");
  return Lists(
      WindowsOver(x, kernel, strides, dilations, paddings, "EXPLICIT"));
}

Tensor Unfold(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides,
              at::IntArrayRef paddings, at::IntArrayRef dilations) {
  WindowLists w = UnfoldWindow(x, kernel, strides, paddings, dilations);
  Tensor in = w.before.empty() ? x : at::constant_pad_nd(x, w.before);
  return at::im2col(in, w.kernel, w.dilation, w.padding, w.stride);
}

Tensor UnfoldGrad(const Tensor& x, const Tensor& dout, at::IntArrayRef kernel,
                  at::IntArrayRef strides, at::IntArrayRef paddings,
                  at::IntArrayRef dilations) {
  WindowLists w = UnfoldWindow(x, kernel, strides, paddings, dilations);
  std::vector<int64_t> size{x.size(2), x.size(3)};
  if (!w.before.empty()) {
    size[0] += w.before[2] + w.before[3];
    size[1] += w.before[0] + w.before[1];
  }
  Tensor dx = at::col2im(dout, size, w.kernel, w.dilation, w.padding, w.stride);
  return Unpad(dx, w.before);
}

Tensor PixelShuffle(const Tensor& x, int64_t factor,
                    const std::string& data_format) {
  TORCH_CHECK(factor >= 1 && factor <= x.numel() + 1, "bad upscale_factor");
  bool last = program::ChannelsLast(data_format);
  return BackToLayout(at::pixel_shuffle(ChannelsFirst(x, last), factor), last);
}

Tensor PixelShuffleGrad(const Tensor& dout, int64_t factor,
                        const std::string& data_format) {
  bool last = program::ChannelsLast(data_format);
  return BackToLayout(at::pixel_unshuffle(ChannelsFirst(dout, last), factor),
                      last);
}

// ---- sampling

int64_t SampleMode(const std::string& mode) {
  TORCH_CHECK(mode == "bilinear" || mode == "nearest",
              "mode must be 'bilinear' or 'nearest', not '", mode, "'");
  return mode == "bilinear" ? 0 : 1;
}

int64_t SamplePadding(const std::string& mode) {
  TORCH_CHECK(mode == "zeros" || mode == "border" || mode == "reflection",
              "padding_mode must be 'zeros', 'border' or 'reflection', not '",
              mode, "'");
  return mode == "zeros" ? 0 : mode == "border" ? 1 : 2;
}

Tensor GridSample(const Tensor& x, const Tensor& grid, const std::string& mode,
                  const std::string& padding_mode, bool align_corners) {
  TORCH_CHECK(x.dim() == grid.dim(), "x and grid differ in dimensions");
  int64_t m = SampleMode(mode), p = SamplePadding(padding_mode);
  return x.dim() == 4 ? at::grid_sampler_2d(x, grid, m, p, align_corners)
                      : at::grid_sampler_3d(x, grid, m, p, align_corners);
}

std::tuple<Tensor, Tensor> GridSampleGrad(const Tensor& x, const Tensor& grid,
                                          const Tensor& dout,
                                          const std::string& mode,
                                          const std::string& padding_mode,
                                          bool align_corners, GradNeeds needs) {
  TORCH_CHECK(!Recording(), "grid_sample has no second derivative");
  int64_t m = SampleMode(mode), p = SamplePadding(padding_mode);
  std::array<bool, 2> mask{needs[0], needs[1]};
  return x.dim() == 4 ? at::grid_sampler_2d_backward(dout, x, grid, m, p,
                                                     align_corners, mask)
                      : at::grid_sampler_3d_backward(dout, x, grid, m, p,
                                                     align_corners, mask);
}

Tensor AffineGrid(const Tensor& theta, at::IntArrayRef size,
                  bool align_corners) {
  return at::affine_grid_generator(theta, size, align_corners);
}

Tensor AffineGridGrad(const Tensor& dout, at::IntArrayRef size,
                      bool align_corners) {
  return at::affine_grid_generator_backward(dout, size, align_corners);
}

// ---- every dimension, or the two of images

// Paddle's pairs, first dimension first, as ATen's, last dimension first.
std::vector<int64_t> Backwards(at::IntArrayRef paddings) {
  std::vector<int64_t> out;
  for (size_t i = paddings.size(); i >= 2; i -= 2) {
    out.push_back(paddings[i - 2]);
    out.push_back(paddings[i - 1]);
  }
  return out;
}

Tensor PadAll(const Tensor& x, at::IntArrayRef paddings, double value) {
  TORCH_CHECK(paddings.size() == 2 * static_cast<size_t>(x.dim()),
              "paddings does not fit");
  return at::constant_pad_nd(x, Backwards(paddings), value);
}

Tensor PadAllGrad(const Tensor&, const Tensor& dout, at::IntArrayRef paddings,
                  double) {
  return Unpad(dout, Backwards(paddings));
}

Tensor Pad2d(const Tensor& input, at::IntArrayRef paddings, double value,
             const std::string& mode, const std::string& data_format) {
  TORCH_CHECK(input.dim() == 4 && paddings.size() == 4,
              "X must have four dimensions and paddings four numbers");
  const bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last);
  const std::vector<int64_t> pads = Backwards(paddings);
  Tensor out = mode == "constant"  ? at::constant_pad_nd(x, pads, value)
               : mode == "reflect" ? at::reflection_pad2d(x, pads)
                                   : at::replication_pad2d(x, pads);
  return BackToLayout(out, last);
}

Tensor Pad2dGrad(const Tensor& input, const Tensor& dout,
                 at::IntArrayRef paddings, double, const std::string& mode,
                 const std::string& data_format) {
  const bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last), d = ChannelsFirst(dout, last);
  const std::vector<int64_t> pads = Backwards(paddings);
  Tensor dx = mode == "constant"  ? Unpad(d, pads)
              : mode == "reflect" ? at::reflection_pad2d_backward(d, x, pads)
                                  : at::replication_pad2d_backward(d, x, pads);
  return BackToLayout(dx, last);
}

}  // namespace

void AddPadKernels(KernelTable& k) {
  k.Add<Pad, PadGrad>("pad3d");
  k.Add<Interpolate, InterpolateGrad>("interpolate");
  k.Add<Unfold, UnfoldGrad>("unfold");
  k.Add<PixelShuffle, PixelShuffleGrad>("pixel_shuffle");
  k.Add<GridSample, GridSampleGrad>("grid_sampler");
  k.Add<AffineGrid, AffineGridGrad>("affine_grid");
  k.Add<PadAll, PadAllGrad>("pad");
  k.Add<Pad2d, Pad2dGrad>("pad2d");
}

}  // namespace fleet::ops
