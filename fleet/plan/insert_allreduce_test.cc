// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/insert_allreduce.h"

#include <functional>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kForward =
    "h0 = matmul_v2(x, w0)\n"
    "r0 = relu(h0)\n"
    "h1 = matmul_v2(r0, w1)\n"
    "r1 = relu(h1)\n"
    "loss = reduce_mean(r1)\n"
    "loss@GRAD = fill_any_like(loss)\n";

TEST(InsertAllReduce, OneBucketForASmallModel) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  ASSERT_EQ(Print(model.main()),
            std::string(kForward) +
                "r1@GRAD = reduce_mean_grad(r1, loss@GRAD)\n"
                "h1@GRAD = relu_grad(r1, r1@GRAD)\n"
                "r0@GRAD, w1@GRAD = matmul_v2_grad(r0, w1, h1@GRAD)\n"
                "h0@GRAD = relu_grad(r0, r0@GRAD)\n"
                "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, h0@GRAD)\n"
                "w0 = sgd(w0, rate, w0@GRAD)\n"
                "w1 = sgd(w1, rate, w1@GRAD)\n");
  EXPECT_EQ(InsertAllReduce(model.main(), {}), 1u);
  EXPECT_EQ(
      Print(model.main()),
      std::string(kForward) +
          "r1@GRAD = reduce_mean_grad(r1, loss@GRAD)\n"
          "h1@GRAD = relu_grad(r1, r1@GRAD)\n"
          "r0@GRAD, w1@GRAD = matmul_v2_grad(r0, w1, h1@GRAD)\n"
          "h0@GRAD = relu_grad(r0, r0@GRAD)\n"
          "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, h0@GRAD)\n"
          "w1@GRAD, w0@GRAD = c_allreduce_start(w1@GRAD, w0@GRAD) bucket=0 "
          "blocking\n"
          "w0 = sgd(w0, rate, w0@GRAD)\n"
          "w1 = sgd(w1, rate, w1@GRAD)\n");
}

TEST(InsertAllReduce, FullBucketsLeaveWhileBackwardGoesOn) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  EXPECT_EQ(InsertAllReduce(model.main(), {.bucket_bytes = 32}), 2u);
  EXPECT_EQ(Print(model.main()),
            std::string(kForward) +
                "r1@GRAD = reduce_mean_grad(r1, loss@GRAD)\n"
                "h1@GRAD = relu_grad(r1, r1@GRAD)\n"
                "r0@GRAD, w1@GRAD = matmul_v2_grad(r0, w1, h1@GRAD)\n"
                "w1@GRAD = c_allreduce_start(w1@GRAD) bucket=0\n"
                "h0@GRAD = relu_grad(r0, r0@GRAD)\n"
                "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, h0@GRAD)\n"
                "w0@GRAD = c_allreduce_start(w0@GRAD) bucket=1 blocking\n"
                "w1@GRAD = c_allreduce_wait(w1@GRAD) bucket=0\n"
                "w0 = sgd(w0, rate, w0@GRAD)\n"
                "w1 = sgd(w1, rate, w1@GRAD)\n");
}

TEST(InsertAllReduce, WithoutOverlapEveryExchangeEndsWhereItStarts) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  EXPECT_EQ(
      InsertAllReduce(model.main(), {.bucket_bytes = 32, .overlap = false}),
      2u);
  EXPECT_EQ(Print(model.main()),
            std::string(kForward) +
                "r1@GRAD = reduce_mean_grad(r1, loss@GRAD)\n"
                "h1@GRAD = relu_grad(r1, r1@GRAD)\n"
                "r0@GRAD, w1@GRAD = matmul_v2_grad(r0, w1, h1@GRAD)\n"
                "w1@GRAD = c_allreduce_start(w1@GRAD) bucket=0 blocking\n"
                "h0@GRAD = relu_grad(r0, r0@GRAD)\n"
                "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, h0@GRAD)\n"
                "w0@GRAD = c_allreduce_start(w0@GRAD) bucket=1 blocking\n"
                "w0 = sgd(w0, rate, w0@GRAD)\n"
                "w1 = sgd(w1, rate, w1@GRAD)\n");
}

// Layers of 4 MB, and a small one.
std::string WithLargeLayers(bool overlap,
                            const std::function<void(ModelProgram&)>& change) {
  ModelProgram model({{1024, 1024}, {1024, 1024}, {1024, 2}});
  change(model);
  model.AddUpdates();
  InsertAllReduce(model.main(), {.overlap = overlap});
  std::string starts;
  std::istringstream text(Print(model.main()));
  for (std::string line; std::getline(text, line);) {
    const size_t at = line.find("c_allreduce_start");
    if (at != std::string::npos) starts += line.substr(at + 17) + "\n";
  }
  return starts;
}

