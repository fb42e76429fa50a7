// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/clock.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

TEST(RealClock, NeverGoesBack) {
  Clock::TimePoint last = RealClock().Now();
  for (int i = 0; i < 1000; ++i) {
    const Clock::TimePoint now = RealClock().Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, WaitEndsAtItsMoment) {
  Mutex mutex;
  CondVar never;
  const Clock::TimePoint when = RealClock().Now() + 5ms;
  {
    MutexLock lock(mutex);
    while (RealClock().WaitUntil(never, mutex, when)) {
    }
  }
  EXPECT_GE(RealClock().Now(), when);
}

TEST(FakeClock, MovesOnlyByHand) {
  FakeClock clock;
  const Clock::TimePoint start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(3s);
  EXPECT_EQ(clock.Now() - start, 3s);
  EXPECT_EQ(clock.After(2s), Deadline::At(start + 5s));
  EXPECT_TRUE(clock.After(Clock::Duration::max()).is_infinite());
}

TEST(FakeClock, WaiterSleepsUntilTimeIsMoved) {
  FakeClock clock;
  Mutex mutex;
  CondVar never;
  const Clock::TimePoint when = clock.Now() + 1h;
  std::atomic<bool> woken = false;
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (clock.WaitUntil(never, mutex, when)) {
    }
    woken = true;
  });
  clock.Advance(59min);
  EXPECT_FALSE(woken);
  clock.Advance(1min);
  waiter.join();
  EXPECT_TRUE(woken);
}

TEST(FakeClock, NotificationWakesBeforeTheMoment) {
  FakeClock clock;
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  bool timed_out = false;
  std::thread waiter([&] {
    MutexLock lock(mutex);
    while (!ready && !timed_out) {
      timed_out = !clock.WaitUntil(changed, mutex, clock.Now() + 1h);
    }
  });
  {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  }
  waiter.join();
  EXPECT_FALSE(timed_out);
}

TEST(FakeClockDeathTest, RefusesToGoBack) {
  FakeClock clock;
  EXPECT_DEATH(clock.Advance(-1s), "time goes back");
}

}  // namespace
}  // namespace fleet::base
