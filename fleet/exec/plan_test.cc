// SPDX-License-Identifier: Apache-2.0

// A plan must give what plain runs of the same program give, step by step.

#include "fleet/exec/plan.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/exec_plan_fixtures.h"

namespace fleet::exec {
namespace {

using ::testing::HasSubstr;

TEST_F(PlanTest, TheMlpOfStaticScripts) {
  Data("x", {-1, 8});
  Data("y", {-1, 1}, DType::kInt64);
  std::string h = Fc("x", "fc1", 8, 16, "tanh");
  h = Fc(h, "fc2", 16, 16, "tanh");
  h = Fc(h, "fc3", 16, 3, "softmax");
  std::string loss = Op("cross_entropy", {{"X", {h}}, {"Label", {"y"}}}, {"Y"});
  loss = Unary("mean", loss);
  Backward(loss);
  Sgd(0.1);
  int64_t batch = 6;
  auto feed = [&] {
    return std::vector<at::Tensor>{at::randn({batch, 8}),
                                   at::randint(0, 3, {batch, 1}, at::kLong)};
  };
  Schedule* schedule = Compare(feed, {"x", "y"}, {loss, "fc1.w@GRAD"});
  ExpectAllDirect(*schedule);
  EXPECT_LT(schedule->last_plan()->num_direct(), schedule->num_steps());
  // Another batch takes a plan of its own, and the first is still there.
  for (int64_t next : {3, 3, 6, 3}) {
    batch = next;
    Scope scope;
    for (const auto& [name, tensor] : kept_) scope.Get(name) = tensor.clone();
    ASSERT_OK(schedule->Run(scope, feed(), {}).status());
  }
  EXPECT_NE(schedule->last_plan(), nullptr);
}

// Large parameters are updated as soon as their gradients are there.
TEST_F(PlanTest, UpdatesOfLargeParametersComeEarly) {
  Data("x", {-1, 256});
  std::string w = Parameter("w", {256, 256});
  std::string v = Parameter("v", {256, 256});
  // Sums of 256 products are then about 1, and rounding errors do not grow
  // from step to step.
  for (auto& [name, value] : kept_) value /= 8;
  std::string h = Unary("tanh", Binary("mul", "x", w));
  h = Unary("tanh", Binary("mul", h, v));
  h = Binary("mul", h, w);  // again: it must not change before this is done
  std::string loss = Unary("mean", Unary("square", h));
  Backward(loss);
  Sgd(0.5);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({3, 256})}; },
              {"x"}, {loss, "v", "w@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
  // That of v, whose gradient nobody fetches, takes no room of its own.
  EXPECT_LT(schedule->last_plan()->arena_bytes(), 4 * 256 * 256 * 4);
}

TEST_F(PlanTest, AnArenaThatWasReleasedComesBack) {
  Data("x", {-1, 6});
  std::string y = Fc("x", "fc", 6, 3, "tanh");
  auto schedule =
      Schedule::Compile(*program_, library_, extensions_, {"x"}, {y});
  ASSERT_OK(schedule.status());
  Scope scope;
  for (const auto& [name, tensor] : kept_) scope.Get(name) = tensor.clone();
  const std::vector<at::Tensor> x = {at::randn({2, 6})};
  ASSERT_OK_AND_ASSIGN(auto wanted, (*schedule)->Run(scope, x, {}));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(auto got, (*schedule)->Run(scope, x, {}));
    EXPECT_TRUE(Near(got[0], wanted[0]));
    auto* plan = const_cast<Plan*>((*schedule)->last_plan());
    EXPECT_TRUE(plan->holds_arena());
    plan->ReleaseArena();
    EXPECT_FALSE(plan->holds_arena());
  }
}

