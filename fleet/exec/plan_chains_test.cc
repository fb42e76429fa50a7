// SPDX-License-Identifier: Apache-2.0

// Elementwise operations that run as one pass give what they give one by one.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/exec_plan_fixtures.h"

namespace fleet::exec {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

bool Exactly(const Tensor& got, const Tensor& wanted) {
  return at::equal(got, wanted);
}

// Element by element: 1e-6 relative, or absolute below 1.
bool Closely(const Tensor& got, const Tensor& wanted) {
  return got.sizes() == wanted.sizes() &&
         at::isclose(got, wanted, 1e-6, 1e-6, /*equal_nan=*/true)
             .all()
             .item<bool>();
}

// All elements together: 1e-6 by norm, where each counts at least as one.
// Gradients are sums of terms of that size that may cancel, and those by tanh
// have the rounding error of 1 - tanh(x)^2, times x^2, however small they are.
bool CloselyByNorm(const Tensor& got, const Tensor& wanted) {
  const double size = std::max(wanted.norm().item<double>(),
                               std::sqrt(static_cast<double>(got.numel())));
  return got.sizes() == wanted.sizes() &&
         (got - wanted).norm().item<double>() <= 1e-6 * size;
}

class ChainTest : public PlanTest {
 protected:
  ChainTest() { agrees_ = Exactly; }

