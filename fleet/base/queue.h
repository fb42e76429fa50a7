// SPDX-License-Identifier: Apache-2.0

// A queue of bounded length between threads: producers wait when it is full,
// consumers when it is empty. It ends in one of two ways:
//   Close()  no more comes in; consumers still get what is there, then the end.
//   Abort()  all stops now; what is there is taken out, all waiters wake.

#ifndef FLEET_BASE_QUEUE_H_
#define FLEET_BASE_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::base {

// Thread-safe. Nobody may be waiting when it is destroyed: Close or Abort, and
// join the threads, first.
template <typename T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {
    FLEET_CHECK(capacity > 0);
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Waits for room. DeadlineExceeded when `deadline` passes first,
  // FailedPrecondition after Close(), and what Abort() was given after that;
  // in these cases `item` is untouched.
  Status Push(T&& item, Deadline deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (true) {
      RETURN_IF_ERROR(aborted_);
      if (closed_) return FailedPrecondition("queue: push after Close()");
      if (items_.size() < capacity_) break;
      if (!has_room_.WaitUntil(mutex_, deadline) && deadline.expired() &&
          items_.size() >= capacity_ && !closed_ && aborted_.ok()) {
        return DeadlineExceeded("queue: full with ", capacity_, " items");
      }
    }
    items_.push_back(std::move(item));
    has_items_.NotifyOne();
    return OkStatus();
  }
  Status Push(const T& item, Deadline deadline) {
    return Push(T(item), deadline);
  }

  // Waits for an item. nullopt when the queue is closed and empty: the end.
  // DeadlineExceeded when `deadline` passes first; what Abort() was given
  // after that.
  Result<std::optional<T>> Pop(Deadline deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (true) {
      RETURN_IF_ERROR(aborted_);
      if (!items_.empty()) break;
      if (closed_) return std::optional<T>();
      if (!has_items_.WaitUntil(mutex_, deadline) && deadline.expired() &&
          items_.empty() && !closed_ && aborted_.ok()) {
        return DeadlineExceeded("queue: empty");
      }
    }
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    has_room_.NotifyOne();
    return item;
  }

  void Close() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    closed_ = true;
    has_room_.NotifyAll();
    has_items_.NotifyAll();
  }

  // `why` must not be ok; of several the first counts. Returns what was in the
  // queue, for a caller that owes somebody an answer.
  std::deque<T> Abort(Status why) EXCLUDES(mutex_) {
    FLEET_CHECK(!why.ok());
    std::deque<T> dropped;
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return dropped;
    aborted_ = std::move(why);
    dropped.swap(items_);
    has_room_.NotifyAll();
    has_items_.NotifyAll();
    return dropped;
  }

  size_t size() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar has_room_;
  CondVar has_items_;
  std::deque<T> items_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  Status aborted_ GUARDED_BY(mutex_);
};

}  // namespace fleet::base

#endif  // FLEET_BASE_QUEUE_H_
