// SPDX-License-Identifier: Apache-2.0

// Work in the background that lets requests go first.
//
//   Pace pace([&] { return table.num_requests(); });
//   while (more) {
//     ...  // some microseconds of work
//     pace.Rest();
//   }

#ifndef FLEET_BASE_PACE_H_
#define FLEET_BASE_PACE_H_

#include <chrono>
#include <cstdint>
#include <functional>

namespace fleet::base {

// Of one thread, which makes it and calls it.
class Pace final {
 public:
  // `num_requests` tells how many requests came so far.
  explicit Pace(std::function<uint64_t()> num_requests);

  // Where requests came during the work since the last call, sleeps for
  // kTimes as long as that work kept a core busy, so that it takes a small
  // share of a core. Where none came, returns false at once: nobody is in a
  // hurry.
  bool Rest();

  static constexpr int kTimes = 10;

 private:
  const std::function<uint64_t()> num_requests_;
  uint64_t seen_ = 0;
  std::chrono::nanoseconds rested_;  // the thread's time on a core by then
};

}  // namespace fleet::base

#endif  // FLEET_BASE_PACE_H_