  std::string Scaled(const std::string& x, double scale, double bias = 0,
                     bool after = true) {
    return Unary("scale", x,
                 {{"scale", Float(scale)},
                  {"bias", Float(bias)},
                  {"bias_after_scale", Bool(after)}});
  }
  std::string Total(const std::string& x) {
    return Unary("reduce_sum", x, {{"reduce_all", Bool(true)}});
  }
  std::string Add(const std::string& x, const std::string& y) {
    return Binary("elementwise_add", x, y);
  }
  std::string Mul(const std::string& x, const std::string& y) {
    return Binary("elementwise_mul", x, y);
  }
  // x / 2 * (1 + tanh(c (x + k x^3))), op by op.
  std::string Gelu(const std::string& x) {
    std::string cube = Mul(Mul(x, x), x);
    std::string t = Unary(
        "tanh", Scaled(Add(x, Scaled(cube, 0.044715)), 0.7978845608028654));
    return Mul(Scaled(x, 0.5), Scaled(t, 1, 1));
  }
  // How many nodes the last plan of Compare runs.
  static size_t NumNodes(const Schedule* schedule) {
    const Plan* plan = schedule->last_plan();
    return plan == nullptr ? 0 : plan->num_direct() + plan->num_general();
  }
};

struct Operation {
  std::string type;
  AttrMap attrs;
  std::function<Tensor(const Tensor&)> aten;
  bool exact = true;
};

std::vector<Operation> Operations() {
  using T = const Tensor&;
  return {
      {"relu", {}, [](T x) { return at::relu(x); }},
      {"tanh", {}, [](T x) { return at::tanh(x); }, false},
      {"sigmoid", {}, [](T x) { return at::sigmoid(x); }, false},
      {"exp", {}, [](T x) { return at::exp(x); }, false},
      {"log", {}, [](T x) { return at::log(x); }, false},
      {"sqrt", {}, [](T x) { return at::sqrt(x); }, false},
      {"rsqrt", {}, [](T x) { return at::rsqrt(x); }},
      {"reciprocal", {}, [](T x) { return at::reciprocal(x); }},
      {"square", {}, [](T x) { return x * x; }},
      {"abs", {}, [](T x) { return at::abs(x); }},
      {"sign", {}, [](T x) { return at::sign(x); }},
      {"silu", {}, [](T x) { return at::silu(x); }, false},
      {"gelu",
       {{"approximate", Bool(true)}},
       [](T x) { return at::gelu(x, "tanh"); },
       false},
      {"clip",
       {{"min", Float(-0.5)}, {"max", Float(1.25)}},
       [](T x) { return at::clamp(x, -0.5, 1.25); }},
      {"scale",
       {{"scale", Float(1.7)}, {"bias", Float(0.3)}},
       [](T x) { return x * 1.7 + 0.3; }},
      {"scale",
       {{"scale", Float(1.7)},
        {"bias", Float(0.3)},
        {"bias_after_scale", Bool(false)}},
       [](T x) { return (x + 0.3) * 1.7; }},
      {"scale", {{"scale", Float(-2)}}, [](T x) { return x * -2; }},
      {"scale", {{"bias", Float(0.1)}}, [](T x) { return x + 0.1; }},
      {"scale", {}, [](T x) { return x; }},
      {"pow", {{"factor", Float(0)}}, [](T x) { return at::pow(x, 0.0); }},
      {"pow",
       {{"factor", Float(0.5)}},
       [](T x) { return at::pow(x, 0.5); },
       false},
      {"pow", {{"factor", Float(1)}}, [](T x) { return at::pow(x, 1.0); }},
      {"pow", {{"factor", Float(2)}}, [](T x) { return at::pow(x, 2.0); }},
      {"pow", {{"factor", Float(3)}}, [](T x) { return at::pow(x, 3.0); }},
      {"pow",
       {{"factor", Float(4)}},
       [](T x) { return at::pow(x, 4.0); },
       false},
      {"pow",
       {{"factor", Float(-3)}},
       [](T x) { return at::pow(x, -3.0); },
       false},
      {"pow", {{"factor", Float(-1)}}, [](T x) { return at::pow(x, -1.0); }},
      {"pow",
       {{"factor", Float(-2)}},
       [](T x) { return at::pow(x, -2.0); },
       false},
      {"pow",
       {{"factor", Float(-0.5)}},
       [](T x) { return at::pow(x, -0.5); },
       false},
  };
}

// (op(x + y) - y) / y, against the same by ATen and by a plain run; positive
// numbers for those that want them.
TEST_F(ChainTest, EveryFunctionOfOneElement) {
  for (const Operation& operation : Operations()) {
    SCOPED_TRACE(operation.type + " with " +
                 std::to_string(operation.attrs.size()) + " attributes");
    Clear();
    Data("x", {-1, 5});
    Data("y", {-1, 5});
    std::string h = Unary(operation.type, Add("x", "y"), operation.attrs);
    h = Binary("elementwise_sub", h, "y");
    h = Binary("elementwise_div", h, "y");
    agrees_ = operation.exact ? Exactly : Closely;
    const bool positive = operation.type == "log" || operation.type == "sqrt" ||
                          operation.type == "rsqrt" || operation.type == "pow";
    Tensors values = {at::randn({205, 5}), at::rand({205, 5}) + 0.5};
    if (positive) values[0] = values[0].abs();
    Schedule* schedule =
        Compare([&] { return values; }, {"x", "y"}, {h}, /*steps=*/3);
    ASSERT_NE(schedule->last_plan(), nullptr);
    EXPECT_EQ(NumNodes(schedule), 1);
    EXPECT_EQ(schedule->last_plan()->num_general(), 0);
    Scope scope;
    ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
    const Tensor wanted =
        (operation.aten(values[0] + values[1]) - values[1]) / values[1];
    EXPECT_TRUE(agrees_(got[0], wanted)) << (got[0] - wanted).abs().max();
  }
}

TEST_F(ChainTest, TheirGradients) {
  for (const Operation& operation : Operations()) {
    if (operation.type == "sign") continue;  // there is nothing to see
    SCOPED_TRACE(operation.type + " with " +
                 std::to_string(operation.attrs.size()) + " attributes");
    Clear();
    Data("x", {-1, 5});
    Data("y", {-1, 5});
    std::string h = Unary(operation.type, Mul("x", "y"), operation.attrs);
    std::string loss = Total(Mul(h, "y"));
    Backward(loss);
    agrees_ = operation.exact ? Exactly : CloselyByNorm;
    const bool positive = operation.type == "log" || operation.type == "sqrt" ||
                          operation.type == "rsqrt" ||
                          operation.type == "reciprocal" ||
                          operation.type == "pow";
    Tensors values = {at::randn({205, 5}), at::rand({205, 5}) + 0.5};
    if (positive) values[0] = values[0].abs() + 0.1;
    Schedule* schedule = Compare([&] { return values; }, {"x", "y"},
                                 {"x@GRAD", "y@GRAD"}, /*steps=*/3);
    ASSERT_NE(schedule->last_plan(), nullptr);
    EXPECT_EQ(schedule->last_plan()->num_general(), 0);
    EXPECT_LE(NumNodes(schedule), 3);  // forward, sum, backward
    Tensor x = values[0].clone().set_requires_grad(true);
    Tensor y = values[1].clone().set_requires_grad(true);
    (operation.aten(x * y) * y).sum().backward();
    Scope scope;
    ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
    EXPECT_TRUE(CloselyByNorm(got[0], x.grad()));
    EXPECT_TRUE(CloselyByNorm(got[1], y.grad()));
  }
}

TEST_F(ChainTest, EveryFunctionOfTwoAndItsGradients) {
  using Aten = Tensor (*)(const Tensor&, const Tensor&);
  const std::pair<std::string, Aten> functions[] = {
      {"add", [](const Tensor& x, const Tensor& y) { return x + y; }},
      {"sub", [](const Tensor& x, const Tensor& y) { return x - y; }},
      {"mul", [](const Tensor& x, const Tensor& y) { return x * y; }},
      {"div", [](const Tensor& x, const Tensor& y) { return x / y; }},
      {"max",
       [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); }},
      {"min",
       [](const Tensor& x, const Tensor& y) { return at::minimum(x, y); }},
  };
  for (const auto& [name, aten] : functions) {
    SCOPED_TRACE(name);
    Clear();
    Data("x", {-1, 7});
    Data("y", {-1, 7});
    std::string a = Binary("elementwise_" + name, Scaled("x", 1.5), "y");
    std::string b = Binary("elementwise_" + name, "y", Unary("square", a));
    std::string loss = Total(Mul(b, b));
    Backward(loss);
    const Tensors values = {at::rand({300, 7}) + 0.2, at::rand({300, 7}) + 0.4};
    Schedule* schedule = Compare([&] { return values; }, {"x", "y"},
                                 {a, b, "x@GRAD", "y@GRAD"}, /*steps=*/3);
    ASSERT_NE(schedule->last_plan(), nullptr);
    EXPECT_EQ(schedule->last_plan()->num_general(), 0);
    EXPECT_LE(NumNodes(schedule), 3);
    Tensor x = values[0].clone().set_requires_grad(true);
    Tensor y = values[1].clone().set_requires_grad(true);
    Tensor inner = aten(x * 1.5, y);
    Tensor outer = aten(y, inner * inner);
    (outer * outer).sum().backward();
    Scope scope;
    ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
    EXPECT_TRUE(at::equal(got[1], outer));
    EXPECT_TRUE(at::isclose(got[2], x.grad(), 1e-4, 1e-4).all().item<bool>());
    EXPECT_TRUE(at::isclose(got[3], y.grad(), 1e-4, 1e-4).all().item<bool>());
  }
}