// The gradient of a sparse table names rows; it goes through the general step.
TEST_F(PlanTest, SparseGradientsOfEmbeddings) {
  Data("ids", {-1, 2}, DType::kInt64);
  std::string rows = Op("lookup_table_v2",
                        {{"W", {Parameter("table", {7, 4})}}, {"Ids", {"ids"}}},
                        {"Out"}, {{"is_sparse", Bool(true)}});
  std::string h = Unary("flatten_contiguous_range", rows);
  std::string loss = Unary("mean", Unary("square", Fc(h, "fc", 8, 3, "tanh")));
  Backward(loss);
  // Memory that the gradient of `rows` no longer needs serves for others, while
  // the rows of the table's gradient, which are the same, are still to be read.
  std::string other = Unary("scale", "fc.w@GRAD", {{"scale", Float(3)}});
  Sgd(0.5);
  Schedule* schedule = Compare(
      [] {
        return std::vector<at::Tensor>{at::randint(0, 7, {5, 2}, at::kLong)};
      },
      {"ids"}, {loss, other});
  EXPECT_NE(schedule->last_plan(), nullptr);
}

// The ids of such a gradient are a view of a value that lives in the memory of
// another, and are read after both have ended.
TEST_F(PlanTest, SparseGradientsKeepTheirIds) {
  Data("ids", {-1, 2}, DType::kInt64);
  std::vector<std::string> parts, columns;
  for (int64_t i = 0; i < 2; ++i) {
    std::string column = Op(
        "slice", {{"Input", {"ids"}}}, {"Out"},
        {{"axes", Ints({1})}, {"starts", Ints({i})}, {"ends", Ints({i + 1})}});
    columns.push_back(Unary("squeeze2", column, {{"axes", Ints({1})}}));
    const std::string table = Parameter("table" + std::to_string(i), {7, 4});
    parts.push_back(Op("lookup_table_v2",
                       {{"W", {table}}, {"Ids", {columns.back()}}}, {"Out"},
                       {{"is_sparse", Bool(true)}}));
  }
  // The gradients of `parts` are tensors of their own.
  std::string rows = Op("concat", {{"X", parts}}, {"Out"}, {{"axis", Int(1)}});
  std::string loss = Unary("mean", Unary("square", rows));
  Backward(loss);
  // As large as the columns of ids: what takes over memory that they left.
  std::string other =
      Unary("cast", "ids", {{"in_dtype", Int(3)}, {"out_dtype", Int(5)}});
  Sgd(0.5);
  Schedule* schedule = Compare(
      [] {
        return std::vector<at::Tensor>{at::randint(0, 7, {4096, 2}, at::kLong)};
      },
      {"ids"}, {loss, other});
  EXPECT_NE(schedule->last_plan(), nullptr);
}

TEST_F(PlanTest, LossesOfLogits) {
  Data("x", {-1, 5});
  Data("y", {-1, 1}, DType::kInt64);
  std::string h = Fc("x", "fc1", 5, 7, "relu");
  h = Fc(h, "fc2", 7, 4, "");
  std::string a = Op("softmax_with_cross_entropy",
                     {{"Logits", {h}}, {"Label", {"y"}}}, {"Softmax", "Loss"});
  std::string rows = "v" + std::to_string(last_);
  std::string loss = Unary("reduce_mean", rows, {{"reduce_all", Bool(true)}});
  std::string b =
      Op("cross_entropy_loss", {{"Logits", {h}}, {"Label", {"y"}}},
         {"Loss", "Softmax", "TotalWeight"}, {{"ignore_index", Int(2)}});
  loss = Binary("elementwise_add", loss, b);
  Backward(loss);
  Sgd(0.05);
  Schedule* schedule = Compare(
      [] {
        return std::vector<at::Tensor>{at::randn({9, 5}),
                                       at::randint(0, 4, {9, 1}, at::kLong)};
      },
      {"x", "y"}, {loss, a});
  ExpectAllDirect(*schedule);
}

