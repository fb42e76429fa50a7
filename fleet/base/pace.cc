// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/pace.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

namespace fleet::base {
namespace {

// Less work than this is not worth a system call: it is counted with what
// follows. A request takes about as long.
constexpr std::chrono::microseconds kLeastWork{50};

// A single piece of work that took long, as a slow system call, must not stop
// the work for seconds.
constexpr std::chrono::milliseconds kLongestRest{20};

// Not the time of a clock: a thread that waits for a core or for the disk is in
// nobody's way.
std::chrono::nanoseconds TimeOnCore() {
  timespec time = {};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

Pace::Pace(std::function<uint64_t()> num_requests)
    : num_requests_(std::move(num_requests)),
      seen_(num_requests_()),
      rested_(TimeOnCore()) {}

bool Pace::Rest() {
  const std::chrono::nanoseconds worked = TimeOnCore() - rested_;
  if (worked < kLeastWork) return false;
  rested_ += worked;
  const uint64_t came = num_requests_();
  if (came == seen_) return false;
  seen_ = came;
  std::this_thread::sleep_for(
      std::min<std::chrono::nanoseconds>(kTimes * worked, kLongestRest));
  return true;
}

}  // namespace fleet::base
