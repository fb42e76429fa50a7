// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/remove_unread.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A program whose update of w, by adam with a falling rate, was taken out. What
// is left of it: the schedule, which counts steps, and the powers of adam.
constexpr char kProgram[] = R"({
    var x : LOD_TENSOR.shape(-1, 4).dtype(float32).stop_gradient(True).data(True)
    persist trainable param w : LOD_TENSOR.shape(4, 2).dtype(float32)
    persist var moment : LOD_TENSOR.shape(4, 2).dtype(float32)
    persist var power : LOD_TENSOR.shape(1).dtype(float32)
    persist var counter : LOD_TENSOR.shape(1).dtype(int64)
    persist var base : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['counter']} = increment(inputs={X=['counter']}, op_role = 16, step = 1.0)
    {Out=['step']} = cast(inputs={X=['counter']}, op_role = 16)
    {Out=['factor']} = exp(inputs={X=['step']}, op_role = 16)
    {Out=['rate']} = elementwise_mul(inputs={X=['base'], Y=['factor']}, op_role = 16)
    {Out=['h']} = matmul_v2(inputs={X=['x'], Y=['w']})
    {Out=['w@GRAD']} = matmul_v2_grad(inputs={X=['x'], Y=['w']}, op_role = 1)
    {Out=['cut']} = clip(inputs={X=['w@GRAD']}, max = 1.0, min = -1.0, op_role = 2)
    {Out=['power']} = scale(inputs={X=['power']}, op_role = 2, scale = 0.5)
MORE})";

std::unique_ptr<program::Program> Program(const std::string& more = "") {
  std::string text = kProgram;
  text.replace(text.find("MORE"), 4, more);
  return Parse(text);
}

// What adam read.
const std::set<std::string> kRead = {"w",    "w@GRAD", "cut",
                                     "rate", "moment", "power"};

constexpr char kLeft[] =
    "h = matmul_v2(x, w)\n"
    "w@GRAD = matmul_v2_grad(x, w)\n";

TEST(RemoveUnread, WhatWorkedForUpdatesAloneGoesWithItsState) {
  const auto program = Program();
  EXPECT_THAT(RemoveUnread(*program, kRead, {}),
              UnorderedElementsAre("moment", "power", "counter", "base"));
  EXPECT_EQ(Print(*program), kLeft);
}

TEST(RemoveUnread, WhatIsKeptIsNotState) {
  const auto program = Program();
  EXPECT_THAT(RemoveUnread(*program, kRead, {"power", "base"}),
              UnorderedElementsAre("moment", "counter"));
  EXPECT_EQ(Print(*program), kLeft);
}

TEST(RemoveUnread, WhatAnotherOperationReadsStaysAndAllThatMakesIt) {
  const auto program =
      Program("{Out=['shown']} = scale(inputs={X=['factor']}, scale = 1.0)\n");
  EXPECT_THAT(RemoveUnread(*program, kRead, {}),
              UnorderedElementsAre("moment", "power", "base"));
  EXPECT_EQ(Print(*program),
            "counter = increment(counter)\n"
            "step = cast(counter)\n"
            "factor = exp(step)\n" +
                std::string(kLeft) + "shown = scale(factor)\n");
}

// The average of another rule, say.
TEST(RemoveUnread, WhatAnotherUpdateReadsStays) {
  const auto program = Program(
      "{ParamOut=['v']} = sgd(inputs={Param=['v'], Grad=['cut'], "
      "LearningRate=['rate']}, op_role = 2)\n");
  EXPECT_THAT(RemoveUnread(*program, kRead, {}),
              UnorderedElementsAre("moment", "power"));
  EXPECT_EQ(Print(*program),
            "counter = increment(counter)\n"
            "step = cast(counter)\n"
            "factor = exp(step)\n"
            "rate = elementwise_mul(base, factor)\n" +
                std::string(kLeft) +
                "cut = clip(w@GRAD)\n"
                "v = sgd(v, cut, rate)\n");
}

TEST(RemoveUnread, ForwardAndBackwardAreNotTouched) {
  const auto program = Program();
  EXPECT_THAT(RemoveUnread(*program, {"h", "x", "w"}, {}), IsEmpty());
  EXPECT_EQ(Print(*program), Print(*Program()));
}

}  // namespace
}  // namespace fleet::plan