TEST_F(PlanTest, RegressionWithAdam) {
  Data("x", {-1, 10});
  Data("y", {-1, 1});
  block().Find("y")->stop_gradient = true;
  std::string h = Fc("x", "fc1", 10, 10, "");
  h = Fc(h, "fc2", 10, 1, "sigmoid");
  std::string loss =
      Op("mse_loss", {{"Input", {h}}, {"Label", {"y"}}}, {"Out"});
  Backward(loss);
  Scalar("rate", 0.01);
  for (const std::string& name : std::vector(parameters_)) {
    for (const char* state : {".m", ".v"}) {
      block().AddVariable({.name = name + state,
                           .type = block().Find(name)->type,
                           .persistable = true});
      kept_[name + state] = at::rand(kept_[name].sizes());
    }
    Scalar(name + ".b1", 0.9);
    Scalar(name + ".b2", 0.999);
    block().Append({.type = "adam",
                    .inputs = {{"Param", {name}},
                               {"Grad", {name + "@GRAD"}},
                               {"LearningRate", {"rate"}},
                               {"Moment1", {name + ".m"}},
                               {"Moment2", {name + ".v"}},
                               {"Beta1Pow", {name + ".b1"}},
                               {"Beta2Pow", {name + ".b2"}}},
                    .outputs = {{"ParamOut", {name}},
                                {"Moment1Out", {name + ".m"}},
                                {"Moment2Out", {name + ".v"}},
                                {"Beta1PowOut", {name + ".b1"}},
                                {"Beta2PowOut", {name + ".b2"}}}});
  }
  Schedule* schedule = Compare(
      [] {
        return std::vector<at::Tensor>{at::randn({10, 10}), at::rand({10, 1})};
      },
      {"x", "y"}, {loss});
  ExpectAllDirect(*schedule);
}

TEST_F(PlanTest, ElementwiseOfEverySpreadAndTheirGradients) {
  Data("x", {-1, 3, 4});
  std::string w = Parameter("w", {2, 3, 4});
  std::string row = Parameter("row", {4});
  std::string middle = Parameter("middle", {3});
  std::string middle_one = Parameter("middle_one", {3, 1});
  std::string one = Parameter("one", {1});
  std::string h = Binary("elementwise_mul", "x", w);
  h = Binary("elementwise_add", h, row);
  h = Binary("elementwise_sub", h, middle, {{"axis", Int(1)}});
  h = Binary("elementwise_mul", h, middle_one);
  h = Binary("elementwise_mul", h, one);
  std::string s = Binary("elementwise_sub", h, w);
  s = Binary("elementwise_add", s, s);
  s = Unary("scale", s,
            {{"scale", Float(0.5)},
             {"bias", Float(0.25)},
             {"bias_after_scale", Bool(false)}});
  s = Op("sum", {{"X", {s, h, w}}}, {"Out"});
  s = Unary("square", s);
  std::string loss = Unary("reduce_sum", s, {{"reduce_all", Bool(true)}});
  Backward(loss);
  Sgd(0.001);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({2, 3, 4})}; },
              {"x"}, {loss, s, "x@GRAD"});
  ASSERT_NE(schedule->last_plan(), nullptr);
}

TEST_F(PlanTest, ProductsOfEveryTransposition) {
  Data("x", {-1, 3, 4});
  std::string h = Unary("reshape2", "x", {{"shape", Ints({-1, 4})}});
  std::vector<std::string> losses;
  for (bool tx : {false, true}) {
    for (bool ty : {false, true}) {
      const std::string name = std::to_string(tx) + std::to_string(ty);
      std::string a =
          Parameter("a" + name, tx ? program::Dims{4, 5} : program::Dims{5, 4});
      std::string b =
          Parameter("b" + name, ty ? program::Dims{6, 4} : program::Dims{4, 6});
      std::string y = Binary("matmul_v2", a, b,
                             {{"trans_x", Bool(tx)}, {"trans_y", Bool(ty)}});
      losses.push_back(Unary("mean", Unary("square", y)));
    }
  }
  losses.push_back(Unary("mean", Unary("tanh", Fc(h, "fc", 4, 2, ""))));
  // More dimensions than two on the left.
  losses.push_back(
      Unary("mean",
            Unary("square", Binary("matmul_v2", "x", Parameter("w", {4, 3})))));
  std::string loss = Op("sum", {{"X", losses}}, {"Out"});
  Backward(loss);
  Sgd(0.05);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({2, 3, 4})}; },
              {"x"}, {loss, "x@GRAD"});
  ExpectAllDirect(*schedule);
}

