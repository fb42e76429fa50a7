// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/detection.h"
#include "fleet/program/window.h"

// Convolutions that take each number of a window from somewhere near its place.
// The numbers become columns, one for each place of the window: columns
// [channel, kernel place, window place]; the rest is a product of matrices.

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;

struct Geometry {
  int64_t images, channels, height, width;
  int64_t filters, groups, deformable_groups;
  int64_t kernel_h, kernel_w, out_h, out_w;
  program::Window rows, columns;

  int64_t kernel() const { return kernel_h * kernel_w; }
  int64_t places() const { return out_h * out_w; }
  int64_t plane() const { return height * width; }
  // Channels that share their offsets.
  int64_t together() const { return channels / deformable_groups; }
};

Geometry Measure(const Tensor& input, const Tensor& offset,
                 const Tensor& filter, const Tensor& mask, IntArrayRef strides,
                 IntArrayRef paddings, IntArrayRef dilations, int64_t groups,
                 int64_t deformable_groups) {
  TORCH_CHECK(input.dim() == 4 && filter.dim() == 4, "Input ", input.sizes(),
              " and Filter ", filter.sizes(), " must have four dimensions");
  Geometry g{.images = input.size(0),
             .channels = input.size(1),
             .height = input.size(2),
             .width = input.size(3),
             .filters = filter.size(0),
             .groups = groups,
             .deformable_groups = deformable_groups,
             .kernel_h = filter.size(2),
             .kernel_w = filter.size(3)};
  const std::array<int64_t, 2> kernel{g.kernel_h, g.kernel_w};
  const std::array<int64_t, 2> size{g.height, g.width};
  auto windows = program::MakeWindows({.kernel = kernel,
                                       .strides = strides,
                                       .dilations = dilations,
                                       .paddings = paddings},
                                      size);
  TORCH_CHECK(windows.ok(), windows.status().message());
  g.rows = (*windows)[0];
  g.columns = (*windows)[1];
  auto out_h = program::WindowCount(g.height, g.rows);
  auto out_w = program::WindowCount(g.width, g.columns);
  TORCH_CHECK(out_h.ok() && out_w.ok(), "the kernel does not fit into Input ",
              input.sizes());
  g.out_h = *out_h;
  g.out_w = *out_w;
  const int64_t field = deformable_groups * g.kernel();
  TORCH_CHECK(
      groups > 0 && deformable_groups > 0 &&
          g.channels == filter.size(1) * groups && g.filters % groups == 0 &&
          g.channels % deformable_groups == 0 &&
          offset.sizes() ==
              IntArrayRef({g.images, 2 * field, g.out_h, g.out_w}) &&
          (!mask.defined() ||
           mask.sizes() == IntArrayRef({g.images, field, g.out_h, g.out_w})),
      "shapes do not fit");
  return g;
}

// ---- over bare memory

// The four pixels around a point, and what each contributes to its value. A
// pixel outside of the image contributes nothing and stands at 0.
struct Sample {
  std::array<int32_t, 4> at;
  std::array<float, 4> weight;
};
// By how much the weights grow as the point moves down or to the right.
struct Slope {
  std::array<float, 4> down;
  std::array<float, 4> right;
};

void Look(const Geometry& g, float y, float x, Sample& sample, Slope* slope) {
  sample = {};
  if (slope != nullptr) *slope = {};
  const auto height = static_cast<float>(g.height);
  const auto width = static_cast<float>(g.width);
  // Not so for a number that is none.
  if (!(y > -1 && y < height && x > -1 && x < width)) return;
  const float top = std::floor(y), left = std::floor(x);
  const float down = y - top, right = x - left;
  const auto row = static_cast<int32_t>(top);
  const auto column = static_cast<int32_t>(left);
  for (int corner = 0; corner < 4; ++corner) {
    const bool below = corner >= 2, beside = corner % 2 == 1;
    const int32_t r = row + (below ? 1 : 0), c = column + (beside ? 1 : 0);
    if (r < 0 || r >= g.height || c < 0 || c >= g.width) continue;
    const float along = below ? down : 1 - down;
    const float across = beside ? right : 1 - right;
    sample.at[corner] = r * static_cast<int32_t>(g.width) + c;
    sample.weight[corner] = along * across;
    if (slope == nullptr) continue;
    slope->down[corner] = below ? across : -across;
    slope->right[corner] = beside ? along : -along;
  }
}

