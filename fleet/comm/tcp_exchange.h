// SPDX-License-Identifier: Apache-2.0

// What the collectives over channels are made of: one call's messages to and
// from other ranks, each with the call it belongs to, so that ranks that make
// different calls find out; and waits that see what happens elsewhere.

#ifndef FLEET_COMM_TCP_EXCHANGE_H_
#define FLEET_COMM_TCP_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/patience.h"
#include "fleet/comm/tcp_link.h"
#include "fleet/comm/tcp_links.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

// One call, or one Send or Recv, of `rank`, with the `members` that exchange
// data, by rank of the group. Members are spoken of by their place in that
// list. What it refers to outlives it. One thread.
class Exchange final {
 public:
  Exchange(Links& links, int rank, std::span<const int> members,
           const CommunicatorOptions& options, const Call& call,
           Deadline deadline);

  // The place of this rank; -1 when it is no member.
  int place() const { return place_; }
  int size() const { return static_cast<int>(members_.size()); }
  const Call& call() const { return call_; }

  // Sends a part of this call without waiting. `data` stays as it is until
  // WaitSent(to, ...) with the number that this returns, or Flush.
  uint64_t Send(int to, std::span<const std::byte> data);
  void SendKept(int to, std::vector<std::byte> data);
  // That this rank is in this call; for members that would hear nothing else.
  void Greet(int to) { Send(to, {}); }

  Status WaitSent(int to, uint64_t number);
  Status Flush();

  // Takes the next part of this call from a member.
  Status Recv(int from, std::span<std::byte> into);
  Status RecvGreeting(int from) { return Recv(from, {}); }

  // Apart from calls. SendLetter waits as Communicator::Send says; after a
  // failure, `data` stays as it is until the links are idle.
  Status SendLetter(int to, ConstSpan data);
  Status RecvLetter(int from, Span into);

  // To be called now and then by a wait for something else: what ends this
  // call, if anything does.
  Status Look();
  // The first half of it: what other ranks have said, without a wait.
  Status Hear() { return LookAround(nullptr); }
  // Which ranks of the group are gone; `ranks` are those to ask about.
  std::vector<int> Gone(std::span<const int> ranks);

 private:
  LinkHeader Header(size_t byte_size) const {
    return {.call = call_, .byte_size = byte_size};
  }
  Link& LinkTo(int place) { return links_.to(members_[place]); }
  // Waits with `attempt(slice)`, which answers DeadlineExceeded when it is to
  // be called again.
  Status Wait(Link& link, const std::function<Status(Deadline)>& attempt,
              const std::function<std::string()>& waits_for);
  // Whether a rank other than `but` has news that end this call.
  Status LookAround(const Link* but);
  // The failure that a header says, or a call other than this one.
  Status Judge(Link& link, const LinkHeader& header);
  // What a wait for a letter, or for its receive, finds at the front of a link.
  Status TakeApart(Link& link);
  Status TakeFailure(Link& link, const LinkHeader& header);
  Status TakeLetter(Link& link, const LinkHeader& header);
  Status Lost(const Link& link, const Status& why);
  // Says where this rank is, when that is due.
  void SayWhere();
  std::string Late(int suspect);
  std::string What() const;

  Links& links_;
  const int rank_;
  const std::span<const int> members_;
  int place_ = -1;
  const Call call_;
  // The call of a SendLetter or RecvLetter, for messages.
  struct Apart {
    const char* verb;
    size_t count;
    DataType type;
  };
  std::optional<Apart> apart_;
  Patience patience_;
  const Deadline say_;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_TCP_EXCHANGE_H_