TEST_F(PlanTest, WhatHasNoDirectFormRunsBetween) {
  Data("x", {-1, 6});
  std::string h = Fc("x", "fc1", 6, 8, "tanh");
  h = Unary("gelu", h);
  h = Unary("transpose2", h, {{"axis", Ints({1, 0})}});  // a view
  h = Unary("relu", h);
  h = Unary("transpose2", h, {{"axis", Ints({1, 0})}});
  h = Fc(h, "fc2", 8, 2, "");
  std::string loss = Unary("mean", Unary("square", h));
  Backward(loss);
  Sgd(0.1);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({5, 6})}; }, {"x"},
              {loss, h});
  ASSERT_NE(schedule->last_plan(), nullptr);
  EXPECT_GT(schedule->last_plan()->num_general(), 0);
  EXPECT_GT(schedule->last_plan()->num_direct(), 0);
}

TEST_F(PlanTest, IntermediateValuesCanBeFetched) {
  Data("x", {-1, 6});
  std::string w = Binary("mul", "x", Parameter("w", {6, 3}));
  std::string b =
      Binary("elementwise_add", w, Parameter("b", {3}), {{"axis", Int(1)}});
  std::string y = Unary("relu", b);
  Compare([] { return std::vector<at::Tensor>{at::randn({5, 6})}; }, {"x"},
          {w, b, y, "x", "w"});
}

TEST_F(PlanTest, AParameterOfAnotherShapeGoesThePlainWay) {
  Data("x", {-1, 6});
  std::string y = Binary("mul", "x", Parameter("w", {6, 3}));
  auto schedule =
      Schedule::Compile(*program_, library_, extensions_, {"x"}, {y});
  ASSERT_OK(schedule.status());
  Scope scope;
  scope.Get("w") = at::randn({6, 3});
  const std::vector<at::Tensor> x = {at::randn({2, 6})};
  for (int i = 0; i < 3; ++i)
    ASSERT_OK((*schedule)->Run(scope, x, {}).status());
  EXPECT_NE((*schedule)->last_plan(), nullptr);
  scope.Get("w") = at::randn({6, 4});
  ASSERT_OK_AND_ASSIGN(auto got, (*schedule)->Run(scope, x, {}));
  EXPECT_EQ((*schedule)->last_plan(), nullptr);
  EXPECT_TRUE(at::allclose(got[0], x[0].matmul(scope.Get("w")), 1e-5, 1e-5));
  // A new tensor of the old shape is found at once.
  scope.Get("w") = at::randn({6, 3});
  ASSERT_OK_AND_ASSIGN(got, (*schedule)->Run(scope, x, {}));
  EXPECT_NE((*schedule)->last_plan(), nullptr);
  EXPECT_TRUE(at::allclose(got[0], x[0].matmul(scope.Get("w")), 1e-5, 1e-5));
  scope.Erase("w");
  EXPECT_THAT((*schedule)->Run(scope, x, {}).status().message(),
              HasSubstr("variable w has no value"));
}

TEST_F(PlanTest, AnErrorNamesTheOperation) {
  Data("x", {-1, 3});
  Data("y", {-1, 1}, DType::kInt64);
  Op("cross_entropy", {{"X", {"x"}}, {"Label", {"y"}}}, {"Y"});
  auto schedule =
      Schedule::Compile(*program_, library_, extensions_, {"x", "y"}, {"v1"});
  ASSERT_OK(schedule.status());
  Scope scope;
  at::Tensor x = at::rand({2, 3});
  at::Tensor label = at::full({2, 1}, 1, at::kLong);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK((*schedule)
                  ->Run(scope, std::vector<at::Tensor>{x, label}, {})
                  .status());
  }
  label.fill_(3);
  Status status =
      (*schedule)->Run(scope, std::vector<at::Tensor>{x, label}, {}).status();
  ASSERT_NE((*schedule)->last_plan(), nullptr);
  EXPECT_THAT(status.message(), HasSubstr("net.py:1: cross_entropy(x float32"));
  EXPECT_THAT(status.message(), HasSubstr("label 3"));
}

