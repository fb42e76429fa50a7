// SPDX-License-Identifier: Apache-2.0

// For tests that end the wait of another thread: how they know that it waits.
//
//   SleepingThreads waiters;
//   std::thread receiver([&] {
//     waiters.Enter();
//     EXPECT_THAT(channel.NextSize(Soon()), HasCode(StatusCode::kInternal));
//   });
//   waiters.Await(1);
//   channel.Abort(Internal("enough"));

#ifndef FLEET_TESTING_SLEEPING_THREADS_H_
#define FLEET_TESTING_SLEEPING_THREADS_H_

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/testing/deadlines.h"

namespace fleet::testing {

// Whether the kernel has put a thread of this process to sleep: it waits for a
// futex, a descriptor or the time. A thread that has ended does not sleep.
inline bool IsAsleep(pid_t thread) {
  std::ifstream file(base::Concat("/proc/self/task/", thread, "/stat"));
  std::string stat;
  std::getline(file, stat);
  // The state follows the program's name, which ends with the last bracket.
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 &&
         stat[name_end + 2] == 'S';
}

// The threads of a test that are to be woken. Thread-safe.
class SleepingThreads final {
 public:
  // The calling thread says: my next call is the one that waits.
  void Enter() EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    threads_.push_back(::gettid());
  }

  // The calling thread says: that call is over.
  void Leave() EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    std::erase(threads_, ::gettid());
    ++num_left_;
  }

  // Returns when `count` threads have entered and all of them are asleep, or
  // have left. A failure of the test when that does not come to be.
  void Await(int count) EXCLUDES(mutex_) {
    const base::Deadline end = Soon();
    while (!AllAsleep(count)) {
      if (end.expired()) {
        ADD_FAILURE() << count << " threads should wait and do not";
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  bool AllAsleep(int count) EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    return static_cast<int>(threads_.size()) + num_left_ >= count &&
           std::all_of(threads_.begin(), threads_.end(), IsAsleep);
  }

  base::Mutex mutex_;
  std::vector<pid_t> threads_ GUARDED_BY(mutex_);
  int num_left_ GUARDED_BY(mutex_) = 0;
};

}  // namespace fleet::testing

#endif  // FLEET_TESTING_SLEEPING_THREADS_H_
