// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/check.h"

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

TEST(Check, PassesSilentlyAndEvaluatesOnce) {
  int calls = 0;
  FLEET_CHECK(++calls == 1, "calls ", calls);
  FLEET_CHECK_EQ(++calls, 2);
  FLEET_CHECK_LT(calls, 3, "calls ", calls);
  EXPECT_EQ(calls, 2);
}

TEST(Check, ValuesAreNotEvaluatedWhenItHolds) {
  int evaluated = 0;
  FLEET_CHECK(true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckDeathTest, AbortsWithPlaceConditionAndValues) {
  const int rank = 7;
  EXPECT_DEATH(FLEET_CHECK(rank < 4, "rank ", rank),
               "check_test.cc:.*check failed: rank < 4 rank 7");
  EXPECT_DEATH(FLEET_CHECK_EQ(rank, 4, "in ring"),
               "rank == 4 \\(7 against 4\\) in ring");
  EXPECT_DEATH(FLEET_CHECK_GE(4, rank), "4 >= rank \\(4 against 7\\)");
}

}  // namespace
}  // namespace fleet::base