// The points of one deformable group and one place of the kernel: `which` of
// deformable_groups * kernel, for an image whose offsets begin at `offset`.
void LookAlong(const Geometry& g, const float* offset, int64_t which,
               Sample* samples, Slope* slopes) {
  const int64_t place = which % g.kernel();
  const float* down = offset + 2 * which * g.places();
  const float* right = down + g.places();
  const int64_t first_row = place / g.kernel_w * g.rows.dilation - g.rows.begin;
  const int64_t first_column =
      place % g.kernel_w * g.columns.dilation - g.columns.begin;
  int64_t p = 0;
  for (int64_t i = 0; i < g.out_h; ++i) {
    const auto y = static_cast<float>(first_row + i * g.rows.stride);
    for (int64_t j = 0; j < g.out_w; ++j, ++p) {
      const auto x = static_cast<float>(first_column + j * g.columns.stride);
      Look(g, y + down[p], x + right[p], samples[p],
           slopes == nullptr ? nullptr : slopes + p);
    }
  }
}

float ValueAt(const float* plane, const Sample& s) {
  return s.weight[0] * plane[s.at[0]] + s.weight[1] * plane[s.at[1]] +
         s.weight[2] * plane[s.at[2]] + s.weight[3] * plane[s.at[3]];
}

float ValueAlong(const float* plane, const Sample& s,
                 const std::array<float, 4>& weights) {
  return weights[0] * plane[s.at[0]] + weights[1] * plane[s.at[1]] +
         weights[2] * plane[s.at[2]] + weights[3] * plane[s.at[3]];
}

// The memory of one image in each of the tensors; null where there is none.
struct Image {
  const float* input;
  const float* offset;
  const float* mask;
};

Image ImageAt(const Geometry& g, int64_t n, const Tensor& input,
              const Tensor& offset, const Tensor& mask) {
  const int64_t field = g.deformable_groups * g.kernel() * g.places();
  return {input.const_data_ptr<float>() + n * g.channels * g.plane(),
          offset.const_data_ptr<float>() + n * 2 * field,
          mask.defined() ? mask.const_data_ptr<float>() + n * field : nullptr};
}

// The columns of channels of row `which`, from points that are known.
void FillRow(const Geometry& g, const Image& image, int64_t which,
             const Sample* samples, float* columns) {
  const int64_t places = g.places(), place = which % g.kernel();
  const float* mask =
      image.mask == nullptr ? nullptr : image.mask + which * places;
  const int64_t first = which / g.kernel() * g.together();
  for (int64_t c = first; c < first + g.together(); ++c) {
    const float* plane = image.input + c * g.plane();
    float* to = columns + (c * g.kernel() + place) * places;
    for (int64_t p = 0; p < places; ++p) to[p] = ValueAt(plane, samples[p]);
    if (mask == nullptr) continue;
    for (int64_t p = 0; p < places; ++p) to[p] *= mask[p];
  }
}

Tensor FastForward(const Geometry& g, const Tensor& input, const Tensor& offset,
                   const Tensor& filter, const Tensor& mask) {
  const int64_t groups = g.groups, places = g.places();
  Tensor out = at::empty({g.images, groups, g.filters / groups, places},
                         input.options());
  Tensor columns = at::empty({groups, g.channels / groups * g.kernel(), places},
                             input.options());
  const Tensor weights = filter.reshape({groups, g.filters / groups, -1});
  auto* to = columns.mutable_data_ptr<float>();
  for (int64_t n = 0; n < g.images; ++n) {
    const Image image = ImageAt(g, n, input, offset, mask);
    at::parallel_for(0, g.deformable_groups * g.kernel(), 1,
                     [&](int64_t begin, int64_t end) {
                       std::vector<Sample> samples(places);
                       for (int64_t k = begin; k < end; ++k) {
                         LookAlong(g, image.offset, k, samples.data(), nullptr);
                         FillRow(g, image, k, samples.data(), to);
                       }
                     });
    Tensor one = out.select(0, n);
    at::bmm_out(one, weights, columns);
  }
  return out.reshape({g.images, g.filters, g.out_h, g.out_w});
}

// Adds to the gradient of one channel's plane what its columns ask for.
void SpreadPlane(const Geometry& g, const Image& image, int64_t channel,
                 const Sample* samples, const float* dcolumns, float* dinput) {
  const int64_t places = g.places();
  const int64_t first = channel / g.together() * g.kernel();
  for (int64_t k = 0; k < g.kernel(); ++k) {
    const Sample* along = samples + (first + k) * places;
    const float* d = dcolumns + (channel * g.kernel() + k) * places;
    const float* mask =
        image.mask == nullptr ? nullptr : image.mask + (first + k) * places;
    for (int64_t p = 0; p < places; ++p) {
      const float by = mask == nullptr ? d[p] : d[p] * mask[p];
      const Sample& s = along[p];
      for (int i = 0; i < 4; ++i) dinput[s.at[i]] += s.weight[i] * by;
    }
  }
}

