// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/pace.h"

#include <ctime>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

nanoseconds TimeOnCore() {
  timespec time = {};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void KeepACoreBusyFor(nanoseconds how_long) {
  const nanoseconds end = TimeOnCore() + how_long;
  while (TimeOnCore() < end) {
  }
}

// A busy machine makes both longer, never shorter.
TEST(Pace, RestsSeveralTimesAsLongAsItWorkedWhileRequestsCome) {
  uint64_t num_requests = 0;
  Pace pace([&] { return num_requests; });
  const steady_clock::time_point begin = steady_clock::now();
  constexpr nanoseconds kPiece = std::chrono::milliseconds(1);
  constexpr int kPieces = 10;
  for (int i = 0; i < kPieces; ++i) {
    KeepACoreBusyFor(kPiece);
    ++num_requests;
    (void)pace.Rest();
  }
  EXPECT_GE(steady_clock::now() - begin, kPieces * (1 + Pace::kTimes) * kPiece);
}

TEST(Pace, AsksForRequestsOnlyAfterWorkThatIsWorthIt) {
  int asked = 0;
  Pace pace([&] { return static_cast<uint64_t>(++asked); });
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 3; ++i) (void)pace.Rest();
  EXPECT_EQ(asked, 1);
  KeepACoreBusyFor(std::chrono::milliseconds(1));
  (void)pace.Rest();
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace fleet::base