// Convolutions, norms and pools, with branches and both ways to add a bias.
TEST_F(PlanTest, ImagesWithTheChannelsLast) {
  Data("x", {-1, 3, 9, 9});
  auto conv = [&](const std::string& x, const std::string& name, int64_t in,
                  int64_t out, AttrMap attrs) {
    return Op("conv2d",
              {{"Input", {x}}, {"Filter", {Parameter(name, {out, in, 3, 3})}}},
              {"Output"}, std::move(attrs));
  };
  auto norm = [&](const std::string& x, const std::string& name,
                  int64_t channels) {
    for (const char* which : {".mean", ".variance"}) {
      block().AddVariable({.name = name + which,
                           .type = {DType::kFloat32, {channels}},
                           .persistable = true,
                           .stop_gradient = true});
      kept_[name + which] = at::rand({channels}) + 0.5;
    }
    return Op("batch_norm",
              {{"X", {x}},
               {"Mean", {name + ".mean"}},
               {"Variance", {name + ".variance"}},
               {"Scale", {Parameter(name + ".scale", {channels})}},
               {"Bias", {Parameter(name + ".bias", {channels})}}},
              {"Y", "SavedMean", "SavedVariance"});
  };
  std::string h = conv("x", "c1", 3, 8, {{"paddings", Ints({1, 1})}});
  h = Binary("elementwise_add", h, Parameter("b1", {8}), {{"axis", Int(1)}});
  h = Unary("relu", h);
  h = Op("max_pool2d_with_index", {{"X", {h}}}, {"Out", "Mask"},
         {{"ksize", Ints({3, 3})},
          {"strides", Ints({2, 2})},
          {"paddings", Ints({1, 1})}});
  std::string branch = conv(h, "c2", 8, 8, {{"paddings", Ints({1})}});
  branch = norm(branch, "n2", 8);
  h = Unary("relu", Binary("elementwise_add", branch, h));
  h = conv(h, "c3", 8, 6, {{"strides", Ints({2})}});
  std::string mean = Op("adaptive_avg_pool2d", {{"X", {h}}}, {"Out"},
                        {{"output_size", Ints({1, 1})}});
  std::string flat = Unary("flatten_contiguous_range", h);
  flat = Unary("square", Fc(flat, "fc", 24, 2, "tanh"));
  mean =
      Unary("reduce_mean", Unary("square", mean), {{"reduce_all", Bool(true)}});
  std::string loss = Binary("elementwise_add", Unary("mean", flat), mean);
  Backward(loss);
  Sgd(0.001);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({4, 3, 9, 9})}; },
              {"x"}, {loss, h, "x@GRAD", "c2@GRAD"});
  ExpectAllDirect(*schedule);
}

// Without convolutions images lie as everybody else has them.
TEST_F(PlanTest, PoolsAndNormsWithoutConvolutions) {
  Data("x", {-1, 3, 4, 5});
  std::string h = Binary("elementwise_mul", "x", Parameter("w", {2, 3, 4, 5}));
  for (const char* which : {"mean", "variance"}) {
    block().AddVariable({.name = which,
                         .type = {DType::kFloat32, {3}},
                         .persistable = true,
                         .stop_gradient = true});
    kept_[which] = at::rand({3}) + 0.5;
  }
  std::string norm = Op("batch_norm",
                        {{"X", {h}},
                         {"Mean", {"mean"}},
                         {"Variance", {"variance"}},
                         {"Scale", {Parameter("scale", {3})}},
                         {"Bias", {Parameter("bias", {3})}}},
                        {"Y", "SavedMean", "SavedVariance"});
  std::string mean = Op("adaptive_avg_pool2d", {{"X", {norm}}}, {"Out"},
                        {{"output_size", Ints({1, 1})}});
  std::string all =
      Op("pool2d", {{"X", {h}}}, {"Out"},
         {{"pooling_type", {AttrKind::kString, std::string("avg")}},
          {"ksize", Ints({1, 1})},
          {"global_pooling", Bool(true)}});
  std::string most = Op("max_pool2d_with_index", {{"X", {h}}}, {"Out", "Mask"},
                        {{"ksize", Ints({2, 2})}, {"strides", Ints({2, 2})}});
  std::string sum = Binary("elementwise_add", mean, all);
  std::string loss = Op("sum",
                        {{"X",
                          {Unary("mean", Unary("square", sum)),
                           Unary("mean", Unary("square", most))}}},
                        {"Out"});
  Backward(loss);
  Sgd(0.5);
  Schedule* schedule =
      Compare([] { return std::vector<at::Tensor>{at::randn({2, 3, 4, 5})}; },
              {"x"}, {loss, mean, all, most, "x@GRAD"});
  EXPECT_NE(schedule->last_plan(), nullptr);
}

