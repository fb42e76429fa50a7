// SPDX-License-Identifier: Apache-2.0
//
// The formulas are tested in optim/; here, that tensors of every kind reach
// them and that the foreach form of each rule computes the same.

#include "fleet/ops/update/parameter_update.h"

#include <cmath>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Formatting.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::ops {
namespace {

using optim::UpdateRule;

struct Case {
  std::string name;
  UpdateRule rule;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

at::Tensor Ramp(at::IntArrayRef shape, double phase,
                at::ScalarType type = at::kFloat) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return at::sin(at::arange(n, at::kDouble) * 3.0 + phase)
      .reshape(shape)
      .to(type);
}

at::Tensor Parameter(at::IntArrayRef shape, double phase,
                     at::ScalarType type = at::kFloat) {
  return Ramp(shape, phase, type).requires_grad_();
}

// Rows 0 and 3 of a [5, 2] gradient; row 3 named twice.
at::Tensor SparseGradient(double scale = 1.0) {
  at::Tensor rows = at::tensor({3, 0, 3}, at::kLong).reshape({1, 3});
  return at::sparse_coo_tensor(rows, Ramp({3, 2}, 0.5) * scale, {5, 2});
}

void ExpectClose(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE((a.detach().to(at::kDouble) - b.detach().to(at::kDouble))
                .abs()
                .max()
                .item<double>(),
            tolerance)
      << a << "\n"
      << b;
}

class ParameterUpdateTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr double kLearningRate = 0.1;

  // Three steps over three parameters with one of everything: clip, decay,
  // multiplier, a sparse gradient.
  std::vector<at::Tensor> Train(Clip clip, UpdateBackend backend,
                                at::ScalarType type) {
    ParameterUpdater updater(GetParam().rule, clip, backend);
    std::vector<at::Tensor> parameters = {Parameter({3, 4}, 0.1, type),
                                          Parameter({7}, 0.2, type),
                                          Parameter({5, 2}, 0.3, type)};
    EXPECT_OK(updater.Add(parameters[0],
                          {.name = "w", .decay = {.l1 = 0.01, .l2 = 0.1}}));
    EXPECT_OK(updater.Add(parameters[1], {.name = "b",
                                          .learning_rate = 0.5,
                                          .decay = {.decoupled = 0.1},
                                          .clipped = false}));
    EXPECT_OK(updater.Add(parameters[2], {.name = "e"}));
    for (int t = 1; t <= 3; ++t) {
      parameters[0].mutable_grad() = Ramp({3, 4}, t, type) * 2;
      parameters[1].mutable_grad() = Ramp({7}, 2 * t, type);
      parameters[2].mutable_grad() = SparseGradient(t).to(type);
      EXPECT_OK(updater.Step(kLearningRate));
    }
    for (size_t i = 0; i < updater.size(); ++i) {
      for (size_t k = 0; k < updater.state_names().size(); ++k) {
        parameters.push_back(updater.state(i, k));
      }
    }
    return parameters;
  }
};

TEST_P(ParameterUpdateTest, ForeachComputesTheSame) {
  const std::vector<Clip> clips = {
      {},
      {.kind = Clip::kValue, .min = -0.5, .max = 0.25},
      {.kind = Clip::kNorm, .max_norm = 0.7},
      {.kind = Clip::kGlobalNorm, .max_norm = 0.7}};
  for (const Clip& clip : clips) {
    for (at::ScalarType type : {at::kFloat, at::kDouble}) {
      auto memory = Train(clip, UpdateBackend::kByDevice, type);
      auto foreach = Train(clip, UpdateBackend::kForeach, type);
      ASSERT_EQ(memory.size(), foreach.size());
      for (size_t i = 0; i < memory.size(); ++i) {
        SCOPED_TRACE(base::Concat("clip ", clip.kind, ", tensor ", i));
        ExpectClose(memory[i], foreach[i], type == at::kFloat ? 1e-5 : 1e-12);
      }
    }
  }
}