TEST_F(ChainTest, NanAndInfinityGoTheSameWay) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Data("x", {-1});
  Data("y", {-1});
  std::vector<std::string> fetches;
  for (const char* type : {"max", "min", "add", "div"}) {
    std::string h = Binary(std::string("elementwise_") + type, "x", "y");
    fetches.push_back(Unary("abs", h));
    fetches.push_back(Unary("relu", h));
    fetches.push_back(
        Unary("clip", h, {{"min", Float(-1)}, {"max", Float(1)}}));
  }
  agrees_ = [](const Tensor& got, const Tensor& wanted) {
    return at::isclose(got, wanted, 0, 0, true).all().item<bool>();
  };
  const std::vector<float> special = {0, -0.0f, 1, -1, inf, -inf, nan};
  std::vector<float> x, y;
  for (float a : special) {
    for (float b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const Tensors values = {at::tensor(x), at::tensor(y)};
  Schedule* schedule = Compare([&] { return values; }, {"x", "y"}, fetches, 3);
  EXPECT_EQ(NumNodes(schedule), 4);
}

// Sizes around those of vectors and of blocks, and enough for several threads.
TEST_F(ChainTest, EverySizeAndEveryThread) {
  Data("x", {-1});
  std::string h = Gelu("x");
  std::string loss = Unary("mean", Unary("square", Add(h, "x")));
  Backward(loss);
  int64_t size = 1;
  auto feed = [&] { return Tensors{at::randn({size})}; };
  Schedule* schedule = nullptr;
  const int threads = at::get_num_threads();
  for (int n : {1, 3}) {
    at::set_num_threads(n);
    for (int64_t next : {1, 2, 7, 17, 1023, 1024, 1025, 2048, 5000, 150001}) {
      size = next;
      SCOPED_TRACE(size);
      schedule = Compare(feed, {"x"}, {h, "x@GRAD"}, 3);
      ASSERT_NE(schedule->last_plan(), nullptr);
      // Nobody waits for the mean, so its gradient comes in the same pass.
      EXPECT_EQ(NumNodes(schedule), size == 1 ? 2 : 1);
    }
  }
  // One schedule for all of them, with a plan for each.
  for (int64_t next : {5, 5, 1030, 1030, 5, 1030}) {
    size = next;
    Scope scope;
    Tensors values = feed();
    ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
    EXPECT_TRUE(Closely(got[0], at::gelu(values[0], "tanh")));
  }
  at::set_num_threads(threads);
}

// What lies between needs no memory.
TEST_F(ChainTest, TakesMemoryOnlyForWhatOthersRead) {
  Data("x", {-1, 1000});
  std::string h = "x";
  for (int i = 0; i < 5; ++i) h = Unary("tanh", Gelu(h));
  Schedule* schedule =
      Compare([] { return Tensors{at::randn({100, 1000})}; }, {"x"}, {h}, 3);
  EXPECT_EQ(NumNodes(schedule), 1);
  EXPECT_LE(schedule->last_plan()->arena_bytes(), 100 * 1000 * 4 + 64);
}

// Backward computes cheap values of forward again, from what is there anyway.
TEST_F(ChainTest, CheapValuesAreComputedAgain) {
  agrees_ = Near;  // of the mean
  Data("x", {-1, 100});
  std::string h = Gelu(Gelu("x"));
  // Backward cannot begin before the product is there.
  std::string p = Binary("mul", h, Parameter("w", {100, 1}));
  std::string loss = Unary("mean", Unary("square", p));
  Backward(loss);
  auto values = [&](int64_t rows) {
    Schedule* schedule =
        Compare([&] { return Tensors{at::randn({rows, 100})}; }, {"x"},
                {loss, "x@GRAD"}, 3);
    return schedule->last_plan()->arena_bytes() / (rows * 100 * 4.0);
  };
  const double small = values(100), large = values(1000);
  EXPECT_LT(large, small);
  // Both tanh, what goes into the product, its gradient and that of x.
  EXPECT_LE(large, 5.1);
}

// The gradient of an operand that was spread over nothing is zero.
TEST_F(ChainTest, NothingIsSpreadOverEmptyValues) {
  Data("x", {2, 0});
  block().Find("x")->stop_gradient = true;
  std::string h = Binary("elementwise_sub", "x", Parameter("w", {1, 1}));
  std::string loss = Total(Unary("tanh", h));
  Backward(loss);
  Sgd(0.1);
  Compare([] { return Tensors{at::randn({2, 0})}; }, {"x"}, {loss, "w@GRAD"});
}

// Gradients of what is spread, and the loss, are sums at the end of the pass.
TEST_F(ChainTest, SumsArePartOfThePass) {
  agrees_ = Near;
  Data("x", {-1, 70});
  block().Find("x")->stop_gradient = true;
  std::string h = Binary("elementwise_sub", "x", Parameter("b", {70}));
  h = Mul(Unary("tanh", Mul(h, Parameter("w", {70}))), Parameter("s", {1}));
  h = Add(h, Parameter("column", {1000, 1}));
  std::string loss = Unary("mean", Unary("square", Add(h, "x")));
  Backward(loss);
  Sgd(0.1);
  const Tensors values = {at::randn({1000, 70})};
  const int threads = at::get_num_threads();
  std::vector<Tensors> results;
  for (int n : {1, 4}) {
    at::set_num_threads(n);
    Schedule* schedule =
        Compare([&] { return values; }, {"x"},
                {loss, "b@GRAD", "w@GRAD", "s@GRAD", "column@GRAD"});
    ASSERT_NE(schedule->last_plan(), nullptr);
    EXPECT_EQ(NumNodes(schedule), 2);  // the other one is the update
    EXPECT_LE(schedule->last_plan()->arena_bytes(), 1000 * 70);
    Scope scope;
    for (const auto& [name, tensor] : kept_) scope.Get(name) = tensor.clone();
    ASSERT_OK_AND_ASSIGN(results.emplace_back(),
                         schedule->Run(scope, values, {}));
  }
  at::set_num_threads(threads);
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
  }
}

