// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/loss_scaling.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/minimize.h"
#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using program::AmpLevel;
using program::Builder;
using program::DType;
using program::Program;
using program::Value;
using ::testing::HasSubstr;
using ::testing::Not;

class LossScalingTest : public ::testing::Test {
 protected:
  Value Loss() {
    return b_.Mean(b_.Fc(b_.Data("x", {-1, 4}), 1, {.bias = std::nullopt}));
  }
  // What Minimize makes of it, without types.
  std::string Trained(const Amp& amp) {
    EXPECT_OK(Minimize(b_, Loss(), {}, {.amp = amp}));
    return Print(main_);
  }

  Program main_, startup_;
  Builder b_{main_, startup_};
};

TEST_F(LossScalingTest, GradientsAreDividedAndBadStepsSkipped) {
  const std::string text = Trained({});
  EXPECT_THAT(text, HasSubstr("x.cast_fp16 = cast(x)\n"));
  EXPECT_THAT(text, HasSubstr("elementwise_mul(mean_0.tmp_0, "
                              "loss_scaling_0)\n"));
  EXPECT_THAT(text, HasSubstr("fc_0.w_0@GRAD, found_infinite_0 = "
                              "check_finite_and_unscale(fc_0.w_0@GRAD, "
                              "loss_scaling_0)\n"));
  EXPECT_THAT(text, HasSubstr("update_loss_scaling("));
  const program::Operation& sgd =
      main_.block(0).op(main_.block(0).num_ops() - 1);
  EXPECT_EQ(sgd.type, "sgd");
  EXPECT_EQ(sgd.input("SkipUpdate"),
            std::vector<std::string>{"found_infinite_0"});
}

TEST_F(LossScalingTest, AFixedScalingIsNotUpdated) {
  const std::string text =
      Trained({.scaling = {.initial = 16.0, .dynamic = false}});
  EXPECT_THAT(text, HasSubstr("check_finite_and_unscale("));
  EXPECT_THAT(text, Not(HasSubstr("update_loss_scaling(")));
}

TEST_F(LossScalingTest, Bfloat16IsNotScaled) {
  const std::string text = Trained({.precision = {.dtype = DType::kBfloat16}});
  EXPECT_THAT(text, HasSubstr("x.cast_bf16 = cast(x)\n"));
  EXPECT_THAT(text, Not(HasSubstr("loss_scaling_0")));
}

TEST_F(LossScalingTest, ALossOfAShortTypeIsCastFirst) {
  const std::string text = Trained({.precision = {.level = AmpLevel::kAll}});
  EXPECT_THAT(text, HasSubstr("cast_0.tmp_0 = cast(mean_0.tmp_0)\n"));
}

// The merge adds up what it is given: a bad step must not get there.
TEST_F(LossScalingTest, ABadStepIsNotMerged) {
  ASSERT_OK(Minimize(b_, Loss(), {}, {.amp = Amp{}, .merge = {.steps = 2}}));
  ASSERT_EQ(main_.num_blocks(), 3u);
  EXPECT_THAT(Print(main_), Not(HasSubstr("increment(")));
  EXPECT_EQ(main_.block(1).op(0).type, "increment");
  EXPECT_EQ(main_.block(2).parent(), 1);
}

TEST_F(LossScalingTest, NumbersThatMakeNoSenseAreRefused) {
  const auto refused = [](const LossScaling& options, const char* why) {
    EXPECT_THAT(CheckScaling(options),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused({.initial = 0.0}, "init_loss_scaling must be positive, not 0");
  refused({.incr_every_n_steps = 0}, "incr_every_n_steps");
  refused({.decr_every_n_nan_or_inf = -1}, "from 1 on, not -1");
  refused({.incr_ratio = 1.0}, "incr_ratio must be above 1");
  refused({.decr_ratio = 1.0}, "decr_ratio must lie between 0 and 1");
  EXPECT_OK(CheckScaling({}));
}

}  // namespace
}  // namespace fleet::plan
