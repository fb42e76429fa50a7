// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace fleet::ops {
namespace {

using at::Tensor;

Tensor Leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// A graph with a leaf used twice, broadcasting, a diamond and a dead branch.
Tensor Build(const Tensor& x, const Tensor& w, const Tensor& b) {
  Tensor h = at::matmul(x, w) + b;
  Tensor left = h * h, right = h + w.sum();
  Tensor unused = left * 3;
  (void)unused;
  return at::sum(left * right);
}

TEST(Backward, GivesWhatLibTorchsEngineGives) {
  Tensor x = Leaf({4, 3}), w = Leaf({3, 5}), b = Leaf({5});
  Tensor loss = Build(x, w, b);
  auto want = torch::autograd::grad({loss}, {x, w, b}, {},
                                    /*retain_graph=*/true);
  Backward({loss}, {at::ones_like(loss)}, /*retain_graph=*/true);
  EXPECT_TRUE(at::allclose(x.grad(), want[0], 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(w.grad(), want[1], 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(b.grad(), want[2], 1e-4, 1e-5));
}

TEST(Backward, AddsToGradientsThatAreThere) {
  Tensor x = Leaf({3});
  for (int i = 0; i < 2; ++i) {
    Tensor loss = at::sum(x * 2);
    Backward({loss}, {at::ones_like(loss)}, false);
  }
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 4));
}

TEST(Backward, StartsFromSeveralOutputsAlsoWhenOneFeedsTheOther) {
  Tensor x = Leaf({3});
  Tensor y = x * 2, z = y * 5;
  Backward({y, z}, {at::ones_like(y), at::ones_like(z)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 12));
}

TEST(Backward, ALeafIsItsOwnGradient) {
  Tensor x = Leaf({2});
  Backward({x}, {at::ones_like(x) * 3}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 3));
}

TEST(Backward, GradientsOfTwoLeavesDoNotShareMemory) {
  Tensor x = Leaf({3}), y = Leaf({3});
  Tensor loss = at::sum(x + y);
  Backward({loss}, {at::ones_like(loss)}, false);
  x.mutable_grad().mul_(7);
  EXPECT_TRUE(at::allclose(y.grad(), at::ones_like(y)));
}

TEST(Backward, RunsHooks) {
  Tensor x = Leaf({3});
  x.register_hook([](Tensor grad) { return grad * 10; });
  Tensor y = x * 2;
  y.retain_grad();
  Tensor loss = at::sum(y);
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 20));
  EXPECT_TRUE(at::allclose(y.grad(), at::ones_like(y)));
}

TEST(Backward, FreesTheGraphUnlessAskedNotTo) {
  Tensor x = Leaf({3});
  Tensor loss = at::sum(x * x);
  Backward({loss}, {at::ones_like(loss)}, true);
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_ANY_THROW(Backward({loss}, {at::ones_like(loss)}, false));
}

TEST(Backward, WalksAGraphThatIsVeryDeep) {
  Tensor x = Leaf({1});
  Tensor y = x;
  for (int i = 0; i < 20000; ++i) y = y + 1;
  Backward({y}, {at::ones_like(y)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x)));
}

}  // namespace
}  // namespace fleet::ops