// An image has 64 pixels: what is added up in floats alone is some 3e-7 away.
TEST_F(PlanTest, NormsAddUpAsNearAsFloatsCan) {
  Data("x", {-1, 8, 8, 8});
  Data("d", {-1, 8, 8, 8});
  for (const char* which : {"mean", "variance"}) {
    block().AddVariable({.name = which,
                         .type = {DType::kFloat32, {8}},
                         .persistable = true,
                         .stop_gradient = true});
    kept_[which] = at::rand({8}) + 0.5;
  }
  std::string h = Op(
      "conv2d", {{"Input", {"x"}}, {"Filter", {Parameter("w", {8, 8, 1, 1})}}},
      {"Output"});
  h = Op("batch_norm",
         {{"X", {h}},
          {"Mean", {"mean"}},
          {"Variance", {"variance"}},
          {"Scale", {Parameter("scale", {8})}},
          {"Bias", {Parameter("bias", {8})}}},
         {"Y", "SavedMean", "SavedVariance"});
  std::string loss = Unary("reduce_sum", Binary("elementwise_mul", h, "d"),
                           {{"reduce_all", Bool(true)}});
  Backward(loss);
  const std::vector<at::Tensor> values = {at::randn({1, 8, 8, 8}),
                                          at::rand({1, 8, 8, 8}) + 0.5};
  Schedule* schedule =
      Compare([&] { return values; }, {"x", "d"}, {"bias@GRAD"}, /*steps=*/2);
  ExpectAllDirect(*schedule);
  Scope scope;
  for (const auto& [name, tensor] : kept_) scope.Get(name) = tensor.clone();
  ASSERT_OK_AND_ASSIGN(auto got, schedule->Run(scope, values, {}));
  const at::Tensor wanted = values[1].to(at::kDouble).sum({0, 2, 3});
  const at::Tensor error = (got[0].to(at::kDouble) - wanted).abs() / wanted;
  EXPECT_LE(error.max().item<double>(), 1.5e-7);
}

// A norm moves its running mean, which others read before.
TEST_F(PlanTest, ChainsReadARunningMeanBeforeItMoves) {
  Data("x", {-1, 3});
  for (const char* which : {"mean", "variance"}) {
    block().AddVariable({.name = which,
                         .type = {DType::kFloat32, {3}},
                         .persistable = true,
                         .stop_gradient = true});
    kept_[which] = at::rand({3}) + 0.5;
  }
  std::string before = Binary("elementwise_mul", "x", "mean");
  std::string norm = Op("batch_norm",
                        {{"X", {"x"}},
                         {"Mean", {"mean"}},
                         {"Variance", {"variance"}},
                         {"Scale", {Parameter("scale", {3})}},
                         {"Bias", {Parameter("bias", {3})}}},
                        {"Y", "SavedMean", "SavedVariance"});
  std::string y = Binary("elementwise_add", Unary("relu", before), norm);
  std::string loss = Unary("mean", Unary("square", y));
  Backward(loss);
  Sgd(0.1);
  Compare([] { return std::vector<at::Tensor>{at::randn({4, 3})}; }, {"x"},
          {loss, y});
}

TEST_F(PlanTest, AnImageThatIsUpdatedIsTurnedAgain) {
  Data("x", {-1, 3, 9, 9});
  const std::string image = Parameter("image", {2, 3, 9, 9});
  auto conv = [&](const std::string& x) {
    return Op("conv2d", {{"Input", {x}}, {"Filter", {"w"}}}, {"Output"});
  };
  Parameter("w", {8, 3, 3, 3});
  std::string y = Binary("elementwise_add", conv("x"), conv(image));
  std::string loss = Unary("mean", Unary("square", y));
  Backward(loss);
  Sgd(0.5);
  std::string after = conv(image);
  Compare([] { return std::vector<at::Tensor>{at::randn({2, 3, 9, 9})}; },
          {"x"}, {loss, after});
}