TEST_P(ParameterUpdateTest, SparseEqualsDenseWhereTheRuleWantsAllRows) {
  const UpdateRule& rule = GetParam().rule;
  ParameterUpdater updater(rule, {});
  at::Tensor sparse = Parameter({5, 2}, 0.3);
  at::Tensor dense = Parameter({5, 2}, 0.3);
  ASSERT_OK(updater.Add(sparse, {.name = "sparse"}));
  ASSERT_OK(updater.Add(dense, {.name = "dense"}));
  for (int t = 1; t <= 3; ++t) {
    sparse.mutable_grad() = SparseGradient(t);
    dense.mutable_grad() = SparseGradient(t).to_dense();
    ASSERT_OK(updater.Step(kLearningRate));
  }
  at::Tensor given = at::tensor({0, 3}, at::kLong);
  ExpectClose(sparse.index_select(0, given), dense.index_select(0, given),
              1e-6);
  at::Tensor others = at::tensor({1, 2, 4}, at::kLong);
  at::Tensor expected = optim::UpdatesOnlyGivenRows(rule)
                            ? Ramp({5, 2}, 0.3).index_select(0, others)
                            : dense.index_select(0, others);
  ExpectClose(sparse.index_select(0, others), expected, 1e-7);
}

TEST_P(ParameterUpdateTest, ReachesThroughStridesWithoutMovingTheParameter) {
  ParameterUpdater updater(GetParam().rule, {});
  at::Tensor plain = Parameter({4, 3}, 0.3);
  at::Tensor strided = Ramp({4, 3}, 0.3).t().contiguous().t().requires_grad_();
  const void* memory = strided.data_ptr();
  ASSERT_FALSE(strided.is_contiguous());
  ASSERT_OK(updater.Add(plain, {.name = "plain"}));
  ASSERT_OK(updater.Add(strided, {.name = "strided"}));
  for (int t = 1; t <= 3; ++t) {
    plain.mutable_grad() = Ramp({4, 3}, t);
    strided.mutable_grad() = Ramp({3, 4}, 0).t();
    strided.mutable_grad().copy_(Ramp({4, 3}, t));
    ASSERT_OK(updater.Step(kLearningRate));
  }
  EXPECT_EQ(strided.data_ptr(), memory);
  ExpectClose(strided, plain, 0.0);
}

