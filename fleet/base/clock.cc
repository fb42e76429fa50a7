// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/clock.h"

#include "fleet/base/check.h"

namespace fleet::base {
namespace {

class MonotonicClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }

  bool WaitUntil(CondVar& condition, Mutex& mutex,
                 TimePoint when) const override REQUIRES(mutex) {
    return condition.WaitUntil(mutex, Deadline::At(when));
  }
};

}  // namespace

Deadline Clock::After(Duration patience) const {
  const TimePoint now = Now();
  if (patience >= TimePoint::max() - now) return Deadline::Infinite();
  return Deadline::At(now + patience);
}

const Clock& RealClock() {
  static const MonotonicClock clock;
  return clock;
}

Clock::TimePoint FakeClock::Now() const {
  MutexLock lock(mutex_);
  return now_;
}

// Advance() cannot notify the condition: it would need the waiter's mutex,
// which may be gone by then. So a waiter looks at the time every millisecond.
bool FakeClock::WaitUntil(CondVar& condition, Mutex& mutex,
                          TimePoint when) const {
  while (Now() < when) {
    if (condition.WaitUntil(mutex,
                            Deadline::After(std::chrono::milliseconds(1)))) {
      return true;
    }
  }
  return false;
}

void FakeClock::Advance(Duration by) {
  FLEET_CHECK(by >= Duration::zero(), "time goes back by ", -by.count(), "ns");
  MutexLock lock(mutex_);
  now_ += by;
}

}  // namespace fleet::base
