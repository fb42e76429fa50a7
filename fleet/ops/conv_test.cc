// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/conv.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

using at::Tensor;

Tensor Last(const Tensor& x) {
  return x.detach().permute({0, 2, 3, 1}).contiguous();
}
Tensor First(const Tensor& x) { return x.permute({0, 3, 1, 2}); }
bool Near(const Tensor& a, const Tensor& b) {
  return at::allclose(a, b, 1e-3, 1e-3);
}

const ConvShape kShapes[] = {
    {.batch = 2,
     .in_channels = 3,
     .out_channels = 8,
     .in_size = {9, 7},
     .out_size = {7, 5},
     .kernel = {3, 3}},
    {.batch = 3,
     .in_channels = 16,
     .out_channels = 16,
     .in_size = {8, 8},
     .out_size = {4, 4},
     .kernel = {3, 3},
     .stride = {2, 2},
     .padding_before = {1, 1},
     .padding_after = {0, 0}},
    {.batch = 1,
     .in_channels = 8,
     .out_channels = 12,
     .in_size = {6, 6},
     .out_size = {6, 6},
     .kernel = {3, 3},
     .dilation = {2, 2},
     .padding_before = {2, 2},
     .padding_after = {2, 2},
     .groups = 4},
    {.batch = 2,
     .in_channels = 16,
     .out_channels = 16,
     .in_size = {5, 5},
     .out_size = {5, 5},
     .kernel = {3, 3},
     .padding_before = {1, 1},
     .padding_after = {1, 1},
     .groups = 16},
    // A border around everything, and a filter as wide as its image: oneDNN
    // makes matrix products of their gradients.
    {.batch = 2,
     .in_channels = 3,
     .out_channels = 8,
     .in_size = {5, 4},
     .out_size = {7, 6},
     .kernel = {1, 1},
     .padding_before = {1, 1},
     .padding_after = {1, 1}},
    {.batch = 2,
     .in_channels = 1,
     .out_channels = 8,
     .in_size = {20, 16},
     .out_size = {18, 1},
     .kernel = {3, 16}},
    // Strides of a filter of one pixel, and channels that fill no vector.
    {.batch = 6,
     .in_channels = 2,
     .out_channels = 1,
     .in_size = {4, 4},
     .out_size = {2, 2},
     .kernel = {1, 1},
     .stride = {2, 2}},
    {.batch = 1,
     .in_channels = 3,
     .out_channels = 3,
     .in_size = {7, 9},
     .out_size = {7, 3},
     .kernel = {1, 1},
     .stride = {1, 3}},
};

TEST(PreparedConv, AgreesWithAtenForwardAndBackward) {
  if (!ConvIsFast()) return;  // then ATen convolves
  for (const ConvShape& s : kShapes) {
    Tensor x = at::randn({s.batch, s.in_channels, s.in_size[0], s.in_size[1]})
                   .requires_grad_();
    Tensor w = at::randn({s.out_channels, s.in_channels / s.groups, s.kernel[0],
                          s.kernel[1]})
                   .requires_grad_();
    Tensor b = at::randn({s.out_channels}).requires_grad_();
    Tensor padded =
        at::constant_pad_nd(x, {s.padding_before[1], s.padding_after[1],
                                s.padding_before[0], s.padding_after[0]});
    Tensor y = at::convolution(padded, w, b, s.stride, {0, 0}, s.dilation,
                               false, {0, 0}, s.groups);
    ASSERT_EQ(y.size(2), s.out_size[0]);
    Tensor dy = at::randn(y.sizes());
    y.backward(dy);

    Tensor in = Last(x), up = Last(dy), out = at::empty_like(up);
    const float* weights = w.const_data_ptr<float>();
    for (bool relu : {false, true}) {
      const auto conv = PreparedConv::Make(s, true, relu);
      if (conv == nullptr) continue;
      conv->Run(in.const_data_ptr<float>(), weights, b.const_data_ptr<float>(),
                out.mutable_data_ptr<float>());
      EXPECT_TRUE(Near(First(out), relu ? at::relu(y) : y));
    }
    if (const auto conv = PreparedConv::Make(s, false, false)) {
      conv->Run(in.const_data_ptr<float>(), weights, nullptr,
                out.mutable_data_ptr<float>());
      EXPECT_TRUE(Near(First(out) + b.reshape({1, -1, 1, 1}), y));
    }
    Tensor dx = at::empty_like(in), dw = at::empty_like(w);
    Tensor db = at::empty_like(b);
    if (const auto grad = PreparedConvInputGrad::Make(s)) {
      grad->Run(up.const_data_ptr<float>(), weights,
                dx.mutable_data_ptr<float>());
      EXPECT_TRUE(Near(First(dx), x.grad()));
    }
    if (const auto grad = PreparedConvFilterGrad::Make(s, true)) {
      grad->Run(in.const_data_ptr<float>(), up.const_data_ptr<float>(),
                dw.mutable_data_ptr<float>(), db.mutable_data_ptr<float>());
      EXPECT_TRUE(Near(dw, w.grad()));
      EXPECT_TRUE(Near(db, b.grad()));
    }
    if (const auto grad = PreparedConvFilterGrad::Make(s, false)) {
      dw.zero_();
      grad->Run(in.const_data_ptr<float>(), up.const_data_ptr<float>(),
                dw.mutable_data_ptr<float>(), nullptr);
      EXPECT_TRUE(Near(dw, w.grad()));
    }
  }
}

}  // namespace
}  // namespace fleet::ops
