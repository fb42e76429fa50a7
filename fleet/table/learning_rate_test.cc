// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/learning_rate.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::table {
namespace {

TEST(LearningRate, IsTheSameForEverAndTimesItsFactor) {
  EXPECT_DOUBLE_EQ(RateOfStep({.base = 0.1}, 0), 0.1);
  EXPECT_DOUBLE_EQ(RateOfStep({.base = 0.1, .factor = 3.0}, 1000), 0.3);
}

TEST(LearningRate, FallsExponentially) {
  const LearningRate rate{.base = 0.5,
                          .schedule = ExponentialDecay{0.9, 10, false}};
  EXPECT_DOUBLE_EQ(RateOfStep(rate, 0), 0.5);
  EXPECT_NEAR(RateOfStep(rate, 25), 0.5 * std::pow(0.9, 2.5), 1e-12);
  const LearningRate stairs{.base = 0.5,
                            .schedule = ExponentialDecay{0.9, 10, true}};
  EXPECT_NEAR(RateOfStep(stairs, 25), 0.5 * 0.81, 1e-12);
}

TEST(LearningRate, FallsByNaturalExponentAndByInverseTime) {
  EXPECT_NEAR(
      RateOfStep({.base = 0.5, .schedule = NaturalExpDecay{0.2, 5, false}}, 10),
      0.5 * std::exp(-0.4), 1e-12);
  EXPECT_NEAR(
      RateOfStep({.base = 0.5, .schedule = InverseTimeDecay{0.2, 5, true}}, 14),
      0.5 / 1.4, 1e-12);
}

TEST(LearningRate, WarmsUpAsNoamSays) {
  const LearningRate rate{.base = 2.0, .schedule = NoamDecay{64, 100}};
  EXPECT_DOUBLE_EQ(RateOfStep(rate, 0), 0.0);
  EXPECT_NEAR(RateOfStep(rate, 50), 2.0 / 8 * 50 / 1000, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 400), 2.0 / 8 / 20, 1e-12);
}

TEST(LearningRate, FallsByPolynomialAndByPieces) {
  EXPECT_NEAR(
      RateOfStep({.base = 1.0, .schedule = PolynomialDecay{10, 0.1, 2}}, 5),
      0.9 * 0.25 + 0.1, 1e-12);
  EXPECT_NEAR(
      RateOfStep({.base = 1.0, .schedule = PolynomialDecay{10, 0.1, 2}}, 99),
      0.1, 1e-12);
  const LearningRate pieces{.schedule =
                                PiecewiseDecay{{3, 6}, {1.0, 0.5, 0.1}}};
  EXPECT_DOUBLE_EQ(RateOfStep(pieces, 2), 1.0);
  EXPECT_DOUBLE_EQ(RateOfStep(pieces, 3), 0.5);
  EXPECT_DOUBLE_EQ(RateOfStep(pieces, 6), 0.1);
}

TEST(LearningRate, GoesDownAndUpAsACosine) {
  const LearningRate rate{.base = 0.5, .schedule = CosineDecay{4, 0.1}};
  EXPECT_DOUBLE_EQ(RateOfStep(rate, 0), 0.5);
  EXPECT_NEAR(RateOfStep(rate, 1), 0.1 + 0.4 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 2), 0.3, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 4), 0.1, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 6), 0.3, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 8), 0.5, 1e-12);
  // By epochs of three steps.
  const LearningRate stairs{.base = 0.5,
                            .schedule = CosineDecay{4, 0.1, 3, true}};
  EXPECT_DOUBLE_EQ(RateOfStep(stairs, 2), 0.5);
  EXPECT_NEAR(RateOfStep(stairs, 6), 0.3, 1e-12);
  EXPECT_NEAR(RateOfStep(stairs, 8), 0.3, 1e-12);
}

TEST(LearningRate, BeginsAnewAfterACosine) {
  const LearningRate same{.base = 1.0,
                          .schedule = CosineDecay{4, 0.0, 1, true, 1}};
  EXPECT_NEAR(RateOfStep(same, 4), 1.0, 1e-12);
  EXPECT_NEAR(RateOfStep(same, 402), 0.5, 1e-12);
  const LearningRate longer{.base = 1.0,
                            .schedule = CosineDecay{4, 0.0, 1, true, 2}};
  EXPECT_NEAR(RateOfStep(longer, 4), 1.0, 1e-12);
  EXPECT_NEAR(RateOfStep(longer, 8), 0.5, 1e-12);
  EXPECT_NEAR(RateOfStep(longer, 12), 1.0, 1e-12);
  EXPECT_NEAR(RateOfStep(longer, 20), 0.5, 1e-12);
}

