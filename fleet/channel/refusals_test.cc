// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/refusals.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::channel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Refusals, AreToldWhileTheyAreFew) {
  Refusals refusals;
  const Refusals::TimePoint now;
  for (int i = 0; i < Refusals::kTold - 1; ++i) {
    EXPECT_EQ(refusals.Line("a stranger", now), "a stranger");
  }
  EXPECT_EQ(refusals.Summary(now + Refusals::kInterval), std::nullopt);
}

TEST(Refusals, AreCountedWhenTheyAreMany) {
  Refusals refusals;
  const Refusals::TimePoint now;
  int lines = 0;
  for (int i = 0; i < 1000; ++i) {
    if (refusals.Line("stranger " + std::to_string(i), now)) ++lines;
  }
  EXPECT_EQ(lines, Refusals::kTold);
  EXPECT_EQ(refusals.Summary(now), std::nullopt);
  EXPECT_EQ(refusals.summary_due().time_point(), now + Refusals::kInterval);
  const Refusals::TimePoint later = now + Refusals::kInterval;
  const std::optional<std::string> summary = refusals.Summary(later);
  ASSERT_TRUE(summary);
  EXPECT_THAT(*summary, AllOf(HasSubstr("stranger 999"),
                              HasSubstr("and 994 more in 60 s")));
  EXPECT_EQ(refusals.Summary(later), std::nullopt);
  EXPECT_TRUE(refusals.summary_due().is_infinite());
  // A new interval begins.
  EXPECT_EQ(refusals.Line("another", later), "another");
}

}  // namespace
}  // namespace fleet::channel