// The gradients of the offsets and the mask of row `which`.
void MovePoints(const Geometry& g, const Image& image, int64_t which,
                const Sample* samples, const Slope* slopes,
                const float* dcolumns, float* doffset, float* dmask) {
  const int64_t places = g.places(), place = which % g.kernel();
  const float* mask =
      image.mask == nullptr ? nullptr : image.mask + which * places;
  float* down = doffset + 2 * which * places;
  float* right = down + places;
  const int64_t first = which / g.kernel() * g.together();
  for (int64_t c = first; c < first + g.together(); ++c) {
    const float* plane = image.input + c * g.plane();
    const float* d = dcolumns + (c * g.kernel() + place) * places;
    for (int64_t p = 0; p < places; ++p) {
      const Sample& s = samples[p];
      const float by = mask == nullptr ? d[p] : d[p] * mask[p];
      down[p] += by * ValueAlong(plane, s, slopes[p].down);
      right[p] += by * ValueAlong(plane, s, slopes[p].right);
      if (dmask != nullptr) {
        dmask[which * places + p] += d[p] * ValueAt(plane, s);
      }
    }
  }
}

struct Gradients {
  Tensor input, offset, filter, mask;
};

Gradients FastBackward(const Geometry& g, const Tensor& input,
                       const Tensor& offset, const Tensor& filter,
                       const Tensor& mask, const Tensor& dout) {
  const int64_t groups = g.groups, places = g.places();
  const int64_t rows = g.deformable_groups * g.kernel();
  Gradients d{
      at::zeros_like(input), at::zeros_like(offset),
      at::zeros({groups, g.filters / groups, g.channels / groups * g.kernel()},
                filter.options()),
      mask.defined() ? at::zeros_like(mask) : Tensor()};
  const Tensor weights =
      filter.reshape({groups, g.filters / groups, -1}).transpose(1, 2);
  const Tensor douts =
      dout.reshape({g.images, groups, g.filters / groups, places});
  Tensor columns = at::empty({groups, g.channels / groups * g.kernel(), places},
                             input.options());
  Tensor dcolumns = at::empty_like(columns);
  auto* values = columns.mutable_data_ptr<float>();
  std::vector<Sample> samples(rows * places);
  std::vector<Slope> slopes(rows * places);
  for (int64_t n = 0; n < g.images; ++n) {
    const Image image = ImageAt(g, n, input, offset, mask);
    at::bmm_out(dcolumns, weights, douts.select(0, n));
    const auto* dvalues = dcolumns.const_data_ptr<float>();
    float* dinput =
        d.input.mutable_data_ptr<float>() + n * g.channels * g.plane();
    float* doffset = d.offset.mutable_data_ptr<float>() + n * 2 * rows * places;
    float* dmask = mask.defined()
                       ? d.mask.mutable_data_ptr<float>() + n * rows * places
                       : nullptr;
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        Sample* along = samples.data() + k * places;
        Slope* slope = slopes.data() + k * places;
        LookAlong(g, image.offset, k, along, slope);
        FillRow(g, image, k, along, values);
        MovePoints(g, image, k, along, slope, dvalues, doffset, dmask);
      }
    });
    // Channels apart: no two add to the same plane.
    at::parallel_for(0, g.channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        SpreadPlane(g, image, c, samples.data(), dvalues,
                    dinput + c * g.plane());
      }
    });
    d.filter.baddbmm_(douts.select(0, n), columns.transpose(1, 2));
  }
  d.filter = d.filter.reshape(filter.sizes());
  return d;
}

// ---- of ATen calls

// What the four pixels around each point hold, and their weights, as tensors
// [images, deformable groups, channels together or 1, kernel * places].
struct Points {
  std::array<Tensor, 4> index, value, weight, inside;
  std::array<Tensor, 4> down, right;  // by how much weights grow
};

