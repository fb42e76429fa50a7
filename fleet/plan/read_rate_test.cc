// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/read_rate.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using table::RateOfStep;
using ::testing::HasSubstr;

// The counter of steps, as fluid.layers makes it.
constexpr char kStep[] = R"(
    {Out=['counter']} = increment(inputs={X=['counter']}, op_role = 16, step = 1.0)
    {Out=['step']} = cast(inputs={X=['counter']}, op_role = 16)
)";

Result<table::LearningRate> Read(
    const std::string& ops, double counter = -1.0,
    const std::map<std::string, table::LearningRate>& schedules = {}) {
  auto main = Parse("{" + std::string(kStep) + ops + "\n}");
  auto startup = Parse(
      "{\n{Out=['rate']} = fill_constant(inputs={}, value = 0.5)\n"
      "{Out=['counter']} = fill_constant(inputs={}, value = " +
      std::to_string(counter) + ")\n}");
  return ReadRate(ProgramIndex(*main), ProgramIndex(*startup), schedules,
                  "rate");
}

std::string Scale(const std::string& out, const std::string& x, double scale,
                  double bias = 0.0) {
  return "\n{Out=['" + out + "']} = scale(inputs={X=['" + x +
         "']}, bias = " + std::to_string(bias) +
         ", scale = " + std::to_string(scale) + ")";
}

std::string Unary(const std::string& type, const std::string& out,
                  const std::string& x, const std::string& attrs = "") {
  return "\n{Out=['" + out + "']} = " + type + "(inputs={X=['" + x + "']}" +
         attrs + ")";
}

std::string Binary(const std::string& type, const std::string& out,
                   const std::string& x, const std::string& y) {
  return "\n{Out=['" + out + "']} = " + type + "(inputs={X=['" + x +
         "'], Y=['" + y + "']})";
}

std::string Constant(const std::string& out, double value) {
  return "\n{Out=['" + out +
         "']} = fill_constant(inputs={}, value = " + std::to_string(value) +
         ")";
}

TEST(ReadRate, ANumberOfTheStartupProgram) {
  ASSERT_OK_AND_ASSIGN(const table::LearningRate rate, Read(""));
  EXPECT_EQ(rate.base, 0.5);
  EXPECT_EQ(rate.factor, 1.0);
  EXPECT_EQ(RateOfStep(rate, 1000), 0.5);
}

TEST(ReadRate, AFactorOfAParameter) {
  auto main = Parse("{" + Scale("mine", "rate", 0.25) + "\n}");
  auto startup =
      Parse("{\n{Out=['rate']} = fill_constant(inputs={}, value = 0.5)\n}");
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      ReadRate(ProgramIndex(*main), ProgramIndex(*startup), {}, "mine"));
  EXPECT_EQ(rate.base, 0.5);
  EXPECT_EQ(rate.factor, 0.25);
}

TEST(ReadRate, AScheduleFromOutside) {
  const table::LearningRate given{.base = 2.0,
                                  .schedule = table::NoamDecay{64, 100}};
  ASSERT_OK_AND_ASSIGN(const table::LearningRate rate,
                       Read("", -1.0, {{"rate", given}}));
  EXPECT_EQ(RateOfStep(rate, 400), RateOfStep(given, 400));
}

TEST(ReadRate, ExponentialDecay) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("periods", "step", 1.0 / 8) +
           Scale("power", "periods", std::log(0.5)) +
           Unary("exp", "e", "power") + Scale("rate", "e", 0.25)));
  EXPECT_EQ(RateOfStep(rate, 0), 0.25);
  EXPECT_NEAR(RateOfStep(rate, 12), 0.25 * std::pow(0.5, 1.5), 1e-6);
}

TEST(ReadRate, ExponentialDecayByStairs) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("t", "step", 1.0 / 8) + Scale("nudged", "t", 1.0, 0.000001) +
           Unary("floor", "periods", "nudged") +
           Scale("power", "periods", std::log(0.5)) +
           Unary("exp", "e", "power") + Scale("rate", "e", 0.25)));
  EXPECT_EQ(RateOfStep(rate, 7), 0.25);
  EXPECT_NEAR(RateOfStep(rate, 8), 0.125, 1e-6);
  EXPECT_NEAR(RateOfStep(rate, 15), 0.125, 1e-6);
}

TEST(ReadRate, InverseTimeDecay) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("periods", "step", 0.25) +
           Scale("below", "periods", 0.5, 1.0) +
           Unary("reciprocal", "r", "below") + Scale("rate", "r", 2.0)));
  EXPECT_EQ(RateOfStep(rate, 8), 2.0 / (1 + 0.5 * 2));
}

TEST(ReadRate, PolynomialDecay) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Constant("all", 10) + Binary("elementwise_min", "m", "step", "all") +
           Scale("share", "m", 0.1) + Scale("left", "share", -1.0, 1.0) +
           Unary("pow", "p", "left", ", factor = 2.0") +
           Scale("rate", "p", 0.75, 0.25)));
  EXPECT_NEAR(RateOfStep(rate, 5), 0.75 * 0.25 + 0.25, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 99), 0.25, 1e-9);
}

