// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad2d_backward.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad2d_backward.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/broadcast.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Ints = std::vector<int64_t>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// ---- shapes

Tensor Flatten2(const Tensor& x, int64_t axis) {
  TORCH_CHECK(axis >= 0 && axis <= x.dim(), "no axis ", axis);
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.dim(); ++i)
    (i < axis ? rows : columns) *= x.size(i);
  return x.reshape({rows, columns});
}

Tensor OneHot(const Tensor& x, int64_t depth) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == 1, "the last dimension must be 1");
  Tensor index = x.to(at::kLong);
  CheckIndices("index", index.reshape({-1}).contiguous(), 0, depth);
  Ints shape = x.sizes().vec();
  shape.back() = depth;
  return at::scatter(at::zeros(shape, x.options().dtype(at::kFloat)), -1, index,
                     1);
}

Tensor Expand(const Tensor& x, IntArrayRef times) {
  TORCH_CHECK(times.size() == static_cast<size_t>(x.dim()),
              "expand_times does not fit");
  return x.repeat(times);
}

// [times, size] for each dimension; the gradient is the sum over times.
Tensor ExpandGrad(const Tensor& x, const Tensor& dout, IntArrayRef times) {
  Ints shape, axes;
  for (int64_t i = 0; i < x.dim(); ++i) {
    axes.push_back(static_cast<int64_t>(shape.size()));
    shape.push_back(times[i]);
    shape.push_back(x.size(i));
  }
  return x.dim() == 0 ? dout : at::sum(dout.reshape(shape), axes);
}

// ---- padding

// Paddle's pairs, first dimension first, as ATen's, last dimension first.
Ints Backwards(IntArrayRef paddings) {
  Ints out;
  for (size_t i = paddings.size(); i >= 2; i -= 2) {
    out.push_back(paddings[i - 2]);
    out.push_back(paddings[i - 1]);
  }
  return out;
}

Tensor Pad(const Tensor& x, IntArrayRef paddings, double value) {
  TORCH_CHECK(paddings.size() == 2 * static_cast<size_t>(x.dim()),
              "paddings does not fit");
  return at::constant_pad_nd(x, Backwards(paddings), value);
}

Tensor PadGrad(const Tensor&, const Tensor& dout, IntArrayRef paddings,
               double) {
  return Unpad(dout, Backwards(paddings));
}

Tensor Pad2d(const Tensor& input, IntArrayRef paddings, double value,
             const std::string& mode, const std::string& data_format) {
  TORCH_CHECK(input.dim() == 4 && paddings.size() == 4,
              "X must have four dimensions and paddings four numbers");
  const bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last);
  const Ints pads = Backwards(paddings);
  Tensor out = mode == "constant"  ? at::constant_pad_nd(x, pads, value)
               : mode == "reflect" ? at::reflection_pad2d(x, pads)
                                   : at::replication_pad2d(x, pads);
  return BackToLayout(out, last);
}

Tensor Pad2dGrad(const Tensor& input, const Tensor& dout, IntArrayRef paddings,
                 double, const std::string& mode,
                 const std::string& data_format) {
  const bool last = program::ChannelsLast(data_format);
  Tensor x = ChannelsFirst(input, last), d = ChannelsFirst(dout, last);
  const Ints pads = Backwards(paddings);
  Tensor dx = mode == "constant"  ? Unpad(d, pads)
              : mode == "reflect" ? at::reflection_pad2d_backward(d, x, pads)
                                  : at::replication_pad2d_backward(d, x, pads);
  return BackToLayout(dx, last);
}

// ---- norms and angles

Two Norm(const Tensor& x, int64_t axis, double epsilon) {
  Tensor norm = at::sqrt(at::sum(x * x, {axis}, true) + epsilon);
  return {x / norm, norm};
}

Tensor NormGrad(const Tensor& out, const Tensor& norm, const Tensor& dout,
                int64_t axis, double) {
  return (dout - out * at::sum(out * dout, {axis}, true)) / norm;
}

Tensor RowNorms(const Tensor& x) {
  Tensor rows = x.flatten(1);
  return at::sqrt(at::sum(rows * rows, {1}, true));
}

Three CosSim(const Tensor& x, const Tensor& y) {
  Tensor x_norm = RowNorms(x), y_norm = RowNorms(y);
  Tensor dot = at::sum(x.flatten(1) * y.flatten(1), {1}, true);
  return {dot / (x_norm * y_norm), x_norm, y_norm};
}

Two CosSimGrad(const Tensor& x, const Tensor& y, const Tensor& out,
               const Tensor& x_norm, const Tensor& y_norm, const Tensor& dout,
               GradNeeds needs) {
  Tensor a = x.flatten(1), b = y.flatten(1);
  Tensor both = x_norm * y_norm;
  Tensor dx, dy;
  if (needs[0]) {
    dx = (dout * (b / both - a * out / (x_norm * x_norm))).reshape(x.sizes());
  }
  if (needs[1]) {
    dy = Unbroadcast(dout * (a / both - b * out / (y_norm * y_norm)), b)
             .reshape(y.sizes());
  }
  return {dx, dy};
}

std::optional<Tensor> Maybe(const Tensor& x) {
  if (!x.defined()) return std::nullopt;
  return x;
}

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

// ---- losses

Tensor LabelSmooth(const Tensor& x, const Tensor& prior, double epsilon) {
  if (prior.defined()) {
    return x * (1 - epsilon) + prior.reshape({-1}) * epsilon;
  }
  return x * (1 - epsilon) + epsilon / static_cast<double>(x.size(-1));
}

Two Huber(const Tensor& x, const Tensor& y, double delta) {
  Tensor r = y - x, size = at::abs(r);
  Tensor loss =
      at::where(size <= delta, r * r * 0.5, (size - delta * 0.5) * delta);
  return {loss, r};
}

Two HuberGrad(const Tensor& r, const Tensor& dout, double delta,
              GradNeeds needs) {
  Tensor dy = dout * r.clamp(-delta, delta);
  return {needs[0] ? -dy : Tensor(), needs[1] ? dy : Tensor()};
}

}  // namespace

void AddOlderKernels(KernelTable& k) {
  k.Add<Flatten2, [](const Tensor& x, const Tensor& dout, int64_t) {
    return dout.reshape(x.sizes());
  }>("flatten2");
  k.Add<OneHot>("one_hot");
  k.Add<Expand, ExpandGrad>("expand");
  k.Add<Pad, PadGrad>("pad");
  k.Add<Pad2d, Pad2dGrad>("pad2d");
  k.Add<Norm, NormGrad>("norm");
  k.Add<CosSim, CosSimGrad>("cos_sim");
  k.Add<LabelSmooth, [](const Tensor& dout, double epsilon) {
    return dout * (1 - epsilon);
  }>("label_smooth");
  k.Add<Huber, HuberGrad>("huber_loss");
  k.Add<InstanceNorm, InstanceNormGrad>("instance_norm");
  k.Add<[](const Tensor& x) {
    return x.is_sparse() ? x.coalesce() : x.clone();
  }>("merge_selected_rows");
  k.Add<[](const Tensor& x) {
    return x.is_sparse() ? x.to_dense() : x.clone();
  }>("get_tensor_from_selected_rows");
}

}  // namespace fleet::ops
