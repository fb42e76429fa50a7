// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/interrupt.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/queue.h"
#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

TEST(WaitInterruptibly, StopsWhenTheCheckSaysSo) {
  BoundedQueue<int> queue(1);
  int asked = 0;
  const InterruptCheck check = [&]() -> Status {
    if (++asked < 3) return OkStatus();
    return Unavailable("interrupted");
  };
  EXPECT_THAT(WaitInterruptibly(Deadline::Infinite(), check,
                                [&](Deadline d) { return queue.Pop(d); }),
              StatusIs(StatusCode::kUnavailable, "interrupted"));
  EXPECT_EQ(asked, 3);
}

TEST(WaitInterruptibly, AsksBeforeItWaits) {
  int waited = 0;
  EXPECT_THAT(WaitInterruptibly(
                  Deadline::Infinite(), [] { return Unavailable("stop"); },
                  [&](Deadline) -> Status {
                    ++waited;
                    return OkStatus();
                  }),
              HasCode(StatusCode::kUnavailable));
  EXPECT_EQ(waited, 0);
}

TEST(WaitInterruptibly, ReturnsTheOutcomeOfTheWait) {
  BoundedQueue<int> queue(1);
  std::thread producer([&] { EXPECT_OK(queue.Push(5, Deadline::Infinite())); });
  const Result<std::optional<int>> item = WaitInterruptibly(
      Deadline::Infinite(), [] { return OkStatus(); },
      [&](Deadline d) { return queue.Pop(d); });
  EXPECT_EQ(item.value(), 5);
  producer.join();
}

TEST(WaitInterruptibly, KeepsTheCallersDeadline) {
  BoundedQueue<int> queue(1);
  auto pop = [&](Deadline d) { return queue.Pop(d); };
  const InterruptCheck fine = [] { return OkStatus(); };
  for (const InterruptCheck& check : {fine, InterruptCheck()}) {
    EXPECT_THAT(WaitInterruptibly(Deadline::After(2ms), check, pop),
                HasCode(StatusCode::kDeadlineExceeded));
  }
}

TEST(Interrupt, EndsASleep) {
  Interrupt interrupt;
  EXPECT_OK(interrupt.status());
  std::thread other([&] { interrupt.Raise(Unavailable("shutting down")); });
  EXPECT_THAT(interrupt.SleepUntil(Deadline::Infinite()),
              StatusIs(StatusCode::kUnavailable, "shutting down"));
  other.join();
  interrupt.Raise(Internal("later"));
  EXPECT_EQ(interrupt.SleepUntil(Deadline::Infinite()),
            Unavailable("shutting down"));
}

TEST(Interrupt, SleepsUntilItsDeadline) {
  Interrupt interrupt;
  const Deadline deadline = Deadline::After(2ms);
  EXPECT_OK(interrupt.SleepUntil(deadline));
  EXPECT_TRUE(deadline.expired());
}

}  // namespace
}  // namespace fleet::base
