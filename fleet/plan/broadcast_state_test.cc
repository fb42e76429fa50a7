// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/broadcast_state.h"

#include <gtest/gtest.h>

#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

TEST(BroadcastState, EverythingThatLastsComesFromRankZero) {
  ModelProgram model({{4, 3}, {3, 2}});
  EXPECT_TRUE(BroadcastState(model.startup()));
  EXPECT_EQ(Print(model.startup()),
            "rate = fill_constant()\n"
            "w0 = uniform_random()\n"
            "w1 = uniform_random()\n"
            "rate, w0, w1 = c_broadcast_state(rate, w0, w1)\n");
}

TEST(BroadcastState, OnceMoreCoversWhatWasAdded) {
  ModelProgram model({{4, 3}});
  EXPECT_TRUE(BroadcastState(model.startup()));
  program::Block& block = model.startup().block(0);
  block.AddVariable({.name = "moment", .persistable = true});
  block.AddVariable({.name = "passing"});
  block.Append(
      {.type = "fill_constant", .outputs = {{"Out", {"moment", "passing"}}}});
  EXPECT_TRUE(BroadcastState(model.startup()));
  EXPECT_EQ(Print(model.startup()),
            "rate = fill_constant()\n"
            "w0 = uniform_random()\n"
            "moment, passing = fill_constant()\n"
            "rate, w0, moment = c_broadcast_state(rate, w0, moment)\n");
}

TEST(BroadcastState, NothingToDo) {
  program::Program empty;
  EXPECT_FALSE(BroadcastState(empty));
  EXPECT_EQ(Print(empty), "");
}

}  // namespace
}  // namespace fleet::plan