TEST(LearningRate, GoesUpAndDownInCycles) {
  const LearningRate rate{.base = 0.1, .schedule = CyclicRate{0.5, 2, 4}};
  EXPECT_NEAR(RateOfStep(rate, 0), 0.1, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 1), 0.3, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 2), 0.5, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 3), 0.4, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 6), 0.1, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 8), 0.5, 1e-12);
  const LearningRate halves{.base = 0.1,
                            .schedule = CyclicRate{0.5, 2, 4, 0.5}};
  EXPECT_NEAR(RateOfStep(halves, 8), 0.3, 1e-12);
  const LearningRate falls{.base = 0.1,
                           .schedule = CyclicRate{0.5, 2, 4, 1.0, 0.9}};
  EXPECT_NEAR(RateOfStep(falls, 8), 0.1 + 0.4 * std::pow(0.9, 8), 1e-12);
}

TEST(LearningRate, FallsByPolynomialInLongerAndLongerCycles) {
  const LearningRate rate{.base = 1.0,
                          .schedule = PolynomialDecay{4, 0.0, 1, true}};
  EXPECT_NEAR(RateOfStep(rate, 0), 1.0, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 3), 0.25, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 4), 0.0, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 6), 0.25, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 9), 0.25, 1e-12);
}

TEST(LearningRate, WarmsUpBeforeItsSchedule) {
  LearningRate rate{.base = 1.0, .schedule = ExponentialDecay{0.5, 1, true}};
  rate.factor = 2.0;
  rate.warmup = {.steps = 4, .start = 0.1, .end = 0.5};
  EXPECT_NEAR(RateOfStep(rate, 0), 0.2, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 3), 0.8, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 4), 2.0 / 16, 1e-12);
  // The schedule begins when it is warm.
  rate.warmup.begin = 4;
  EXPECT_NEAR(RateOfStep(rate, 4), 2.0, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 6), 0.5, 1e-12);
  rate.warmup.stair = 2;
  EXPECT_NEAR(RateOfStep(rate, 1), 0.2, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 3), 0.6, 1e-12);
}

TEST(LearningRate, MayBeginLaterInItsSchedule) {
  const LearningRate rate{
      .base = 1.0, .schedule = NoamDecay{1, 100}, .first_step = 1};
  EXPECT_NEAR(RateOfStep(rate, 0), 1e-3, 1e-12);
  EXPECT_NEAR(RateOfStep(rate, 399), 1.0 / 20, 1e-12);
}

TEST(LearningRate, IsWhatWasToldLast) {
  LearningRate rate{.base = 0.5, .schedule = ToldRate{.name = "lr"}};
  rate.factor = 2.0;
  EXPECT_EQ(RateOfStep(rate, 7), 1.0);
  EXPECT_FALSE(TellRate(rate, "another", 9.0, 3, true));
  EXPECT_TRUE(TellRate(rate, "lr", 0.25, 3, true));
  EXPECT_TRUE(TellRate(rate, "lr", 0.25, 4, true));
  EXPECT_TRUE(TellRate(rate, "lr", 4.0, 6, true));
  // Twice in a step: the last one counts for it.
  EXPECT_TRUE(TellRate(rate, "lr", 0.125, 6, true));
  EXPECT_OK(CheckLearningRate(rate));
  const std::vector<double> expected = {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25};
  for (uint64_t step = 0; step < expected.size(); ++step) {
    EXPECT_EQ(RateOfStep(rate, step), expected[step]) << step;
  }
  ForgetToldRates(rate);
  EXPECT_EQ(RateOfStep(rate, 0), 0.25);
  EXPECT_TRUE(TellRate(rate, "lr", 1.0, 3, false));
  EXPECT_EQ(RateOfStep(rate, 0), 2.0);
  LearningRate constant{.base = 0.5};
  EXPECT_FALSE(TellRate(constant, "lr", 0.25, 3, true));
  ForgetToldRates(constant);
  EXPECT_EQ(RateOfStep(constant, 3), 0.5);
}

TEST(LearningRate, RefusesPiecesThatDoNotFit) {
  EXPECT_THAT(CheckLearningRate({.schedule = PiecewiseDecay{{3}, {1.0}}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckLearningRate({.schedule = ExponentialDecay{0.9, 0}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckLearningRate({.schedule = CosineDecay{0}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckLearningRate({.schedule = CosineDecay{4, 0, 1, true, 0.5}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckLearningRate({.schedule = CyclicRate{0.5, 2, 0}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckLearningRate({.warmup = {.steps = 3, .begin = 4}}),
              HasCode(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace fleet::table
