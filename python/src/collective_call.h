// SPDX-License-Identifier: Apache-2.0

// How a collective is called from Python: without the GIL, now or behind a
// Task.

#ifndef FLEET_PYTHON_SRC_COLLECTIVE_CALL_H_
#define FLEET_PYTHON_SRC_COLLECTIVE_CALL_H_

#include <chrono>
#include <optional>
#include <utility>

#include <nanobind/nanobind.h>

#include "fleet/base/deadline.h"
#include "fleet/base/future.h"
#include "fleet/base/interrupt.h"

#include "job.h"
#include "status.h"

namespace fleet::python {

// What a call without waiting returns. For one thread.
class Task final {
 public:
  Task(base::Future<> future, base::InterruptCheck interrupt)
      : future_(std::move(future)), interrupt_(std::move(interrupt)) {}

  // Whether it is done, after at most so many seconds. Throws its failure.
  bool Wait(std::optional<double> seconds) {
    // Without a limit here, the call has a deadline of its own.
    base::Deadline deadline = base::Deadline::Infinite();
    if (seconds) {
      deadline = base::Deadline::After(
          std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::duration<double>(*seconds)));
    }
    if (!done_) {
      Status waited;
      {
        nanobind::gil_scoped_release release;
        waited = future_.WaitReady(deadline, interrupt_);
      }
      if (waited.code() == StatusCode::kDeadlineExceeded) return false;
      ThrowIfError(waited);
      outcome_ = future_.Wait(deadline);
      done_ = true;
    }
    ThrowIfError(outcome_);
    return true;
  }

  bool IsCompleted() const { return done_ || future_.ready(); }

 private:
  base::Future<> future_;
  base::InterruptCheck interrupt_;
  bool done_ = false;
  Status outcome_;  // once done
};

// Runs `call(communicator, deadline)` without the GIL: now, which throws its
// failure and returns None, or behind the Task that is returned. On a rank that
// is not in the group it does nothing.
template <typename Call>
nanobind::object Run(Group& group, bool sync, Call call) {
  if (group.communicator() == nullptr) return nanobind::none();
  if (!sync) {
    Result<base::Future<>> done = [&] {
      nanobind::gil_scoped_release release;
      return group.Start(std::move(call));
    }();
    return nanobind::cast(
        Task(ValueOrThrow(std::move(done)), group.job().interrupt()));
  }
  Status status;
  {
    nanobind::gil_scoped_release release;
    status = group.Run(call);
  }
  ThrowIfError(status);
  return nanobind::none();
}

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_COLLECTIVE_CALL_H_
