// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/minimize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

using program::Builder;
using program::Program;
using program::Value;
using ::testing::HasSubstr;

// What the operations are is compared with Python's in programs_test.cc.
class MinimizeTest : public ::testing::Test {
 protected:
  Value Loss() { return b_.Mean(b_.Fc(b_.Data("x", {-1, 4}), 1)); }

  Program main_, startup_;
  Builder b_{main_, startup_};
};

TEST_F(MinimizeTest, ALossHasOneElement) {
  const Value x = b_.Fc(b_.Data("x", {-1, 4}), 1);
  EXPECT_THAT(Minimize(b_, x, {}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("fc_0.tmp_1 must have one element")));
}

TEST_F(MinimizeTest, WhatFailedBeforeIsTheError) {
  const Value x = b_.Data("x", {2, 3});
  EXPECT_THAT(Minimize(b_, b_.Mean(b_.MatmulV2(x, x)), {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("matmul_v2")));
}

TEST_F(MinimizeTest, OnlySomeRulesHaveDecoupledDecay) {
  EXPECT_THAT(Minimize(b_, Loss(), {.decoupled_decay = 0.1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Lars")));
}

TEST_F(MinimizeTest, TheRateMayBeAVariable) {
  const Value rate =
      b_.NewPersistable("rate", {1}, program::DType::kFloat32, 0.5);
  ASSERT_OK(Minimize(b_, Loss(), {.learning_rate = rate}));
  EXPECT_THAT(ToString(main_), HasSubstr("LearningRate=['rate']"));
  EXPECT_EQ(main_.block(0).FindHere("learning_rate_0"), nullptr);
}

TEST_F(MinimizeTest, AParameterMayHaveSettingsOfItsOwn) {
  const Optimizer optimizer{.rule = optim::Momentum{},
                            .parameters = {{"fc_0.b_0",
                                            {.rule = optim::Adam{},
                                             .learning_rate = 0.5,
                                             .decay = program::L2Decay{0.1}}}}};
  ASSERT_OK(Minimize(b_, Loss(), optimizer));
  const std::string text = ToString(main_);
  EXPECT_THAT(text, HasSubstr("fc_0.w_0_velocity_0"));
  EXPECT_THAT(text, HasSubstr("fc_0.b_0_moment1_0"));
  EXPECT_THAT(text, HasSubstr("scale(inputs={X=['learning_rate_0']}"));
  EXPECT_THAT(text, HasSubstr("scale(inputs={X=['fc_0.b_0']}"));
}

TEST_F(MinimizeTest, VariablesOfAnEarlierCallAreUsedAgain) {
  ASSERT_OK_AND_ASSIGN(Gradients gradients, Backward(b_, Loss()));
  OptimizerVariables made;
  const Optimizer optimizer{.rule = optim::Momentum{}};
  ASSERT_OK(ApplyGradients(b_, gradients, optimizer, {}, &made));
  EXPECT_EQ(made.learning_rate, "learning_rate_0");
  EXPECT_EQ((made.states[{"fc_0.w_0", "velocity"}]), "fc_0.w_0_velocity_0");
  const size_t before = main_.block(0).variables().size();
  ASSERT_OK(ApplyGradients(b_, gradients, optimizer, {}, &made));
  EXPECT_EQ(main_.block(0).variables().size(), before);
}

TEST_F(MinimizeTest, WhatIsSkippedStaysAsItIs) {
  ASSERT_OK_AND_ASSIGN(Gradients gradients, Backward(b_, Loss()));
  const Value skip = b_.Data("skip", {1}, program::DType::kBool);
  ASSERT_OK(ApplyGradients(b_, gradients, {.rule = optim::Adamax{}}, skip));
  const std::string text = ToString(main_);
  EXPECT_THAT(text, HasSubstr("SkipUpdate=['skip']"));
  EXPECT_THAT(text, HasSubstr("where(inputs={Condition=['skip']"));
}

}  // namespace
}  // namespace fleet::plan
