// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/layout.h"

namespace fleet::ops {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// A convolution as ATen takes it: channels first, paddings symmetric.
struct Plan {
  Tensor x;
  WindowLists window;
  bool channels_last;
};

Plan MakePlan(const Tensor& input, const Tensor& filter,
              at::IntArrayRef strides, at::IntArrayRef paddings,
              at::IntArrayRef dilations, const std::string& algorithm,
              const std::string& data_format) {
  TORCH_CHECK(input.dim() == filter.dim() && input.dim() > 2,
              "input and weight have different numbers of dimensions");
  TORCH_CHECK(input.scalar_type() == filter.scalar_type(), "input is ",
              input.scalar_type(), " but the weight is ", filter.scalar_type());
  Plan plan;
  plan.channels_last = program::ChannelsLast(data_format);
  plan.x = ChannelsFirst(input, plan.channels_last);
  plan.window = Lists(WindowsOver(plan.x, filter.sizes().slice(2), strides,
                                  dilations, paddings, algorithm));
  return plan;
}

std::optional<Tensor> MaybeBias(const Tensor& bias) {
  if (!bias.defined()) return std::nullopt;
  return bias.dim() == 1 ? bias : bias.reshape({-1});
}

at::OptionalIntArrayRef BiasSizes(const Tensor& bias,
                                  std::array<int64_t, 1>& sizes) {
  if (!bias.defined()) return std::nullopt;
  sizes[0] = bias.numel();
  return at::IntArrayRef(sizes);
}

// ---- forward convolution

Tensor Conv(const Tensor& input, const Tensor& filter, const Tensor& bias,
            at::IntArrayRef strides, at::IntArrayRef paddings,
            at::IntArrayRef dilations, int64_t groups,
            const std::string& algorithm, const std::string& data_format) {
  Plan plan = MakePlan(input, filter, strides, paddings, dilations, algorithm,
                       data_format);
  TORCH_CHECK(groups > 0 && plan.x.size(1) == filter.size(1) * groups,
              "channels do not fit");
  const WindowLists& w = plan.window;
  if (!w.before.empty()) plan.x = at::constant_pad_nd(plan.x, w.before);
  if (plan.x.device().is_cpu() && plan.x.size(1) == 1) {
    // One channel lies alike in both layouts. Told that it is the last,
    // LibTorch's oneDNN reads beyond an image in which a window with a stride
    // fits once.
    plan.x = plan.x.contiguous().select(1, 0).unsqueeze(1);
  }
  std::vector<int64_t> zeros(w.stride.size(), 0);
  Tensor out = at::convolution(plan.x, filter, MaybeBias(bias), w.stride,
                               w.padding, w.dilation, false, zeros, groups);
  return BackToLayout(out, plan.channels_last);
}

Three ConvGrad(const Tensor& input, const Tensor& filter, const Tensor& bias,
               const Tensor& dout, at::IntArrayRef strides,
               at::IntArrayRef paddings, at::IntArrayRef dilations,
               int64_t groups, const std::string& algorithm,
               const std::string& data_format, GradNeeds needs) {
  Plan plan = MakePlan(input, filter, strides, paddings, dilations, algorithm,
                       data_format);
  const WindowLists& w = plan.window;
  if (!w.before.empty()) plan.x = at::constant_pad_nd(plan.x, w.before);
  std::vector<int64_t> zeros(w.stride.size(), 0);
  std::array<int64_t, 1> bias_sizes;
  Tensor dy = ChannelsFirst(dout, plan.channels_last);
  Tensor own;  // the bias's gradient
  if (needs[2] && bias.defined() && !Recording()) {
    std::vector<int64_t> sizes(dy.dim() - 1, 1);
    sizes[0] = bias.numel();
    own = GpuSumTo(dy, sizes);
  }
  auto [dx, dw, db] = at::convolution_backward(
      dy, plan.x, filter, BiasSizes(bias, bias_sizes), w.stride, w.padding,
      w.dilation, false, zeros, groups,
      {needs[0], needs[1], needs[2] && bias.defined() && !own.defined()});
  if (own.defined()) db = own.reshape({-1});
  if (dx.defined()) {
    dx = BackToLayout(Unpad(dx, w.before), plan.channels_last);
  }
  if (db.defined() && bias.dim() != 1) db = db.reshape(bias.sizes());
  return {dx, dw, db};
}

// ---- transposed convolution

// ATen computes with the paddings that were taken off on both sides; what only
// one side loses is cut from the result.
Tensor ConvTranspose(const Tensor& input, const Tensor& filter,
                     const Tensor& bias, at::IntArrayRef strides,
                     at::IntArrayRef paddings, at::IntArrayRef dilations,
                     int64_t groups, const std::string& algorithm,
                     const std::string& data_format,
                     at::IntArrayRef output_padding) {
  Plan plan = MakePlan(input, filter, strides, paddings, dilations, algorithm,
                       data_format);
  TORCH_CHECK(groups > 0 && plan.x.size(1) == filter.size(0),
              "channels do not fit");
  const WindowLists& w = plan.window;
  size_t rank = w.stride.size();
  std::vector<int64_t> more = output_padding.empty()
                                  ? std::vector<int64_t>(rank, 0)
                                  : PerDimension(output_padding, rank);
  Tensor out = at::convolution(plan.x, filter, MaybeBias(bias), w.stride,
                               w.padding, w.dilation, true, more, groups);
  return BackToLayout(Unpad(out, w.before), plan.channels_last);
}

Three ConvTransposeGrad(const Tensor& input, const Tensor& filter,
                        const Tensor& bias, const Tensor& dout,
                        at::IntArrayRef strides, at::IntArrayRef paddings,
                        at::IntArrayRef dilations, int64_t groups,
                        const std::string& algorithm,
                        const std::string& data_format,
                        at::IntArrayRef output_padding, GradNeeds needs) {
  Plan plan = MakePlan(input, filter, strides, paddings, dilations, algorithm,
                       data_format);
  const WindowLists& w = plan.window;
  size_t rank = w.stride.size();
  std::vector<int64_t> more = output_padding.empty()
                                  ? std::vector<int64_t>(rank, 0)
                                  : PerDimension(output_padding, rank);
  Tensor dy = ChannelsFirst(dout, plan.channels_last);
  if (!w.before.empty()) dy = at::constant_pad_nd(dy, w.before);
  std::array<int64_t, 1> bias_sizes;
  auto [dx, dw, db] = at::convolution_backward(
      dy, plan.x, filter, BiasSizes(bias, bias_sizes), w.stride, w.padding,
      w.dilation, true, more, groups,
      {needs[0], needs[1], needs[2] && bias.defined()});
  if (dx.defined()) dx = BackToLayout(dx, plan.channels_last);
  if (db.defined() && bias.dim() != 1) db = db.reshape(bias.sizes());
  return {dx, dw, db};
}

}  // namespace

void AddConvKernels(KernelTable& k) {
  k.Add<Conv, ConvGrad>("conv1d");
  k.Add<Conv, ConvGrad>("conv2d");
  k.Add<Conv, ConvGrad>("depthwise_conv2d");
  k.Add<Conv, ConvGrad>("conv3d");
  k.Add<ConvTranspose, ConvTransposeGrad>("conv1d_transpose");
  k.Add<ConvTranspose, ConvTransposeGrad>("conv2d_transpose");
  k.Add<ConvTranspose, ConvTransposeGrad>("conv3d_transpose");
}

}  // namespace fleet::ops
