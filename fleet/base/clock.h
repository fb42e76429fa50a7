// SPDX-License-Identifier: Apache-2.0

// Time as an argument. What measures time or waits for a moment (heartbeats,
// retries) takes a Clock&, so that a test moves time by hand.

#ifndef FLEET_BASE_CLOCK_H_
#define FLEET_BASE_CLOCK_H_

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"

namespace fleet::base {

// All functions are thread-safe.
class Clock {
 public:
  using TimePoint = Deadline::TimePoint;
  using Duration = Deadline::Duration;

  virtual ~Clock() = default;

  // Never goes back.
  virtual TimePoint Now() const = 0;

  // Waits on `condition` until it is notified (true) or this clock reads `when`
  // (false). As CondVar::WaitUntil, it may return true without reason.
  virtual bool WaitUntil(CondVar& condition, Mutex& mutex, TimePoint when) const
      REQUIRES(mutex) = 0;

  // A Deadline `patience` from now on this clock. Only for this clock's
  // WaitUntil, unless the clock is the real one.
  Deadline After(Duration patience) const;
};

// The machine's monotonic clock. Lives as long as the program.
const Clock& RealClock();

// A clock that stands still until Advance() moves it.
class FakeClock final : public Clock {
 public:
  FakeClock() = default;

  TimePoint Now() const override;
  bool WaitUntil(CondVar& condition, Mutex& mutex,
                 TimePoint when) const override REQUIRES(mutex);

  // Moves time forward. Waiters that this satisfies return soon after, not
  // necessarily before Advance() does.
  void Advance(Duration by);

 private:
  mutable Mutex mutex_;
  TimePoint now_ GUARDED_BY(mutex_){};
};

}  // namespace fleet::base

#endif  // FLEET_BASE_CLOCK_H_
