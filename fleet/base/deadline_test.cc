// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/deadline.h"

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, CountsDownFromItsDuration) {
  const Deadline deadline = Deadline::After(1h);
  EXPECT_FALSE(deadline.expired());
  EXPECT_LE(deadline.remaining(), 1h);
  EXPECT_GT(deadline.remaining(), 30min);
}

TEST(Deadline, InThePastIsExpiredWithNothingLeft) {
  EXPECT_TRUE(Deadline::After(0s).expired());
  EXPECT_TRUE(Deadline::After(-1h).expired());
  EXPECT_EQ(Deadline::After(-1h).remaining(), 0ns);
}

TEST(Deadline, InfiniteNeverExpires) {
  EXPECT_FALSE(Deadline::Infinite().expired());
  EXPECT_TRUE(Deadline::Infinite().is_infinite());
  EXPECT_EQ(Deadline::Infinite().remaining(), Deadline::Duration::max());
}

TEST(Deadline, BeyondTheClockIsInfinite) {
  EXPECT_TRUE(Deadline::After(std::chrono::steady_clock::duration::max())
                  .is_infinite());
}

TEST(Deadline, EarlierPicksTheFirstToExpire) {
  const Deadline soon = Deadline::After(1s);
  const Deadline late = Deadline::After(1h);
  EXPECT_EQ(Earlier(soon, late), soon);
  EXPECT_EQ(Earlier(Deadline::Infinite(), late), late);
  EXPECT_LT(soon, late);
}

}  // namespace
}  // namespace fleet::base
