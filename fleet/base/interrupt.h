// SPDX-License-Identifier: Apache-2.0

// Waits that a person can stop. A blocked C++ call sees no ^C: Python only
// notes the signal and handles it when its own code runs again. A wait that
// goes through WaitInterruptibly looks up at short intervals and asks.
//
//   InterruptCheck check = [] { ... take the GIL, ask Python ... };
//   return WaitInterruptibly(deadline, check, [&](Deadline slice) {
//     return queue.Pop(slice);
//   });
//
// For a future, see Future::WaitReady.

#ifndef FLEET_BASE_INTERRUPT_H_
#define FLEET_BASE_INTERRUPT_H_

#include <chrono>
#include <functional>
#include <type_traits>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::base {

// Ok to go on, or the reason to stop. Called on the waiting thread, without
// any lock of ours held.
using InterruptCheck = std::function<Status()>;

// How long a person waits at most after ^C. Asking costs a microsecond, so ten
// times a second is nothing.
inline constexpr std::chrono::milliseconds kInterruptInterval{100};

// Calls `wait(slice)`, which must return Status or Result<T>, with short
// deadlines until it returns something other than DeadlineExceeded, or until
// `deadline` passes, or until `check` is not ok. `check` is asked before the
// first wait and after every slice. An empty `check` never stops.
// DeadlineExceeded from `wait` must mean that the slice has passed and nothing
// else.
template <typename Wait>
std::invoke_result_t<Wait&, Deadline> WaitInterruptibly(
    Deadline deadline, const InterruptCheck& check, Wait wait) {
  while (true) {
    if (check) RETURN_IF_ERROR(check());
    const Deadline slice =
        check ? Earlier(deadline, Deadline::After(kInterruptInterval))
              : deadline;
    std::invoke_result_t<Wait&, Deadline> outcome = wait(slice);
    if (slice == deadline) return outcome;
    if constexpr (std::is_same_v<decltype(outcome), Status>) {
      if (outcome.code() != StatusCode::kDeadlineExceeded) return outcome;
    } else {
      if (outcome.status().code() != StatusCode::kDeadlineExceeded) {
        return outcome;
      }
    }
  }
}

// A sleep that another thread can end: the body of every "once per second" or
// "again after the back-off" loop. Thread-safe.
class Interrupt final {
 public:
  // Ends the current and all later waits with `why`, which must not be ok. Of
  // several the first counts.
  void Raise(Status why);

  // Ok while nothing was raised.
  Status status() const;

  // Sleeps until `deadline` and returns ok, or returns at once with what was
  // raised.
  Status SleepUntil(Deadline deadline);

 private:
  mutable Mutex mutex_;
  CondVar raised_;
  Status why_ GUARDED_BY(mutex_);
};

}  // namespace fleet::base

#endif  // FLEET_BASE_INTERRUPT_H_