Points LookAll(const Geometry& g, const Tensor& input, const Tensor& offset) {
  const auto options = offset.options();
  auto along = [&](int64_t kernel, int64_t count, const program::Window& w) {
    Tensor k = at::arange(kernel, options) * w.dilation - w.begin;
    return k.unsqueeze(1) + at::arange(count, options) * w.stride;
  };
  const std::vector<int64_t> grid{g.kernel_h, g.kernel_w, g.out_h, g.out_w};
  Tensor y0 = along(g.kernel_h, g.out_h, g.rows)
                  .reshape({g.kernel_h, 1, g.out_h, 1})
                  .expand(grid);
  Tensor x0 = along(g.kernel_w, g.out_w, g.columns)
                  .reshape({1, g.kernel_w, 1, g.out_w})
                  .expand(grid);
  Tensor moved = offset.reshape(
      {g.images, g.deformable_groups, g.kernel(), 2, g.places()});
  const std::vector<int64_t> one{g.images, g.deformable_groups, 1,
                                 g.kernel() * g.places()};
  Tensor y =
      (moved.select(3, 0) + y0.reshape({g.kernel(), g.places()})).reshape(one);
  Tensor x =
      (moved.select(3, 1) + x0.reshape({g.kernel(), g.places()})).reshape(one);
  Tensor near = (y > -1) & (y < g.height) & (x > -1) & (x < g.width);
  // Also for numbers that are none.
  y = at::where(near, y, at::zeros_like(y));
  x = at::where(near, x, at::zeros_like(x));
  Tensor top = at::floor(y.detach()), left = at::floor(x.detach());
  Tensor down = y - top, right = x - left;
  Tensor planes =
      input.reshape({g.images, g.deformable_groups, g.together(), g.plane()});
  std::vector<int64_t> all = one;
  all[2] = g.together();
  Points points;
  for (int corner = 0; corner < 4; ++corner) {
    const bool below = corner >= 2, beside = corner % 2 == 1;
    Tensor row = below ? top + 1 : top, column = beside ? left + 1 : left;
    Tensor inside = near & (row >= 0) & (row < g.height) & (column >= 0) &
                    (column < g.width);
    Tensor index =
        row.clamp(0, g.height - 1) * g.width + column.clamp(0, g.width - 1);
    points.index[corner] = index.to(at::kLong).expand(all);
    points.inside[corner] = inside.to(input.scalar_type());
    points.value[corner] =
        at::gather(planes, 3, points.index[corner]) * points.inside[corner];
    Tensor lengthwise = below ? down : 1 - down;
    Tensor crosswise = beside ? right : 1 - right;
    points.weight[corner] = lengthwise * crosswise;
    points.down[corner] = below ? crosswise : -crosswise;
    points.right[corner] = beside ? lengthwise : -lengthwise;
  }
  return points;
}

Tensor Blend(const Points& points, const std::array<Tensor, 4>& weights) {
  Tensor sum = points.value[0] * weights[0];
  for (int i = 1; i < 4; ++i) sum = sum + points.value[i] * weights[i];
  return sum;
}

// The mask as the values of points have it; undefined where there is none.
Tensor Factors(const Geometry& g, const Tensor& mask) {
  if (!mask.defined()) return mask;
  return mask.reshape(
      {g.images, g.deformable_groups, 1, g.kernel() * g.places()});
}

Tensor Columns(const Geometry& g, const Points& points, const Tensor& factors) {
  Tensor values = Blend(points, points.weight);
  if (factors.defined()) values = values * factors;
  return values.reshape(
      {g.images, g.groups, g.channels / g.groups * g.kernel(), g.places()});
}

Tensor GeneralForward(const Geometry& g, const Tensor& input,
                      const Tensor& offset, const Tensor& filter,
                      const Tensor& mask) {
  const Points points = LookAll(g, input, offset);
  Tensor weights = filter.reshape({g.groups, g.filters / g.groups, -1});
  return at::matmul(weights, Columns(g, points, Factors(g, mask)))
      .reshape({g.images, g.filters, g.out_h, g.out_w});
}