TEST_P(ParameterUpdateTest, UpdatesHalvesThroughFloats) {
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    ParameterUpdater updater(GetParam().rule, {});
    at::Tensor half = Parameter({8}, 0.3, type);
    at::Tensor full = half.detach().to(at::kFloat).requires_grad_();
    ASSERT_OK(updater.Add(half, {.name = "half"}));
    ASSERT_OK(updater.Add(full, {.name = "full"}));
    for (int t = 1; t <= 4; ++t) {
      half.mutable_grad() = Ramp({8}, t, type);
      full.mutable_grad() = half.grad().to(at::kFloat);
      // Too small for a half to see in one step, but not in its float copy.
      ASSERT_OK(updater.Step(1e-4));
    }
    EXPECT_TRUE(at::equal(half.detach(), full.detach().to(type)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, ParameterUpdateTest,
    testing::ValuesIn(std::vector<Case>{
        {"Sgd", optim::Sgd{}},
        {"Momentum", optim::Momentum{}},
        {"Nesterov", optim::Momentum{.nesterov = true}},
        {"Adam", optim::Adam{}},
        {"LazyAdam", optim::Adam{.lazy = true}},
        {"Adagrad", optim::Adagrad{.initial = 0.1}},
        {"Adamax", optim::Adamax{}},
        {"RmsProp", optim::RmsProp{.momentum = 0.3}},
        {"RmsPropCentered",
         optim::RmsProp{.epsilon = 0.1, .momentum = 0.3, .centered = true}},
        {"Adadelta", optim::Adadelta{}},
        {"Lamb", optim::Lamb{}},
        {"LambAlwaysAdapting", optim::Lamb{.always_adapt = true}},
        {"Lars", optim::Lars{.coefficient = 0.3}},
        {"Ftrl", optim::Ftrl{.l1 = 0.1, .l2 = 0.1}},
        {"FtrlPower", optim::Ftrl{.l1 = 0.1, .l2 = 0.1, .power = -0.7}},
    }),
    [](const auto& info) { return info.param.name; });

TEST(ClipGradients, ClipsDenseAndSparseGradients) {
  const std::vector<at::Tensor> gradients = {
      at::tensor({3.0, -4.0}), at::Tensor(),
      at::sparse_coo_tensor(at::tensor({1, 1}, at::kLong).reshape({1, 2}),
                            at::tensor({6.0, 6.0}), {3})};
  auto clip = [&](Clip clip) { return ClipGradients(clip, gradients).value(); };

  auto by_value = clip({.kind = Clip::kValue, .min = -1.0, .max = 2.0});
  ExpectClose(by_value[0], at::tensor({2.0, -1.0}), 0.0);
  EXPECT_FALSE(by_value[1].defined());
  EXPECT_TRUE(by_value[2].is_sparse());
  ExpectClose(by_value[2].to_dense(), at::tensor({0.0, 2.0, 0.0}), 0.0);

  auto by_norm = clip({.kind = Clip::kNorm, .max_norm = 1.0});
  ExpectClose(by_norm[0], at::tensor({0.6, -0.8}), 1e-7);
  ExpectClose(by_norm[2].to_dense(), at::tensor({0.0, 1.0, 0.0}), 1e-7);

  // 9 + 16 + 144 = 13^2
  auto by_global = clip({.kind = Clip::kGlobalNorm, .max_norm = 1.3});
  ExpectClose(by_global[0], at::tensor({0.3, -0.4}), 1e-7);
  ExpectClose(by_global[2].to_dense(), at::tensor({0.0, 1.2, 0.0}), 1e-7);
  ExpectClose(gradients[0], at::tensor({3.0, -4.0}), 0.0);
}

// One parameter of the group decays by L2: not the other.
TEST(ParameterUpdater, AnInfiniteValueThatDoesNotDecayStaysInfinite) {
  for (UpdateBackend backend :
       {UpdateBackend::kByDevice, UpdateBackend::kForeach}) {
    ParameterUpdater updater(optim::Sgd{}, {}, backend);
    at::Tensor p =
        at::full({2}, std::numeric_limits<double>::infinity()).requires_grad_();
    at::Tensor q = Parameter({2}, 1.0);
    ASSERT_OK(updater.Add(p, {.name = "p", .decay = {.l1 = 0.5}}));
    ASSERT_OK(updater.Add(q, {.name = "q", .decay = {.l2 = 0.5}}));
    p.mutable_grad() = at::ones({2});
    q.mutable_grad() = at::ones({2});
    const at::Tensor before = p.detach().clone();
    ASSERT_OK(updater.Step(0.5));
    EXPECT_TRUE(at::equal(p.detach(), before));
  }
}

TEST(ParameterUpdater, UpdatesInPlaceAndTellsAutograd) {
  ParameterUpdater updater(optim::Sgd{}, {});
  at::Tensor p = Parameter({3}, 0.0);
  const at::Tensor before = p.detach().clone();
  const void* memory = p.data_ptr();
  const auto version = p._version();
  ASSERT_OK(updater.Add(p, {.name = "p"}));
  p.mutable_grad() = at::ones({3});
  ASSERT_OK(updater.Step(0.5));
  EXPECT_EQ(p.data_ptr(), memory);
  EXPECT_GT(p._version(), version);
  ExpectClose(p, before - 0.5, 1e-7);
  ExpectClose(p.grad(), at::ones({3}), 0.0);
}

TEST(ParameterUpdater, LeavesParametersWithoutGradientAlone) {
  ParameterUpdater updater(optim::Adam{}, {});
  at::Tensor none = Parameter({3}, 0.0);
  at::Tensor frozen = Ramp({3}, 0.0);
  ASSERT_OK(updater.Add(none, {.name = "none"}));
  ASSERT_OK(updater.Add(frozen, {.name = "frozen"}));
  frozen.mutable_grad() = at::ones({3});
  ASSERT_OK(updater.Step(0.5));
  EXPECT_TRUE(at::equal(none.detach(), Ramp({3}, 0.0)));
  EXPECT_TRUE(at::equal(frozen, Ramp({3}, 0.0)));
  EXPECT_FALSE(updater.state(0, 0).defined());
}

TEST(ParameterUpdater, TakesTheGlobalNormOverDenseAndSparseTogether) {
  ParameterUpdater updater(optim::Sgd{},
                           {.kind = Clip::kGlobalNorm, .max_norm = 1.0});
  at::Tensor dense = at::zeros({2}).requires_grad_();
  at::Tensor wide = at::zeros({2}, at::kDouble).requires_grad_();
  at::Tensor sparse = at::zeros({5, 2}).requires_grad_();
  at::Tensor apart = at::zeros({2}).requires_grad_();
  ASSERT_OK(updater.Add(dense, {.name = "dense"}));
  ASSERT_OK(updater.Add(wide, {.name = "wide"}));
  ASSERT_OK(updater.Add(sparse, {.name = "sparse"}));
  ASSERT_OK(updater.Add(apart, {.name = "apart", .clipped = false}));
  dense.mutable_grad() = at::tensor({1.0, 2.0}, at::kFloat);
  wide.mutable_grad() = at::tensor({2.0, 0.0}, at::kDouble);
  // Row 1 is named twice and counts once, with 3 + 1 = 4.
  sparse.mutable_grad() = at::sparse_coo_tensor(
      at::tensor({1, 1}, at::kLong).reshape({1, 2}),
      at::tensor({3.0, 0.0, 1.0, 0.0}, at::kFloat).reshape({2, 2}), {5, 2});
  apart.mutable_grad() = at::tensor({100.0, 0.0}, at::kFloat);
  ASSERT_OK(updater.Step(1.0));
  // 1 + 4 + 4 + 16 = 25: everything is divided by 5.
  ExpectClose(dense, at::tensor({-0.2, -0.4}), 1e-7);
  ExpectClose(wide, at::tensor({-0.4, 0.0}), 1e-7);
  EXPECT_NEAR(sparse[1][0].item<float>(), -0.8, 1e-7);
  EXPECT_NEAR(apart[0].item<float>(), -100.0, 1e-5);
}

TEST(ParameterUpdater, RescalesAfterClipAndDecay) {
  ParameterUpdater updater(optim::Sgd{},
                           {.kind = Clip::kValue, .min = -1.0, .max = 1.0});
  at::Tensor p = at::full({1}, 2.0).requires_grad_();
  ASSERT_OK(
      updater.Add(p, {.name = "p", .decay = {.l2 = 0.25}, .rescale = 0.5}));
  p.mutable_grad() = at::full({1}, 8.0);
  ASSERT_OK(updater.Step(1.0));
  EXPECT_NEAR(p.item<float>(), 2.0 - 0.5 * (1.0 + 0.25 * 2.0), 1e-7);
}

TEST(ParameterUpdater, TakesGradientsFromElsewhere) {
  ParameterUpdater updater(optim::Sgd{}, {});
  at::Tensor a = at::zeros({1}).requires_grad_();
  at::Tensor b = at::zeros({1}).requires_grad_();
  ASSERT_OK(updater.Add(a, {.name = "a"}));
  ASSERT_OK(updater.Add(b, {.name = "b"}));
  a.mutable_grad() = at::ones({1});
  ASSERT_OK(
      updater.Step(1.0, std::vector<at::Tensor>{at::Tensor(), at::ones({1})}));
  EXPECT_EQ(a.item<float>(), 0.0f);
  EXPECT_EQ(b.item<float>(), -1.0f);
  EXPECT_EQ(updater.Step(1.0, std::vector<at::Tensor>(1)).code(),
            StatusCode::kInvalidArgument);
}

TEST(ParameterUpdater, ReleasesOrZeroesGradients) {
  ParameterUpdater updater(optim::Sgd{}, {});
  at::Tensor p = at::zeros({2}).requires_grad_();
  ASSERT_OK(updater.Add(p, {.name = "p"}));
  p.mutable_grad() = at::ones({2});
  const void* memory = p.grad().data_ptr();
  updater.ClearGradients(/*set_to_zero=*/true);
  EXPECT_EQ(p.grad().data_ptr(), memory);
  EXPECT_EQ(p.grad().sum().item<float>(), 0.0f);
  updater.ClearGradients(/*set_to_zero=*/false);
  EXPECT_FALSE(p.grad().defined());
}

TEST(ParameterUpdater, GivesItsStateAndTakesItBack) {
  at::Tensor p = Parameter({3}, 0.0);
  at::Tensor q = Parameter({3}, 0.0);
  ParameterUpdater first(optim::Adam{}, {});
  ParameterUpdater second(optim::Adam{}, {});
  ASSERT_OK(first.Add(p, {.name = "p"}));
  ASSERT_OK(second.Add(q, {.name = "q"}));
  auto step = [](ParameterUpdater& updater, at::Tensor& parameter, double t) {
    parameter.mutable_grad() = Ramp({3}, t);
    return updater.Step(0.1);
  };
  ASSERT_OK(step(first, p, 1));
  ASSERT_OK(step(first, p, 2));
  q.detach().copy_(p.detach());
  for (size_t k = 0; k < first.state_names().size(); ++k) {
    ASSERT_OK(second.SetState(0, k, first.state(0, k)));
  }
  ASSERT_OK(step(first, p, 3));
  ASSERT_OK(step(second, q, 3));
  EXPECT_TRUE(at::equal(p.detach(), q.detach()));
}

TEST(ParameterUpdater, RefusesWhatDoesNotFit) {
  ParameterUpdater updater(optim::Adam{}, {});
  at::Tensor p = Parameter({3}, 0.0);
  ASSERT_OK(updater.Add(p, {.name = "linear_0.w_0"}));
  EXPECT_EQ(updater.Add(at::zeros({2}, at::kLong), {.name = "ids"}).message(),
            "optimizer: parameter ids is of type Long, not of floating point");
  EXPECT_EQ(updater.Add(at::Tensor(), {.name = "x"}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      updater.SetState(0, 0, at::zeros({2, 2})).message(),
      "optimizer: moment1 of linear_0.w_0 has shape [2, 2], expected [3]");
  EXPECT_EQ(updater.SetState(0, 2, at::zeros({2})).message(),
            "optimizer: beta1_pow_acc of linear_0.w_0 has shape [2], expected "
            "[1]");
  EXPECT_FALSE(updater.state(0, 0).defined());
  const at::Tensor before = p.detach().clone();
  EXPECT_EQ(updater.Step(0.1, std::vector<at::Tensor>{at::ones({4})}).message(),
            "optimizer: the gradient of linear_0.w_0 has shape [4], the "
            "parameter [3]");
  EXPECT_TRUE(at::equal(p.detach(), before));
}

TEST(ParameterUpdater, FollowsAParameterThatWasReplaced) {
  ParameterUpdater updater(optim::Momentum{}, {});
  at::Tensor p = Parameter({3}, 0.0);
  ASSERT_OK(updater.Add(p, {.name = "p"}));
  p.mutable_grad() = at::ones({3});
  ASSERT_OK(updater.Step(0.1));
  at::Tensor wide = p.detach().to(at::kDouble).requires_grad_();
  ASSERT_OK(updater.Replace(0, wide));
  EXPECT_EQ(updater.state(0, 0).scalar_type(), at::kDouble);
  wide.mutable_grad() = at::ones({3}, at::kDouble);
  ASSERT_OK(updater.Step(0.1));
  // v = 0.9 * 1 + 1
  ExpectClose(wide, p.detach() - 0.19, 1e-7);
  EXPECT_EQ(updater.Replace(0, Parameter({4}, 0.0)).code(),
            StatusCode::kInvalidArgument);
}

TEST(ParameterUpdater, TakesAHalfWrittenBySomebodyElseAsItIs) {
  ParameterUpdater updater(optim::Sgd{}, {});
  at::Tensor p = at::zeros({1}, at::kHalf).requires_grad_();
  ASSERT_OK(updater.Add(p, {.name = "p"}));
  p.mutable_grad() = at::ones({1}, at::kHalf);
  ASSERT_OK(updater.Step(1.0));
  p.detach().fill_(5.0);
  ASSERT_OK(updater.Step(1.0));
  EXPECT_EQ(p.item<float>(), 4.0f);
}

}  // namespace
}  // namespace fleet::ops