// One after the other, so many floats are some 1e-6 away from their sum.
TEST_F(ChainTest, SumsOfManyRowsAreNear) {
  agrees_ = Near;
  constexpr int64_t kRows = 200000, kColumns = 16;
  Data("x", {-1, kColumns});
  block().Find("x")->stop_gradient = true;
  Data("d", {-1, kColumns});
  block().Find("d")->stop_gradient = true;
  std::string h = Binary("elementwise_sub", "x", Parameter("b", {kColumns}));
  std::string loss = Total(Mul(h, "d"));
  Backward(loss);
  const Tensors values = {at::randn({kRows, kColumns}),
                          at::rand({kRows, kColumns}) + 0.5};
  Schedule* schedule =
      Compare([&] { return values; }, {"x", "d"}, {"b@GRAD"}, /*steps=*/2);
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_EQ(schedule->last_plan()->num_general(), 0);
  Scope scope;
  for (const auto& [name, tensor] : kept_) scope.Get(name) = tensor.clone();
  ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
  const Tensor wanted = -values[1].to(at::kDouble).sum({0});
  const Tensor error = ((got[0].to(at::kDouble) - wanted) / wanted).abs();
  EXPECT_LE(error.max().item<double>(), 4e-7);
}

// A sum is not there before the pass is done.
TEST_F(ChainTest, SumsThatAreReadAgain) {
  agrees_ = Near;
  Data("x", {-1, 6});
  std::string centred = Binary("elementwise_sub", "x", Unary("mean", "x"));
  std::string square = Unary("mean", Unary("square", centred));
  std::string y = Binary("elementwise_div", centred, Unary("sqrt", square));
  std::string loss = Total(Mul(y, Parameter("w", {6})));
  Backward(loss);
  Compare([] { return Tensors{at::randn({50, 6})}; }, {"x"},
          {y, loss, "w@GRAD"});
}

