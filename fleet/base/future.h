// SPDX-License-Identifier: Apache-2.0

// A value that another thread delivers. The Promise is the delivering end, the
// Future the waiting end; each has one owner and is moved, not copied.
//
//   Promise<Rows> promise;
//   Future<Rows> rows = promise.future();
//   ... another thread: promise.Set(std::move(rows_read));
//   ASSIGN_OR_RETURN(Rows r, rows.Wait(Deadline::After(30s)));
//
// Future<> carries no value, and its Wait returns a plain Status.

#ifndef FLEET_BASE_FUTURE_H_
#define FLEET_BASE_FUTURE_H_

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::base {

// Status for void, Result<T> otherwise.
template <typename T>
using Outcome = std::conditional_t<std::is_void_v<T>, Status, Result<T>>;

// What a Promise and its Future share. Either may die first, hence the
// shared_ptr around it.
template <typename T>
class FutureState final {
 public:
  // The first outcome stays; false when there was one already.
  bool Set(Outcome<T> outcome) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (done_) return false;
    done_ = true;
    outcome_.emplace(std::move(outcome));
    changed_.NotifyAll();
    return true;
  }

  // Ok once there is an outcome, which stays.
  Status WaitReady(Deadline deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!done_) {
      if (!changed_.WaitUntil(mutex_, deadline) && !done_) {
        return DeadlineExceeded("future: no outcome in time");
      }
    }
    return OkStatus();
  }

  Outcome<T> Wait(Deadline deadline) EXCLUDES(mutex_) {
    RETURN_IF_ERROR(WaitReady(deadline));
    MutexLock lock(mutex_);
    if (!outcome_.has_value()) {
      return FailedPrecondition("future: its outcome was already taken");
    }
    Outcome<T> outcome = *std::move(outcome_);
    outcome_.reset();
    return outcome;
  }

  bool done() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return done_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  std::optional<Outcome<T>> outcome_ GUARDED_BY(mutex_);
};

template <typename T = void>
class [[nodiscard]] Future final {
 public:
  explicit Future(std::shared_ptr<FutureState<T>> state)
      : state_(std::move(state)) {}
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;

  // Blocks until there is an outcome, and takes it. DeadlineExceeded when
  // `deadline` passes first; a later Wait may still succeed. Unavailable when
  // the promise was dropped without an outcome. FailedPrecondition when the
  // outcome was taken before.
  Outcome<T> Wait(Deadline deadline) { return state_->Wait(deadline); }

  // Ok as soon as Wait would return at once; takes nothing. What `check` says
  // when it is not ok, DeadlineExceeded when `deadline` passes first: neither
  // can be taken for an outcome, which may itself be DeadlineExceeded.
  Status WaitReady(Deadline deadline, const InterruptCheck& check = {}) {
    return WaitInterruptibly(deadline, check, [this](Deadline slice) {
      return state_->WaitReady(slice);
    });
  }

  // Whether Wait would return at once.
  bool ready() const { return state_->done(); }

  // Wakes the waiter with `why` (not ok), unless there is an outcome already.
  // What the promise delivers later is dropped. Any thread.
  void Abort(Status why) { state_->Set(std::move(why)); }

 private:
  std::shared_ptr<FutureState<T>> state_;
};

template <typename T = void>
class Promise final {
 public:
  Promise() : state_(std::make_shared<FutureState<T>>()) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    if (this != &other) {
      Drop();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Promise() { Drop(); }

  // Call once.
  Future<T> future() { return Future<T>(state_); }

  // Delivers. Of several outcomes the first counts; false for the others.
  bool Set(Outcome<T> outcome) { return state_->Set(std::move(outcome)); }

 private:
  void Drop() {
    if (state_ == nullptr) return;
    state_->Set(Unavailable("future: its promise was dropped"));
  }

  std::shared_ptr<FutureState<T>> state_;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_FUTURE_H_