// Some of these have no fast form on bare memory, in one direction or both.
TEST_F(PlanTest, ConvolutionsOfEverySmallShape) {
  struct Channels {
    int64_t in, out, groups;
  };
  int number = 0;
  for (Channels c : {Channels{1, 8, 1}, {3, 5, 1}, {4, 4, 4}, {4, 6, 2}}) {
    for (int64_t kernel : {1, 2, 3, 6}) {
      for (int64_t padding : {0, 1, 2}) {
        for (int64_t stride : {1, 3}) {
          for (int64_t dilation : {1, 2}) {
            const int64_t reach = (kernel - 1) * dilation + 1;
            if (reach > 6 + 2 * padding) continue;
            Clear();
            SCOPED_TRACE(testing::Message()
                         << c.in << " to " << c.out << " channels, " << c.groups
                         << " groups, kernel " << kernel << ", padding "
                         << padding << ", stride " << stride << ", dilation "
                         << dilation);
            Data("x", {-1, c.in, 7, 6});
            const std::string type =
                c.groups == c.in && c.in > 1 ? "depthwise_conv2d" : "conv2d";
            const std::string filter =
                Parameter("w", {c.out, c.in / c.groups, kernel, kernel});
            std::string h =
                Op(type, {{"Input", {"x"}}, {"Filter", {filter}}}, {"Output"},
                   {{"paddings", Ints({padding, padding})},
                    {"strides", Ints({stride, stride})},
                    {"dilations", Ints({dilation, dilation})},
                    {"groups", Int(c.groups)}});
            // Every other one with a bias, of these every other with a relu.
            if (++number % 2 == 0) {
              h = Binary("elementwise_add", h, Parameter("b", {c.out}),
                         {{"axis", Int(1)}});
              if (number % 4 == 0) h = Unary("relu", h);
            }
            std::string loss = Unary("mean", Unary("square", h));
            Backward(loss);
            Sgd(0.1);
            Schedule* schedule = Compare(
                [&] {
                  return std::vector<at::Tensor>{at::randn({2, c.in, 7, 6})};
                },
                {"x"}, {loss, h, "x@GRAD", "w@GRAD"}, 3);
            EXPECT_NE(schedule->last_plan(), nullptr);
          }
        }
      }
    }
  }
}

// Averages with a copy of itself, in memory of its own.
class Exchange final : public Extension {
 public:
  class Step final : public ExtensionStep {
   public:
    explicit Step(Exchange& owner) : owner_(owner) {}
    Result<std::vector<at::Tensor>> Homes(
        std::span<const program::TensorType> inputs) override {
      if (!owner_.has_home) return std::vector<at::Tensor>();
      if (!owner_.one_home || !owner_.home.defined()) {
        owner_.home = at::zeros(inputs[0].dims);
      }
      return std::vector<at::Tensor>{owner_.home};
    }
    Status Run(std::span<const at::Tensor> inputs,
               std::span<at::Tensor> outputs) override {
      owner_.at_home = owner_.home.defined() &&
                       inputs[0].data_ptr() == owner_.home.data_ptr();
      owner_.num_at_home += owner_.at_home;
      if (owner_.replaces) {
        outputs[0] = inputs[0] * 2;
      } else {
        outputs[0].mul_(2);
      }
      return OkStatus();
    }

   private:
    Exchange& owner_;
  };
  Result<std::unique_ptr<ExtensionStep>> Prepare(
      const program::Operation&) override {
    return std::make_unique<Step>(*this);
  }
  bool has_home = false, replaces = false, at_home = false;
  bool one_home = false;  // for all steps
  int num_at_home = 0;
  at::Tensor home;
};

TEST_F(PlanTest, ExtensionsWorkInPlaceInTheirMemoryOrReplace) {
  Data("x", {-1, 6});
  std::string loss = Unary("mean", Unary("square", Fc("x", "fc", 6, 3, "")));
  Backward(loss);
  for (const std::string& name : parameters_) {
    block().Append({.type = "exchange",
                    .inputs = {{"X", {name + "@GRAD"}}},
                    .outputs = {{"Out", {name + "@GRAD"}}}});
  }
  Sgd(0.1);
  for (auto [has_home, replaces] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    auto exchange = std::make_shared<Exchange>();
    exchange->has_home = has_home;
    exchange->replaces = replaces;
    extensions_["exchange"] = exchange;
    Schedule* schedule =
        Compare([] { return std::vector<at::Tensor>{at::randn({5, 6})}; },
                {"x"}, {loss, "fc.w@GRAD"});
    ASSERT_NE(schedule->last_plan(), nullptr);
    EXPECT_EQ(exchange->at_home, has_home);
  }
}

