// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace fleet::cluster {
namespace {

TEST(ReadEnvironment, IsThatOfThisProcessNow) {
  ASSERT_EQ(setenv("FLEET_TEST_VARIABLE", "a=b", 1), 0);
  ASSERT_EQ(setenv("FLEET_TEST_EMPTY", "", 1), 0);
  const Environment before = ReadEnvironment();
  EXPECT_EQ(Find(before, "FLEET_TEST_VARIABLE"), "a=b");
  EXPECT_EQ(Find(before, "FLEET_TEST_EMPTY"), "");
  ASSERT_EQ(unsetenv("FLEET_TEST_VARIABLE"), 0);
  EXPECT_EQ(Find(ReadEnvironment(), "FLEET_TEST_VARIABLE"), std::nullopt);
  EXPECT_EQ(Find(before, "FLEET_TEST_VARIABLE"), "a=b");
}

}  // namespace
}  // namespace fleet::cluster
