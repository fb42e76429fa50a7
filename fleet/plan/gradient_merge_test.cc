// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/gradient_merge.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/text.h"
#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using program::Builder;
using program::Program;
using program::Value;
using ::testing::HasSubstr;

class GradientMergeTest : public ::testing::Test {
 protected:
  Value Loss() {
    return b_.Mean(b_.Fc(b_.Data("x", {-1, 4}), 1, {.bias = std::nullopt}));
  }

  Program main_, startup_;
  Builder b_{main_, startup_};
};

TEST_F(GradientMergeTest, OneStepIsAPlainUpdate) {
  ASSERT_OK(Minimize(b_, Loss(), {}, {.merge = {.steps = 1}}));
  const std::string merged = ToString(main_);
  Program main, startup;
  Builder b(main, startup);
  const Value loss =
      b.Mean(b.Fc(b.Data("x", {-1, 4}), 1, {.bias = std::nullopt}));
  ASSERT_OK(Minimize(b, loss, {}));
  EXPECT_EQ(merged, ToString(main));
}

TEST_F(GradientMergeTest, UpdatesRunInEveryLastStepOnly) {
  ASSERT_OK(Minimize(b_, Loss(), {}, {.merge = {.steps = 3}}));
  ASSERT_EQ(main_.num_blocks(), 2u);
  const std::string text = Print(main_);
  EXPECT_THAT(text, HasSubstr("gradient_merge_step_0 = increment("
                              "gradient_merge_step_0)\n"));
  EXPECT_THAT(text, HasSubstr("conditional_block("));
  EXPECT_THAT(text, Not(HasSubstr("sgd")));
  const program::Block& body = main_.block(1);
  ASSERT_EQ(body.num_ops(), 3u);
  EXPECT_EQ(body.op(0).type, "scale");
  EXPECT_EQ(body.op(1).type, "sgd");
  EXPECT_EQ(body.op(1).input("Grad"), body.op(0).output("Out"));
  EXPECT_EQ(body.op(2).output("Out"),
            std::vector<std::string>{"fc_0.w_0@GRAD@GradientMerge"});
  EXPECT_TRUE(
      main_.block(0).FindHere("fc_0.w_0@GRAD@GradientMerge")->persistable);
}

TEST_F(GradientMergeTest, TheSumIsNotDividedWithoutAverage) {
  ASSERT_OK(
      Minimize(b_, Loss(), {}, {.merge = {.steps = 4, .average = false}}));
  const program::AttrValue* scale = main_.block(1).op(0).attr("scale");
  EXPECT_EQ(std::get<double>(scale->value), 1.0);
}

TEST_F(GradientMergeTest, AnErrorOfTheUpdateIsReturned) {
  ASSERT_OK_AND_ASSIGN(const Gradients gradients, Backward(b_, Loss()));
  EXPECT_THAT(MergeGradients(b_, gradients, {.steps = 2},
                             [](const Gradients&) {
                               return FailedPrecondition("not today");
                             }),
              StatusIs(StatusCode::kFailedPrecondition, "not today"));
}

TEST_F(GradientMergeTest, StepsAreAtLeastOne) {
  EXPECT_THAT(Minimize(b_, Loss(), {}, {.merge = {.steps = 0}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not 0")));
}

}  // namespace
}  // namespace fleet::plan