TEST(InsertAllReduce, LargeGradientsThatOnlyAnUpdateUsesAreBrief) {
  EXPECT_EQ(WithLargeLayers(false, [](ModelProgram&) {}),
            "(w2@GRAD) bucket=0 blocking\n"
            "(w1@GRAD) bucket=1 blocking brief\n"
            "(w0@GRAD) bucket=2 blocking brief\n");
  // Others are under way meanwhile.
  EXPECT_EQ(WithLargeLayers(true, [](ModelProgram&) {}),
            "(w2@GRAD) bucket=0\n"
            "(w1@GRAD) bucket=1\n"
            "(w0@GRAD) bucket=2 blocking brief\n");
}

TEST(InsertAllReduce, LargeGradientsThatAreNeededLongerAreNotBrief) {
  auto add = [](ModelProgram& model, const std::string& type,
                const std::string& from, const std::string& to) {
    program::SetRole(model.Add(type, {{"X", {from}}}, {{"Out", {to}}}),
                     program::OpRole::kOptimize);
  };
  // Looked at.
  EXPECT_EQ(WithLargeLayers(
                false, [&](auto& m) { add(m, "relu", "w1@GRAD", "seen"); }),
            "(w2@GRAD) bucket=0 blocking\n"
            "(w1@GRAD) bucket=1 blocking\n"
            "(w0@GRAD) bucket=2 blocking brief\n");
  // The old values are.
  EXPECT_EQ(
      WithLargeLayers(false, [&](auto& m) { add(m, "relu", "w1", "seen"); }),
      "(w2@GRAD) bucket=0 blocking\n"
      "(w1@GRAD) bucket=1 blocking\n"
      "(w0@GRAD) bucket=2 blocking brief\n");
  // The rate is not known before.
  EXPECT_EQ(
      WithLargeLayers(false, [&](auto& m) { add(m, "relu", "rate", "rate"); }),
      "(w2@GRAD) bucket=0 blocking\n"
      "(w1@GRAD) bucket=1 blocking\n"
      "(w0@GRAD) bucket=2 blocking\n");
}

TEST(InsertAllReduce, IsCompleteBeforeTheFirstUseEvenOfAClip) {
  ModelProgram model({{4, 3}});
  program::SetRole(
      model.Add("relu", {{"X", {"w0@GRAD"}}}, {{"Out", {"clipped"}}}),
      program::OpRole::kOptimize);
  model.AddUpdates();
  EXPECT_EQ(InsertAllReduce(model.main(), {}), 1u);
  EXPECT_THAT(Print(model.main()),
              HasSubstr("w0@GRAD = c_allreduce_start(w0@GRAD) bucket=0 "
                        "blocking\nclipped = relu(w0@GRAD)\n"));
}

TEST(InsertAllReduce, OnceMoreChangesNothing) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  InsertAllReduce(model.main(), {});
  const std::string before = Print(model.main());
  EXPECT_EQ(InsertAllReduce(model.main(), {}), 0u);
  EXPECT_EQ(Print(model.main()), before);
}

TEST(InsertAllReduce, ASecondBackwardGetsBucketsOfItsOwn) {
  ModelProgram model({{4, 4}});
  model.Add("reduce_mean", {{"X", {"h0"}}}, {{"Out", {"loss2"}}});
  model.AddBackward("loss2");
  const std::string second = model.gradient_of("w0");
  ASSERT_NE(second, "w0@GRAD");
  model.AddUpdates();
  EXPECT_EQ(InsertAllReduce(model.main(), {}), 1u);
  program::SetRole(model.Add("sgd",
                             {{"Param", {"w0"}},
                              {"LearningRate", {"rate"}},
                              {"Grad", {"w0@GRAD"}}},
                             {{"ParamOut", {"w0"}}}),
                   program::OpRole::kOptimize);
  EXPECT_EQ(InsertAllReduce(model.main(), {}), 1u);
  EXPECT_THAT(Print(model.main()),
              HasSubstr(second + " = c_allreduce_start(" + second +
                        ") bucket=0 blocking\nw0 = sgd(w0, rate, " + second +
                        ")\nw0@GRAD = c_allreduce_wait(w0@GRAD) bucket=1\n"
                        "w0 = sgd(w0, rate, w0@GRAD)\n"));
}

TEST(InsertAllReduce, UpdatesAreDescribedSoThatRanksCanCompareThem) {
  auto updates = [](std::vector<ModelProgram::Layer> layers) {
    ModelProgram model(layers);
    model.AddUpdates();
    InsertAllReduce(model.main(), {});
    for (size_t i = 0; i < model.block().num_ops(); ++i) {
      const program::AttrValue* attr = model.block().op(i).attr("updates");
      if (attr != nullptr) return std::get<std::string>(attr->value);
    }
    return std::string();
  };
  EXPECT_THAT(updates({{4, 3}, {3, 2}}), StartsWith("2 x sgd, "));
  EXPECT_EQ(updates({{4, 3}}), updates({{4, 3}}));
  EXPECT_NE(updates({{4, 3}}), updates({{4, 3}, {3, 2}}));
}

}  // namespace
}  // namespace fleet::plan
