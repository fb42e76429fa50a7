// SPDX-License-Identifier: Apache-2.0

// How long one call of a communicator waits, and what it does meanwhile: looks
// for ^C, reports a stall once, and gives up at its deadline.
//
//   Patience patience(options(), deadline);
//   while (!ready) {
//     changed.WaitUntil(mutex, patience.slice());
//     ...
//     RETURN_IF_ERROR(patience.Look([&] { return "all_reduce: rank 2"; }));
//   }

#ifndef FLEET_COMM_PATIENCE_H_
#define FLEET_COMM_PATIENCE_H_

#include <chrono>
#include <iomanip>
#include <sstream>
#include <string>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/log.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {

// `options` outlives it. One thread.
class Patience final {
 public:
  Patience(const CommunicatorOptions& options, Deadline deadline)
      : options_(options),
        deadline_(deadline),
        begin_(std::chrono::steady_clock::now()),
        stall_(Deadline::At(begin_ + options.stall_report)) {}

  Deadline deadline() const { return deadline_; }

  // When to look up next: Look() is then due.
  Deadline slice() const {
    Deadline next = reported_ ? deadline_ : Earlier(deadline_, stall_);
    if (options_.interrupt) {
      next = Earlier(next, Deadline::After(base::kInterruptInterval));
    }
    return next;
  }

  // To be called when a slice is over and nothing came, without any lock held.
  // `waits_for()` says who has not done what: "all_reduce(...), call 3: no sign
  // of rank 2". DeadlineExceeded with that when time is over; what the
  // interrupt check says when it says something.
  template <typename WaitsFor>
  Status Look(const WaitsFor& waits_for) {
    if (options_.interrupt) RETURN_IF_ERROR(options_.interrupt());
    if (deadline_.expired()) {
      return DeadlineExceeded(waits_for(), " in ", Waited());
    }
    if (!reported_ && stall_.expired()) {
      reported_ = true;
      FLEET_LOG(WARNING) << options_.name << ": " << waits_for() << " in "
                         << Waited() << "; still waiting";
    }
    return OkStatus();
  }

  // "1.234 s"
  std::string Waited() const {
    std::ostringstream text;
    text << std::fixed << std::setprecision(3)
         << std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                          begin_)
                .count()
         << " s";
    return text.str();
  }

 private:
  const CommunicatorOptions& options_;
  const Deadline deadline_;
  const std::chrono::steady_clock::time_point begin_;
  const Deadline stall_;
  bool reported_ = false;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_PATIENCE_H_
