// SPDX-License-Identifier: Apache-2.0

// What the collectives over channels are made of: one call's messages to and
// from other ranks, each with the call it belongs to, so that ranks that make
// different calls find out; and waits that see what happens elsewhere.

#ifndef FLEET_COMM_EXCHANGE_H_
#define FLEET_COMM_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/link.h"
#include "fleet/comm/patience.h"
#include "fleet/comm/types.h"
#include "fleet/comm/whereabouts.h"

namespace fleet::comm {

// The links of one rank: links[i] goes to rank i, and that of the rank itself
// is null.
struct Links {
  std::vector<std::unique_ptr<Link>> to;
  Whereabouts whereabouts;
  // Raised by Abort.
  base::Interrupt aborted;

  void TellFailure(const Status& why);
  void Fail(const Status& why);
  void WaitIdle();
};

// One call, or one Send or Recv, of `rank`. What it refers to outlives it. One
// thread.
class Exchange final {
 public:
  Exchange(Links& links, int rank, const CommunicatorOptions& options,
           const Call& call, Deadline deadline)
      : links_(links),
        rank_(rank),
        options_(options),
        call_(call),
        patience_(options, deadline) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.to.size()); }
  const Call& call() const { return call_; }

  // Sends a part of this call without waiting. `data` stays as it is until
  // WaitSent(to, ...) with the number that this returns, or Flush.
  uint64_t Send(int to, std::span<const std::byte> data);
  void SendKept(int to, std::vector<std::byte> data);
  // That this rank is in this call; for ranks that would hear nothing else.
  void Greet(int to) { Send(to, {}); }

  Status WaitSent(int to, uint64_t number);
  Status Flush();

  // Takes the next part of this call from a rank.
  Status Recv(int from, std::span<std::byte> into);
  Status RecvGreeting(int from) { return Recv(from, {}); }

  // Apart from calls.
  Status RecvLetter(int from, Span into);

 private:
  LinkHeader Header(size_t byte_size) const {
    return {.call = call_, .byte_size = byte_size};
  }
  // Waits with `attempt(slice)`, which answers DeadlineExceeded when it is to
  // be called again.
  Status Wait(Link& link, const std::function<Status(Deadline)>& attempt,
              const std::function<std::string()>& waits_for);
  // Whether another rank than `but` has news that end this call.
  Status LookAround(const Link& but);
  // The failure that a header says, or a call other than this one.
  Status Judge(Link& link, const LinkHeader& header);
  Status TakeFailure(Link& link, const LinkHeader& header);
  Status TakeLetter(Link& link, const LinkHeader& header);
  Status Lost(const Link& link, const Status& why);
  std::string What() const;

  Links& links_;
  const int rank_;
  const CommunicatorOptions& options_;
  const Call call_;
  std::optional<Span> letter_;  // of RecvLetter
  Patience patience_;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_EXCHANGE_H_
