// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::vector<Gradient>& gradients) {
  std::vector<std::string> names;
  for (const Gradient& gradient : gradients) names.push_back(gradient.name);
  return names;
}

TEST(Gradients, InTheOrderInWhichTheyBecomeReady) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  std::vector<Gradient> gradients = FindGradients(model.block());
  ASSERT_THAT(Names(gradients), ElementsAre("w1@GRAD", "w0@GRAD"));
  EXPECT_EQ(gradients[0].parameter, "w1");
  EXPECT_EQ(gradients[0].byte_size, 3 * 2 * sizeof(float));
  EXPECT_EQ(model.block().op(gradients[0].made_by).type, "matmul_v2_grad");
  EXPECT_EQ(model.block().op(gradients[1].used_by).type, "sgd");
  EXPECT_LT(gradients[0].made_by, gradients[1].made_by);
}

TEST(Gradients, WithoutUpdatesThereAreNone) {
  ModelProgram model({{4, 3}});
  EXPECT_THAT(FindGradients(model.block()), IsEmpty());
}

TEST(Gradients, FrozenParametersHaveNone) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  model.block().FindHere("w0")->trainable = false;
  EXPECT_THAT(Names(FindGradients(model.block())), ElementsAre("w1@GRAD"));
}

TEST(Gradients, TheFirstUseCountsNotTheUpdate) {
  ModelProgram model({{4, 3}});
  const size_t clip = model.block().num_ops();
  program::SetRole(
      model.Add("relu", {{"X", {"w0@GRAD"}}}, {{"Out", {"clipped"}}}),
      program::OpRole::kOptimize);
  program::SetRole(model.Add("sgd",
                             {{"Param", {"w0"}},
                              {"LearningRate", {"rate"}},
                              {"Grad", {"clipped"}}},
                             {{"ParamOut", {"w0"}}}),
                   program::OpRole::kOptimize);
  std::vector<Gradient> gradients = FindGradients(model.block());
  ASSERT_THAT(Names(gradients), ElementsAre("w0@GRAD"));
  EXPECT_EQ(gradients[0].used_by, clip);
}

TEST(Gradients, ASumOfPartsIsReadyWithItsSum) {
  ModelProgram model({{4, 4}});
  // A second use of the parameter, and a second backward over both uses.
  model.Add("matmul_v2", {{"X", {"r0"}}, {"Y", {"w0"}}}, {{"Out", {"again"}}});
  model.Add("reduce_mean", {{"X", {"again"}}}, {{"Out", {"loss2"}}});
  model.AddBackward("loss2");
  model.AddUpdates();
  std::vector<Gradient> gradients = FindGradients(model.block());
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].name, model.gradient_of("w0"));
  EXPECT_EQ(model.block().op(gradients[0].made_by).type, "sum");
}

TEST(Gradients, WhatIsExchangedAlreadyIsLeftOut) {
  ModelProgram model({{4, 3}});
  program::SetRole(model.block().Append({.type = "c_allreduce_start",
                                         .inputs = {{"X", {"w0@GRAD"}}},
                                         .outputs = {{"Out", {"w0@GRAD"}}}}),
                   program::OpRole::kBackward);
  model.AddUpdates();
  EXPECT_THAT(FindGradients(model.block()), IsEmpty());
}

}  // namespace
}  // namespace fleet::plan