TEST_F(ChainTest, WhatIsComputedAgainSeesTheOldParameters) {
  agrees_ = Near;
  Data("x", {-1, 300});
  std::string w = Parameter("w", {300, 300});  // large: updated early
  std::string a = Mul("x", w);
  std::string b = Unary("tanh", a);
  std::string loss = Total(Mul(b, a));
  Backward(loss);
  Sgd(0.25);
  std::string c = Unary("tanh", Add(a, b));  // after the update
  Schedule* schedule =
      Compare([] { return Tensors{at::randn({300, 300})}; }, {"x"}, {c, loss});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

TEST_F(ChainTest, OperandsThatAreSpread) {
  for (int64_t inner : {1, 4, 37, 1024, 1500}) {
    SCOPED_TRACE(inner);
    Clear();
    Data("x", {-1, 3, inner});
    std::string row = Parameter("row", {inner});
    std::string middle = Parameter("middle", {3});
    std::string column = Parameter("column", {3, 1});
    std::string one = Parameter("one", {1});
    std::string h = Mul("x", row);
    h = Add(h, row);
    h = Binary("elementwise_add", h, middle, {{"axis", Int(1)}});
    h = Mul(h, column);
    h = Unary("tanh", h);
    h = Mul(h, one);
    h = Binary("elementwise_div", h, Unary("exp", row));
    h = Binary("elementwise_max", h, one);
    h = Binary("elementwise_sub", one, h);
    h = Binary("elementwise_div", one, Scaled(Unary("square", h), 1, 2));
    Schedule* schedule = Compare(
        [&] { return Tensors{at::randn({7, 3, inner})}; }, {"x"}, {h}, 3);
    ASSERT_NE(schedule->last_plan(), nullptr);
    // exp(row) is apart, unless it is as large as everything else.
    EXPECT_EQ(NumNodes(schedule), 2);
    EXPECT_EQ(schedule->last_plan()->num_general(), 0);
  }
}

// Sums over what was spread stand between parts of a chain; the rest goes
// around them.
TEST_F(ChainTest, GradientsOfWhatIsSpread) {
  agrees_ = Near;  // the sums are taken in another order
  Data("x", {-1, 40});
  std::string h = "x";
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    std::string y = Mul(h, Parameter("w" + name, {40}));
    y = Add(y, Parameter("b" + name, {40}));
    y = Mul(Gelu(y), Parameter("s" + name, {1}));
    h = Add(Scaled(y, 0.5), h);
  }
  std::string loss = Unary("mean", Unary("square", h));
  Backward(loss);
  Sgd(0.01);
  Schedule* schedule = Compare([] { return Tensors{at::randn({64, 40})}; },
                               {"x"}, {loss, h, "x@GRAD", "w1@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_EQ(schedule->last_plan()->num_general(), 0);
  // Forward and mean; for each block a sum for w, b and s; the passes between
  // them; the update.
  EXPECT_LE(NumNodes(schedule), 2 + 3 * 3 + 4 + 1);
}

TEST_F(ChainTest, OthersMayReadWhatLiesBetween) {
  agrees_ = Near;
  Data("x", {-1, 8});
  std::string a = Unary("exp", Scaled("x", 0.3));
  std::string b = Unary("sqrt", Scaled(a, 1, 1));
  // A product reads a, and the chain goes on with what it gives.
  std::string p = Binary("mul", a, Parameter("w", {8, 8}));
  std::string c = Add(Mul(b, p), Unary("square", b));
  std::string d = Binary("mul", Unary("sigmoid", c), Parameter("v", {8, 8}));
  std::string e = Add(d, Mul(a, b));
  std::string loss = Unary("mean", Unary("square", e));
  Backward(loss);
  Sgd(0.05);
  Schedule* schedule = Compare([] { return Tensors{at::randn({33, 8})}; },
                               {"x"}, {loss, a, c, e, "x@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_EQ(schedule->last_plan()->num_general(), 0);
}

TEST_F(ChainTest, EverythingBetweenCanBeFetched) {
  Data("x", {-1, 6});
  std::vector<std::string> all = {"x"};
  for (const char* type : {"square", "sigmoid", "exp", "relu", "tanh", "abs"}) {
    all.push_back(Unary(type, Add(all.back(), "x")));
  }
  Schedule* schedule =
      Compare([] { return Tensors{at::rand({9, 6})}; }, {"x"}, all);
  EXPECT_EQ(NumNodes(schedule), 1);
}

// One value read twice, views of it, copies, and gradients that are views.
TEST_F(ChainTest, TheSameMemoryUnderSeveralNames) {
  Data("x", {-1, 6});
  std::string a = Mul("x", "x");
  std::string b = Add(a, a);
  std::string c = Unary("reshape2", b, {{"shape", Ints({-1, 3})}});
  std::string d = Unary("tanh", c);
  std::string e = Unary("reshape2", d, {{"shape", Ints({-1, 6})}});
  std::string f = Unary("assign", e);
  std::string g = Op("sum", {{"X", {f, e, a, f}}}, {"Out"});
  std::string h = Binary("elementwise_sub", g, f);
  std::string loss = Total(Binary("elementwise_sub", h, b));
  Backward(loss);
  Schedule* schedule =
      Compare([] { return Tensors{at::randn({10, 6})}; }, {"x"},
              {c, e, h, "x@GRAD", e + "@GRAD", b + "@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_EQ(schedule->last_plan()->num_general(), 0);
  // Only h is read later, by the sum: the plan of that alone.
  schedule =
      Compare([] { return Tensors{at::randn({10, 6})}; }, {"x"}, {"x@GRAD"});
  EXPECT_LE(NumNodes(schedule), 3);
}

// A step that changes a parameter stands between two that read it.
TEST_F(ChainTest, ReadsParametersBeforeAndAfterTheyChange) {
  Data("x", {-1, 300});
  std::string w = Parameter("w", {300, 300});  // large: updated early
  std::string a = Unary("square", Mul("x", w));
  std::string loss = Total(a);
  Backward(loss);
  Sgd(0.25);
  std::string b = Unary("sqrt", Add(Unary("abs", Mul("x", w)), a));
  std::string c = Add(b, w);
  agrees_ = Near;
  Schedule* schedule =
      Compare([] { return Tensors{at::randn({300, 300})}; }, {"x"}, {a, b, c});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

// Doubles its input in place, as an all-reduce would.
class Doubling final : public Extension {
 public:
  class Step final : public ExtensionStep {
   public:
    Status Run(std::span<const Tensor>, std::span<Tensor> outputs) override {
      outputs[0].mul_(2);
      return OkStatus();
    }
  };
  Result<std::unique_ptr<ExtensionStep>> Prepare(
      const program::Operation&) override {
    return std::make_unique<Step>();
  }
};

TEST_F(ChainTest, WhatExtensionsChangeInPlaceIsReadAtItsTime) {
  extensions_["double"] = std::make_shared<Doubling>();
  Data("x", {-1, 6});
  std::string a = Unary("tanh", Scaled("x", 2));
  std::string before = Unary("square", a);
  block().Append(
      {.type = "double", .inputs = {{"X", {a}}}, .outputs = {{"Out", {a}}}});
  std::string after = Unary("square", a);
  std::string both = Binary("elementwise_sub", after, before);
  Schedule* schedule = Compare([] { return Tensors{at::randn({5, 6})}; }, {"x"},
                               {before, after, both});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

// A variable of the scope that the program computes anew.
TEST_F(ChainTest, WritesVariablesOfTheScope) {
  Data("x", {-1});
  Scalar("state", 0.5);
  kept_["state"] = at::full({4}, 0.5);
  block().Find("state")->type.dims = {4};
  std::string mean = Scaled(Add(Scaled("state", 0.9), Scaled("x", 0.1)), 1);
  block().Append({.type = "assign",
                  .inputs = {{"X", {mean}}},
                  .outputs = {{"Out", {"state"}}}});
  std::string y = Unary("tanh", Binary("elementwise_sub", "x", "state"));
  Schedule* schedule =
      Compare([] { return Tensors{at::randn({4})}; }, {"x"}, {y});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

// More operands and more values at a time than a chain has room for.
TEST_F(ChainTest, LongChainsAndManyOperands) {
  Data("x", {-1, 10});
  std::vector<std::string> many;
  for (int i = 0; i < 40; ++i) {
    many.push_back(Unary("tanh", Scaled("x", 0.1 * (i + 1), i)));
  }
  std::string h = many[0];
  for (size_t i = 1; i < many.size(); ++i) h = Add(h, many[many.size() - i]);
  for (int i = 0; i < 12; ++i) {
    h = Mul(h, Parameter("row" + std::to_string(i), {10}));
  }
  for (int i = 0; i < 80; ++i) h = Unary("tanh", Scaled(h, 1.5, 0.001 * i));
  for (int i = 0; i < 60; ++i) {
    h = Mul(h, Data("d" + std::to_string(i), {-1, 10}));
  }
  std::vector<std::string> feeds = {"x"};
  for (int i = 0; i < 60; ++i) feeds.push_back("d" + std::to_string(i));
  Schedule* schedule = Compare(
      [&] {
        Tensors values;
        for (size_t i = 0; i < feeds.size(); ++i) {
          values.push_back(at::randn({4, 10}));
        }
        return values;
      },
      feeds, {h}, 3);
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_EQ(schedule->last_plan()->num_general(), 0);
  EXPECT_LE(NumNodes(schedule), 40);
}

// Images with the channels last between convolutions.
TEST_F(ChainTest, ImagesBetweenConvolutions) {
  agrees_ = Near;
  Data("x", {-1, 3, 9, 9});
  auto conv = [&](const std::string& x, const std::string& name, int64_t in,
                  int64_t out) {
    return Op("conv2d",
              {{"Input", {x}}, {"Filter", {Parameter(name, {out, in, 3, 3})}}},
              {"Output"}, {{"paddings", Ints({1, 1})}});
  };
  std::string h = conv("x", "c1", 3, 8);
  h = Binary("elementwise_mul", h, Parameter("s", {8}), {{"axis", Int(1)}});
  h = Binary("elementwise_add", h, Parameter("b", {8}), {{"axis", Int(1)}});
  std::string branch = conv(Unary("relu", h), "c2", 8, 8);
  h = Unary("tanh", Add(Scaled(branch, 0.5), h));
  h = Unary("exp", Scaled(h, 0.1));  // no layout of its own
  h = conv(h, "c3", 8, 4);
  std::string loss = Unary("mean", Unary("square", h));
  Backward(loss);
  Sgd(0.01);
  Schedule* schedule = Compare([] { return Tensors{at::randn({2, 3, 9, 9})}; },
                               {"x"}, {loss, h, "x@GRAD", "s@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

// Programs at random, with products, sums and views between the elementwise
// operations: whatever was fused where, the numbers are the same.
TEST_F(ChainTest, AnyProgramGivesTheSame) {
  agrees_ = Near;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto below = [&](size_t n) { return random() % n; };
    Clear();
    Data("x", {-1, 6});
    std::vector<std::string> made = {Scaled("x", 0.5)};
    auto any = [&] { return made[below(made.size())]; };
    for (int i = 0; i < 25; ++i) {
      const std::string name = "p" + std::to_string(i);
      std::string h;
      switch (below(11)) {
        case 0:
          h = Unary("tanh", any());
          break;
        case 1:
          h = Scaled(any(), 0.7, 0.1, below(2) == 0);
          break;
        case 2:
          h = Add(any(), any());
          break;
        case 3:
          h = Mul(Unary("sigmoid", any()), any());
          break;
        case 4:
          h = Binary("elementwise_sub", any(), Parameter(name, {6}));
          break;
        case 5:
          h = Mul(any(), Parameter(name, {below(2) == 0 ? 6 : 1}));
          break;
        case 6:
          h = Unary("tanh", Binary("mul", any(), Parameter(name, {6, 6})));
          break;
        case 7:
          h = Unary("reshape2",
                    Unary("reshape2", any(), {{"shape", Ints({-1})}}),
                    {{"shape", Ints({-1, 6})}});
          break;
        case 8:
          h = Binary("elementwise_max", any(), any());
          break;
        case 9:
          h = Add(any(), Unary("mean", any()));
          break;
        default:
          h = Op("sum", {{"X", {any(), any(), any()}}}, {"Out"});
          h = Unary("tanh", h);
      }
      made.push_back(h);
    }
    std::string loss =
        Unary("mean", Unary("square", Unary("tanh", made.back())));
    Backward(loss);
    std::erase_if(parameters_, [&](const std::string& name) {
      return block().Find(name + "@GRAD") == nullptr;
    });
    Sgd(0.05);
    std::vector<std::string> fetches = {loss, any(), any()};
    const Tensor x = at::randn({31, 6});
    Schedule* schedule = Compare([&] { return Tensors{x}; }, {"x"}, fetches, 4);
    ASSERT_NE(schedule->last_plan(), nullptr);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace fleet::exec
