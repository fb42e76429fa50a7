// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"
#include "fleet/ops/reduction.h"

namespace fleet::ops {
namespace {

using at::Tensor;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

std::optional<Tensor> Maybe(const Tensor& x) {
  if (!x.defined()) return std::nullopt;
  return x;
}

// ---- layer norm

Three LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                int64_t begin_norm_axis, double epsilon) {
  TORCH_CHECK(begin_norm_axis >= 0 && begin_norm_axis < x.dim(),
              "no such axis");
  at::IntArrayRef shape = x.sizes().slice(begin_norm_axis);
  auto shaped = [&](const Tensor& t) -> std::optional<Tensor> {
    if (!t.defined()) return std::nullopt;
    return t.sizes() == shape ? t : t.reshape(shape);
  };
  auto [out, mean, inverse] =
      at::native_layer_norm(x, shape, shaped(scale), shaped(bias), epsilon);
  return {out, mean.reshape({-1}), inverse.reshape({-1})};
}

Three LayerNormGrad(const Tensor& x, const Tensor& scale, const Tensor& bias,
                    const Tensor& mean, const Tensor& inverse,
                    const Tensor& dout, int64_t begin_norm_axis, double,
                    GradNeeds needs) {
  at::IntArrayRef shape = x.sizes().slice(begin_norm_axis);
  auto shaped = [&](const Tensor& t) -> std::optional<Tensor> {
    if (!t.defined()) return std::nullopt;
    return t.sizes() == shape ? t : t.reshape(shape);
  };
  // ATen wants the statistics shaped like x with ones behind the axis.
  std::vector<int64_t> kept(x.sizes().begin(), x.sizes().end());
  std::fill(kept.begin() + begin_norm_axis, kept.end(), 1);
  auto [dx, dscale, dbias] = at::native_layer_norm_backward(
      dout, x, shape, mean.reshape(kept), inverse.reshape(kept), shaped(scale),
      shaped(bias),
      {needs[0], needs[1] && scale.defined(), needs[2] && bias.defined()});
  if (dscale.defined()) dscale = dscale.reshape(scale.sizes());
  if (dbias.defined()) dbias = dbias.reshape(bias.sizes());
  return {dx, dscale, dbias};
}

// ---- group norm

int64_t NumGroups(int64_t groups, const Tensor& x) {
  return groups == 0 ? x.size(1) : groups;
}

int64_t PerChannel(const Tensor& x) {
  int64_t n = 1;
  for (int64_t i = 2; i < x.dim(); ++i) n *= x.size(i);
  return n;
}

Three GroupNorm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                int64_t groups, double epsilon,
                const std::string& data_layout) {
  bool last = program::ChannelsLast(data_layout);
  TORCH_CHECK(x.dim() >= 2, "too few dimensions");
  Tensor in = ChannelsFirst(x, last).contiguous();
  groups = NumGroups(groups, in);
  TORCH_CHECK(groups > 0 && in.size(1) % groups == 0,
              "groups must divide the channels");
  auto [out, mean, inverse] =
      at::native_group_norm(in, Maybe(scale), Maybe(bias), in.size(0),
                            in.size(1), PerChannel(in), groups, epsilon);
  return {BackToLayout(out, last), mean, inverse};
}

// The gradient of group_norm from differentiable calls:
// dx = (g - mean(g) - y mean(g y)) / deviation, where y is the normalised input
// and g the gradient that reaches it.
Three GroupNormGradFormula(const Tensor& x, const Tensor& scale,
                           const Tensor& dout, int64_t groups, double epsilon) {
  int64_t n = x.size(0), channels = x.size(1);
  Tensor rows = x.reshape({n, groups, -1});
  Tensor centred = rows - at::mean(rows, {2}, true);
  Tensor inverse = at::rsqrt(at::mean(centred * centred, {2}, true) + epsilon);
  Tensor y = centred * inverse;
  std::vector<int64_t> per_channel(x.dim(), 1);
  per_channel[1] = channels;
  Tensor g = scale.defined() ? dout * scale.reshape(per_channel) : dout;
  g = g.reshape(rows.sizes());
  Tensor dx =
      inverse * (g - at::mean(g, {2}, true) - y * at::mean(g * y, {2}, true));
  Tensor flat = dout.reshape({n, channels, -1});
  return {dx.reshape(x.sizes()),
          at::sum(flat * y.reshape(flat.sizes()), at::IntArrayRef({0, 2})),
          at::sum(flat, at::IntArrayRef({0, 2}))};
}

Three GroupNormGrad(const Tensor& x, const Tensor& scale, const Tensor& mean,
                    const Tensor& inverse, const Tensor& dout, int64_t groups,
                    double epsilon, const std::string& data_layout,
                    GradNeeds needs) {
  bool last = program::ChannelsLast(data_layout);
  Tensor in = ChannelsFirst(x, last).contiguous();
  Tensor dy = ChannelsFirst(dout, last).contiguous();
  groups = NumGroups(groups, in);
  Three grads =
      Recording()
          ? GroupNormGradFormula(in, scale, dy, groups, epsilon)
          : at::native_group_norm_backward(
                dy, in, mean, inverse, Maybe(scale), in.size(0), in.size(1),
                PerChannel(in), groups, {needs[0], needs[1], needs[2]});
  auto& [dx, dscale, dbias] = grads;
  if (dx.defined()) dx = BackToLayout(dx, last);
  if (!needs[1]) dscale = Tensor();
  if (!needs[2]) dbias = Tensor();
  return grads;
}

// X over its norm along `axis`, and that norm.
Two L2Normalize(const Tensor& given, int64_t axis, double epsilon) {
  const Tensor x = Packed(given);
  Tensor norm = at::sqrt(at::sum(x * x, {axis}, true) + epsilon);
  return {x / norm, norm};
}

Tensor L2NormalizeGrad(const Tensor& out, const Tensor& norm,
                       const Tensor& dout, int64_t axis, double) {
  return (dout - out * at::sum(out * dout, {axis}, true)) / norm;
}

// Every channel of every image by itself.
Three InstanceNorm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                   double epsilon) {
  TORCH_CHECK(x.dim() >= 3, "too few dimensions");
  Tensor in = x.contiguous();
  const int64_t n = in.size(0), channels = in.size(1);
  auto [out, mean, inverse] = at::native_group_norm(
      in, Maybe(scale), Maybe(bias), n, channels,
      n * channels == 0 ? 0 : in.numel() / (n * channels), channels, epsilon);
  return {out, mean.reshape({-1}), inverse.reshape({-1})};
}

Three InstanceNormGrad(const Tensor& x, const Tensor& scale, const Tensor& mean,
                       const Tensor& inverse, const Tensor& dy, double,
                       GradNeeds needs) {
  Tensor in = x.contiguous();
  const int64_t n = in.size(0), channels = in.size(1);
  return at::native_group_norm_backward(
      dy.contiguous(), in, mean.reshape({n, channels}),
      inverse.reshape({n, channels}), Maybe(scale), n, channels,
      n * channels == 0 ? 0 : in.numel() / (n * channels), channels,
      {needs[0], needs[1], needs[2]});
}

}  // namespace

void AddNormKernels(KernelTable& k) {
  k.Add<LayerNorm, LayerNormGrad>("layer_norm");
  k.Add<GroupNorm, GroupNormGrad>("group_norm");
  k.Add<L2Normalize, L2NormalizeGrad>("norm");
  k.Add<InstanceNorm, InstanceNormGrad>("instance_norm");
}

}  // namespace fleet::ops
