// SPDX-License-Identifier: Apache-2.0

// A point in time after which a wait gives up. Passed by value down the calls,
// so that retries and inner waits share the caller's patience.

#ifndef FLEET_BASE_DEADLINE_H_
#define FLEET_BASE_DEADLINE_H_

#include <chrono>

namespace fleet::base {

class Deadline final {
 public:
  // The monotonic clock: setting the machine's date does not move deadlines.
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // `patience` from now; one that is negative has already expired, one beyond
  // the clock's range (292 years) is infinite.
  static Deadline After(std::chrono::steady_clock::duration patience) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (patience >= TimePoint::max() - now) return Infinite();
    return Deadline(now + patience);
  }
  static Deadline At(TimePoint when) { return Deadline(when); }
  // Never expires. For waits that somebody else aborts.
  static Deadline Infinite() { return Deadline(TimePoint::max()); }

  bool is_infinite() const { return when_ == TimePoint::max(); }
  TimePoint time_point() const { return when_; }

  // Time left: zero once expired, Duration::max() when infinite.
  Duration remaining() const {
    if (is_infinite()) return Duration::max();
    const TimePoint now = std::chrono::steady_clock::now();
    return when_ <= now ? Duration::zero() : when_ - now;
  }
  bool expired() const { return remaining() == Duration::zero(); }

  // The earlier of the two.
  friend Deadline Earlier(Deadline a, Deadline b) {
    return a.when_ < b.when_ ? a : b;
  }
  friend bool operator==(Deadline, Deadline) = default;
  friend auto operator<=>(Deadline, Deadline) = default;

 private:
  explicit Deadline(TimePoint when) : when_(when) {}

  TimePoint when_;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_DEADLINE_H_