TEST(ReadRate, NoamDecayCountsFromOne) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Unary("pow", "falling", "step", ", factor = -0.5") +
               Scale("rising", "step", 0.001) +
               Binary("elementwise_min", "m", "falling", "rising") +
               Scale("rate", "m", 0.25),
           0.0));
  EXPECT_NEAR(RateOfStep(rate, 0), 0.25 * 0.001, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 49), 0.25 * 0.05, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 399), 0.25 / 20, 1e-9);
}

TEST(ReadRate, PiecewiseDecay) {
  std::string ops = Constant("r0", 1.0);
  const double values[] = {1.0, 0.5, 0.125};
  const double boundaries[] = {3, 6};
  for (int i = 0; i < 2; ++i) {
    const std::string n = std::to_string(i);
    ops += Constant("b" + n, boundaries[i]) +
           Binary("greater_equal", "past" + n, "step", "b" + n) +
           Unary("cast", "f" + n, "past" + n) +
           Scale("s" + n, "f" + n, values[i + 1] - values[i]) +
           Binary("elementwise_add", i == 1 ? "rate" : "r1", "r" + n, "s" + n);
  }
  ASSERT_OK_AND_ASSIGN(const table::LearningRate rate, Read(ops));
  EXPECT_EQ(RateOfStep(rate, 2), 1.0);
  EXPECT_EQ(RateOfStep(rate, 3), 0.5);
  EXPECT_EQ(RateOfStep(rate, 5), 0.5);
  EXPECT_EQ(RateOfStep(rate, 6), 0.125);
}

TEST(ReadRate, AWarmupRisesStepByStep) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Constant("after", 0.5) + Scale("rising", "step", 0.1, 0.05) +
           Constant("warm_steps", 4) +
           Binary("less_than", "warm", "step", "warm_steps") +
           "\n{Out=['rate']} = where(inputs={Condition=['warm'], "
           "X=['rising'], Y=['after']})"));
  EXPECT_NEAR(RateOfStep(rate, 0), 0.05, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 3), 0.35, 1e-9);
  EXPECT_EQ(RateOfStep(rate, 4), 0.5);
}

TEST(ReadRate, AWarmupOfASchedule) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("periods", "step", 0.5) + Scale("below", "periods", 0.5, 1.0) +
           Unary("reciprocal", "r", "below") + Scale("after", "r", 2.0) +
           Scale("rising", "step", 0.1, 0.05) + Constant("warm_steps", 4) +
           Binary("less_than", "warm", "step", "warm_steps") +
           "\n{Out=['rate']} = where(inputs={Condition=['warm'], "
           "X=['rising'], Y=['after']})"));
  EXPECT_NEAR(RateOfStep(rate, 3), 0.35, 1e-9);
  // The schedule has counted all the while.
  EXPECT_NEAR(RateOfStep(rate, 4), 2.0 / 2, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 8), 2.0 / 3, 1e-9);
}

TEST(ReadRate, CosineDecay) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("t", "step", 0.5) + Scale("nudged", "t", 1.0, 0.000001) +
           Unary("floor", "epoch", "nudged") +
           Scale("angle", "epoch", std::acos(-1.0) / 5) +
           Unary("cos", "wave", "angle") + Scale("rate", "wave", 0.25, 0.25)));
  for (uint64_t step = 0; step < 24; ++step) {
    const double epoch = std::floor(static_cast<double>(step) / 2);
    EXPECT_NEAR(RateOfStep(rate, step),
                0.25 * (std::cos(epoch * std::acos(-1.0) / 5) + 1), 1e-6)
        << step;
  }
}

TEST(ReadRate, PolynomialDecayInCycles) {
  ASSERT_OK_AND_ASSIGN(
      const table::LearningRate rate,
      Read(Scale("t", "step", 0.25, -0.0000001) + Unary("ceil", "c", "t") +
           Constant("one", 1) + Binary("elementwise_max", "times", "c", "one") +
           Scale("all", "times", 4.0) +
           Binary("elementwise_div", "share", "step", "all") +
           Scale("left", "share", -1.0, 1.0) +
           Unary("pow", "p", "left", ", factor = 1.0") +
           Scale("rate", "p", 0.75, 0.25)));
  EXPECT_NEAR(RateOfStep(rate, 3), 0.75 / 4 + 0.25, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 4), 0.25, 1e-9);
  EXPECT_NEAR(RateOfStep(rate, 6), 0.75 / 4 + 0.25, 1e-9);
}

TEST(ReadRate, SaysWhichSchedulesThereAre) {
  EXPECT_THAT(Read(Scale("wave", "step", 0.1) + Unary("sin", "c", "wave") +
                   Scale("rate", "c", 0.5, 0.5))
                  .status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("the learning rate rate comes from scale, "
                                 "and servers know the schedules")));
}

TEST(ReadRate, SaysWhenNothingGivesAValue) {
  auto empty = Parse("{}");
  EXPECT_THAT(
      ReadRate(ProgramIndex(*empty), ProgramIndex(*empty), {}, "rate").status(),
      StatusIs(StatusCode::kNotFound, HasSubstr("rate")));
}

}  // namespace
}  // namespace fleet::plan