// Gradients that are parts of another value: what changes them in place must
// not change it, and they outlive it.
TEST_F(PlanTest, ExtensionsChangeGradientsThatAreViews) {
  // By a kernel: the value that they are views of is a tensor of its own.
  for (bool by_kernel : {false, true}) {
    Clear();
    Data("x", {-1, 6});
    std::string w = Op(
        "concat", {{"X", {Parameter("up", {2, 3}), Parameter("down", {4, 3})}}},
        {"Out"});
    std::string y = Binary("mul", "x", by_kernel ? Unary("cos", w) : w);
    std::string loss = Unary("mean", Unary("square", y));
    Backward(loss);
    for (int times = 0; times < 2; ++times) {
      for (const std::string& name : parameters_) {
        block().Append({.type = "exchange",
                        .inputs = {{"X", {name + "@GRAD"}}},
                        .outputs = {{"Out", {name + "@GRAD"}}}});
      }
    }
    std::string other = Unary("scale", w + "@GRAD", {{"scale", Float(3)}});
    Sgd(0.1);
    for (bool replaces : {false, true}) {
      auto exchange = std::make_shared<Exchange>();
      exchange->replaces = replaces;
      extensions_["exchange"] = exchange;
      Schedule* schedule =
          Compare([] { return std::vector<at::Tensor>{at::randn({5, 6})}; },
                  {"x"}, {loss, other, "up@GRAD", "down@GRAD"});
      EXPECT_NE(schedule->last_plan(), nullptr);
    }
  }
}

// The rows of the table's gradient and the gradient of `p` are one tensor in a
// plain run.
TEST_F(PlanTest, ExtensionsChangeWhatASparseGradientSees) {
  Data("ids", {-1}, DType::kInt64);
  std::string rows = Op("lookup_table_v2",
                        {{"W", {Parameter("table", {7, 4})}}, {"Ids", {"ids"}}},
                        {"Out"}, {{"is_sparse", Bool(true)}});
  std::string y = Binary("elementwise_add", rows, Parameter("p", {5, 4}));
  std::string loss = Unary("mean", Unary("square", y));
  Backward(loss);
  block().Append({.type = "exchange",
                  .inputs = {{"X", {"p@GRAD"}}},
                  .outputs = {{"Out", {"p@GRAD"}}}});
  Sgd(0.1);
  extensions_["exchange"] = std::make_shared<Exchange>();
  Compare(
      [] { return std::vector<at::Tensor>{at::randint(0, 7, {5}, at::kLong)}; },
      {"ids"}, {loss});
}

TEST_F(PlanTest, AHomeOfSeveralStepsServesValuesThatDoNotMeet) {
  Data("x", {-1, 6});
  std::vector<std::string> values, means;
  for (const char* name : {"a", "b", "c"}) {
    values.push_back(Fc("x", name, 6, 3, ""));
    block().Append({.type = "exchange",
                    .inputs = {{"X", {values.back()}}},
                    .outputs = {{"Out", {values.back()}}}});
    means.push_back(Unary("mean", values.back()));
  }
  auto run = [&](std::vector<std::string> fetches) {
    auto exchange = std::make_shared<Exchange>();
    exchange->has_home = exchange->one_home = true;
    extensions_["exchange"] = exchange;
    Compare([] { return std::vector<at::Tensor>{at::randn({5, 6})}; }, {"x"},
            fetches);
    return exchange;
  };
  EXPECT_GT(run(means)->num_at_home, 0);
  EXPECT_TRUE(run(means)->at_home);
  // The first lives until the end: none of the others may come to its home, and
  // what they write there must not hit it.
  EXPECT_EQ(run({values[0], means[1], means[2]})->num_at_home, 0);
}

}  // namespace
}  // namespace fleet::exec
