// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/eager.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// Runs an op whose slots hold one tensor each, with default attributes.
Result<Tensors> Call(const char* name, std::vector<Tensor> inputs) {
  static const OpLibrary library;
  const Op* op = library.Find(name);
  std::vector<uint32_t> ends;
  for (size_t i = 1; i <= inputs.size(); ++i) ends.push_back(i);
  return RunEager(*op, inputs, ends, op->def->DefaultAttrs(), Context());
}

Tensor Leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

TEST(RunEager, GivesTheGradientsThatAutogradGives) {
  Tensor x = Leaf({4, 3}), w = Leaf({3, 5}), b = Leaf({5});
  Tensor out = (*Call("tanh", {(*Call("fc", {x, w, b}))[0]}))[0];
  Tensor dout = at::randn({4, 5});
  auto grads = torch::autograd::grad({out}, {x, w, b}, {dout});
  Tensor want = at::tanh(at::matmul(x, w) + b);
  auto want_grads = torch::autograd::grad({want}, {x, w, b}, {dout});
  EXPECT_TRUE(at::allclose(out, want, 1e-5, 1e-6));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(grads[i], want_grads[i], 1e-4, 1e-5)) << i;
  }
}

TEST(RunEager, DifferentiatesTwice) {
  Tensor x = Leaf({6});
  Tensor out = (*Call("tanh", {x}))[0];
  auto first = torch::autograd::grad({out}, {x}, {at::ones_like(out)},
                                     /*retain_graph=*/true,
                                     /*create_graph=*/true);
  auto second = torch::autograd::grad({first[0]}, {x}, {at::ones_like(x)});
  Tensor t = at::tanh(x.detach());
  EXPECT_TRUE(at::allclose(second[0], -2 * t * (1 - t * t), 1e-4, 1e-5));
}

TEST(RunEager, TakesTheFastPathAlsoWhenGradientsAreAskedFor) {
  Tensor x = Leaf({3});
  bool recording = true;
  {
    at::AutoDispatchBelowADInplaceOrView forward;
    recording = Recording();
    EXPECT_TRUE(FastOnCpu(x));
  }
  EXPECT_FALSE(recording);
  EXPECT_TRUE(Recording());
  EXPECT_FALSE(FastOnCpu(x));
}

TEST(RunEager, RecordsNothingWhenNobodyAsks) {
  Tensor x = at::randn({3});
  EXPECT_FALSE((*Call("tanh", {x}))[0].requires_grad());
  x.set_requires_grad(true);
  at::NoGradGuard guard;
  EXPECT_FALSE((*Call("tanh", {x}))[0].requires_grad());
}

TEST(RunEager, BackwardTwiceIsAnErrorThatSaysWhatToDo) {
  Tensor out = at::sum((*Call("tanh", {Leaf({3})}))[0]);
  torch::autograd::backward({out}, {});
  try {
    torch::autograd::backward({out}, {});
    FAIL() << "a freed graph was walked again";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("retain_graph"),
              std::string::npos);
  }
}

TEST(RunEager, AnErrorNamesTheOpItsInputsAndTheReason) {
  auto result = Call("matmul_v2", {at::randn({2, 3}), at::randn({4, 5})});
  ASSERT_FALSE(result.ok());
  std::string text = result.status().ToString();
  EXPECT_NE(text.find("matmul_v2(X float32 [2, 3], Y float32 [4, 5])"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace fleet::ops
