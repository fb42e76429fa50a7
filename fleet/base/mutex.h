// SPDX-License-Identifier: Apache-2.0

// A mutex that Clang's thread-safety analysis understands, and a condition
// variable whose waits have deadlines.
//
//   class Counter {
//     void Add(int n) { MutexLock lock(mutex_); total_ += n; }
//     Mutex mutex_;
//     int total_ GUARDED_BY(mutex_) = 0;
//   };
//
// With other compilers the annotations are empty.

#ifndef FLEET_BASE_MUTEX_H_
#define FLEET_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "fleet/base/deadline.h"

#if defined(__clang__)
#define FLEET_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define FLEET_THREAD_ATTRIBUTE(x)
#endif

// On a member: touched only while `mutex` is held.
#ifndef GUARDED_BY
#define GUARDED_BY(mutex) FLEET_THREAD_ATTRIBUTE(guarded_by(mutex))
#endif
// On a function (named ...Locked): the caller holds `mutex`.
#ifndef REQUIRES
#define REQUIRES(...) FLEET_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#endif
// On a function: the caller does not hold `mutex`.
#ifndef EXCLUDES
#define EXCLUDES(...) FLEET_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#endif

namespace fleet::base {

class FLEET_THREAD_ATTRIBUTE(capability("mutex")) Mutex final {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() FLEET_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() FLEET_THREAD_ATTRIBUTE(release_capability()) {
    mutex_.unlock();
  }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds `mutex` for the length of a scope.
class FLEET_THREAD_ATTRIBUTE(scoped_lockable) MutexLock final {
 public:
  explicit MutexLock(Mutex& mutex)
      FLEET_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() FLEET_THREAD_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }

 private:
  Mutex& mutex_;
};

// Waits give `mutex` free and hold it again on return. They may wake without
// reason, so put them in a loop over the condition:
//
//   while (!ready_) {
//     if (!changed_.WaitUntil(mutex_, deadline)) return DeadlineExceeded(...);
//   }
class CondVar final {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // False when `deadline` has passed, true otherwise.
  bool WaitUntil(Mutex& mutex, Deadline deadline) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    bool in_time = true;
    if (deadline.is_infinite()) {
      condition_.wait(lock);
    } else {
      in_time = condition_.wait_until(lock, deadline.time_point()) ==
                std::cv_status::no_timeout;
    }
    lock.release();
    return in_time;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_MUTEX_H_