Gradients GeneralBackward(const Geometry& g, const Tensor& input,
                          const Tensor& offset, const Tensor& filter,
                          const Tensor& mask, const Tensor& dout) {
  const Points points = LookAll(g, input, offset);
  const Tensor factors = Factors(g, mask);
  Tensor douts =
      dout.reshape({g.images, g.groups, g.filters / g.groups, g.places()});
  Gradients d;
  d.filter =
      at::sum(at::matmul(douts, Columns(g, points, factors).transpose(2, 3)),
              {0})
          .reshape(filter.sizes());
  Tensor weights =
      filter.reshape({g.groups, g.filters / g.groups, -1}).transpose(1, 2);
  Tensor dvalues = at::matmul(weights, douts)
                       .reshape({g.images, g.deformable_groups, g.together(),
                                 g.kernel() * g.places()});
  if (mask.defined()) {
    d.mask = at::sum(dvalues * Blend(points, points.weight), {2})
                 .reshape(mask.sizes());
    dvalues = dvalues * factors;
  }
  std::vector<int64_t> one{g.images, g.deformable_groups, g.kernel(),
                           g.places()};
  Tensor down = at::sum(dvalues * Blend(points, points.down), {2});
  Tensor right = at::sum(dvalues * Blend(points, points.right), {2});
  d.offset = at::stack({down.reshape(one), right.reshape(one)}, 3)
                 .reshape(offset.sizes());
  d.input = at::zeros({g.images, g.deformable_groups, g.together(), g.plane()},
                      input.options());
  for (int i = 0; i < 4; ++i) {
    d.input = at::scatter_add(d.input, 3, points.index[i],
                              dvalues * points.weight[i] * points.inside[i]);
  }
  d.input = d.input.reshape(input.sizes());
  return d;
}

// ---- the ops

Tensor Forward(const Tensor& input, const Tensor& offset, const Tensor& filter,
               const Tensor& mask, IntArrayRef strides, IntArrayRef paddings,
               IntArrayRef dilations, int64_t groups,
               int64_t deformable_groups) {
  const Geometry g = Measure(input, offset, filter, mask, strides, paddings,
                             dilations, groups, deformable_groups);
  const bool fast =
      FastOnCpu(input, offset, filter) && (!mask.defined() || FastOnCpu(mask));
  if (!fast) return GeneralForward(g, input, offset, filter, mask);
  return FastForward(g, input.contiguous(), offset.contiguous(), filter,
                     mask.defined() ? mask.contiguous() : mask);
}

Gradients Backward(const Tensor& input, const Tensor& offset,
                   const Tensor& filter, const Tensor& mask, const Tensor& dout,
                   IntArrayRef strides, IntArrayRef paddings,
                   IntArrayRef dilations, int64_t groups,
                   int64_t deformable_groups) {
  const Geometry g = Measure(input, offset, filter, mask, strides, paddings,
                             dilations, groups, deformable_groups);
  const bool fast = FastOnCpu(input, offset, filter, dout) &&
                    (!mask.defined() || FastOnCpu(mask));
  if (!fast) return GeneralBackward(g, input, offset, filter, mask, dout);
  return FastBackward(g, input.contiguous(), offset.contiguous(), filter,
                      mask.defined() ? mask.contiguous() : mask, dout);
}

Tensor DeformableConv(const Tensor& input, const Tensor& offset,
                      const Tensor& filter, const Tensor& mask,
                      IntArrayRef strides, IntArrayRef paddings,
                      IntArrayRef dilations, int64_t groups,
                      int64_t deformable_groups, int64_t) {
  return Forward(input, offset, filter, mask, strides, paddings, dilations,
                 groups, deformable_groups);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> DeformableConvGrad(
    const Tensor& input, const Tensor& offset, const Tensor& filter,
    const Tensor& mask, const Tensor& dout, IntArrayRef strides,
    IntArrayRef paddings, IntArrayRef dilations, int64_t groups,
    int64_t deformable_groups, int64_t) {
  Gradients d = Backward(input, offset, filter, mask, dout, strides, paddings,
                         dilations, groups, deformable_groups);
  return {d.input, d.offset, d.filter, d.mask};
}

Tensor DeformableConvV1(const Tensor& input, const Tensor& offset,
                        const Tensor& filter, IntArrayRef strides,
                        IntArrayRef paddings, IntArrayRef dilations,
                        int64_t groups, int64_t deformable_groups, int64_t) {
  return Forward(input, offset, filter, {}, strides, paddings, dilations,
                 groups, deformable_groups);
}
std::tuple<Tensor, Tensor, Tensor> DeformableConvV1Grad(
    const Tensor& input, const Tensor& offset, const Tensor& filter,
    const Tensor& dout, IntArrayRef strides, IntArrayRef paddings,
    IntArrayRef dilations, int64_t groups, int64_t deformable_groups, int64_t) {
  Gradients d = Backward(input, offset, filter, {}, dout, strides, paddings,
                         dilations, groups, deformable_groups);
  return {d.input, d.offset, d.filter};
}

}  // namespace

void AddDeformableConvKernels(KernelTable& k) {
  k.Add<DeformableConv, DeformableConvGrad>("deformable_conv");
  k.Add<DeformableConvV1, DeformableConvV1Grad>("deformable_conv_v1");
}

}  // namespace fleet::ops
