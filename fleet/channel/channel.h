// SPDX-License-Identifier: Apache-2.0

// Messages of bytes between two processes (or two threads of one): in order,
// whole, each once. How the two meet is in meet.h; a pair inside one process is
// in in_process.h.
//
//   RETURN_IF_ERROR(channel.Send(std::as_bytes(std::span(rows)), deadline));
//   ASSIGN_OR_RETURN(uint64_t byte_size, channel.NextSize(deadline));
//   buffer.resize(byte_size);
//   RETURN_IF_ERROR(channel.Recv(buffer, deadline));

#ifndef FLEET_CHANNEL_CHANNEL_H_
#define FLEET_CHANNEL_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"

namespace fleet::channel {

using base::Deadline;
using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// One end. Failures name the peer, the call and how long it waited:
//   Unavailable        the peer closed its end or died. For good.
//   DeadlineExceeded   the peer is late. The same call with the same arguments
//                      may be made again and goes on where this one stopped:
//                      a message that was begun stays begun.
//   DataLoss           what came is no message. For good.
//   what Abort was given, after Abort() or Close() on this end.
//
// One thread may send and one may receive at a time, and the two do not wait
// for each other. Abort() and Close() may come from any thread.
class Channel {
 public:
  // `peer` as messages show it: "worker 1 at 10.0.0.7:9000".
  explicit Channel(std::string peer) : peer_(std::move(peer)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  // As Close(). No thread may be inside a call.
  virtual ~Channel() = default;

  // Sends one message. Returns when the bytes are on their way and the caller
  // may change them; that the peer received them is not promised. Waits while
  // the peer has more unread than the channel holds.
  Status Send(ConstBytes message, Deadline deadline) {
    return SendParts(std::span(&message, 1), deadline);
  }
  // Sends one message that lies in several pieces. They arrive as one.
  virtual Status SendParts(std::span<const ConstBytes> parts,
                           Deadline deadline) = 0;

  // Waits for the next message and says how many bytes it has, without taking
  // it: asked again, it answers the same.
  virtual Result<uint64_t> NextSize(Deadline deadline) = 0;

  // Takes the next message, which must be of exactly `into.size()` bytes; else
  // InvalidArgument, and the message stays. After DeadlineExceeded a part of
  // `into` may be filled: repeat with the same `into`.
  virtual Status Recv(MutableBytes into, Deadline deadline) = 0;

  // Takes the next message, of whatever size up to `max_byte_size`; a larger
  // one is InvalidArgument and stays.
  Result<std::vector<std::byte>> RecvMessage(uint64_t max_byte_size,
                                             Deadline deadline);

  // Ends both directions here. Every waiter on this end wakes, and it and all
  // later calls answer `why`, which must not be ok; of several the first
  // counts. The peer can still receive what was sent whole; after that its
  // calls are Unavailable.
  virtual void Abort(Status why) = 0;

  // Abort with FailedPrecondition: an end without a failure.
  void Close();

  const std::string& peer() const { return peer_; }

 private:
  const std::string peer_;
  // A message that RecvMessage began before its deadline passed.
  std::vector<std::byte> begun_;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_CHANNEL_H_
