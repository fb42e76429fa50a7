// SPDX-License-Identifier: Apache-2.0

// One rank's way to another over a channel: the data of collectives with the
// call they belong to, letters (what Send sends) beside them and how many were
// received, and the news that a rank gave up.
//
// A message is a header of 32 bytes, with up to kInlineByteSize of data in the
// same frame, or with the data in a frame of its own, so that it lands where it
// belongs. Numbers are little-endian.

#ifndef FLEET_COMM_TCP_LINK_H_
#define FLEET_COMM_TCP_LINK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/comm/send_window.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

struct LinkHeader {
  enum class Kind : uint8_t {
    kCall = 0,
    kLetter = 1,
    kFailure = 2,
    kReceived = 3,
    kWaits = 4,
  };

  Kind kind = Kind::kCall;
  // kCall: which. kLetter: type and count. kFailure: `call.number` is that of
  // the call that failed, `call.root` the code. kReceived, kWaits: `call.count`
  // is how much of the peer's letters was received, or is to be: see
  // send_window.h.
  Call call;
  uint64_t byte_size = 0;  // of the data that comes with it
};

struct Letter {
  DataType type;
  std::vector<std::byte> bytes;
};

// One thread posts and one receives, at a time; TellFailure and Fail may come
// from any.
class Link final {
 public:
  // Copying so much costs less than a second system call.
  static constexpr size_t kInlineByteSize = 8192;

  Link(int peer, std::unique_ptr<channel::Channel> channel);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // Drops what is not yet sent.
  ~Link();

  // The rank at the other end.
  int peer() const { return peer_; }

  // Sends a message without ever waiting: what the channel does not take now, a
  // thread goes on with. `data` stays as it is until WaitSent says so. Messages
  // arrive in the order of their posts. Returns a number for WaitSent.
  uint64_t Post(const LinkHeader& header, std::span<const std::byte> data);
  // Posts data that the link keeps.
  uint64_t Post(const LinkHeader& header, std::vector<std::byte> data);

  // A letter. The link keeps a copy of one that need not be received before the
  // sender goes on; `data` of a larger one stays as it is until
  // window().fits(). The channel's failure, if it is known by now.
  Status PostLetter(ConstSpan data);
  // A letter of the peer is taken from the channel.
  void NoteTaken(size_t byte_size) { window_.Keep(SendCharge(byte_size)); }
  // A letter of the peer was received.
  void NoteReceived(size_t byte_size);
  const SendWindow& window() const { return window_; }

  // Waits until `post` and all before it are on their way. DeadlineExceeded
  // when that takes longer; the channel's failure.
  Status WaitSent(uint64_t post, base::Deadline deadline);
  // The number of the last post.
  uint64_t posted();

  // Waits for the header of the next message, which stays the next one until
  // Take. Failures are those of the channel.
  Result<LinkHeader> Next(base::Deadline deadline);
  // Waits until window() changed, or Next would not wait.
  Status WaitForNews(base::Deadline deadline);
  // Takes the message whose header Next gave; `into` has its byte_size. After
  // DeadlineExceeded, again with the same `into`.
  Status Take(std::span<std::byte> into, base::Deadline deadline);

  // Letters that had to be taken to get at what came behind them.
  std::deque<Letter>& letters() { return letters_; }

  // For a rank that leaves: until the peer has nothing more to tell of what it
  // received. Whatever comes otherwise is dropped. While it may still tell, a
  // close of this end would cost it what it has not yet read.
  Status WaitReceived(base::Deadline deadline);

  // Whether nothing is being sent or waits to be.
  bool idle();
  // Tells the peer that the call with this number failed, behind what is being
  // sent. Best effort: a peer that takes nothing until `deadline` learns of the
  // end only.
  void TellFailure(uint64_t call_number, const Status& why,
                   base::Deadline deadline);
  // Ends the channel: calls here answer `why`. Of several the first counts.
  void Fail(const Status& why);
  // After Fail: until no thread looks at posted data any more.
  void WaitIdle();

 private:
  struct Outgoing {
    uint64_t number = 0;
    std::array<std::byte, 32> header;
    std::span<const std::byte> data;
    std::vector<std::byte> kept;
    bool header_sent = false;
  };

  uint64_t PostItem(Outgoing item);
  Status TrySend(Outgoing& item, base::Deadline deadline);
  void PostCount(LinkHeader::Kind kind, uint64_t count);
  void SendPosted();

  const int peer_;
  const std::unique_ptr<channel::Channel> channel_;

  // What the receiving thread alone uses.
  std::vector<std::byte> frame_;
  std::optional<LinkHeader> next_;
  std::deque<Letter> letters_;
  SendWindow window_;

  base::Mutex mutex_;
  base::CondVar changed_;
  uint64_t posted_ GUARDED_BY(mutex_) = 0;
  uint64_t sent_ GUARDED_BY(mutex_) = 0;
  bool sending_ GUARDED_BY(mutex_) = false;  // some thread is in TrySend
  bool closed_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
  std::deque<Outgoing> queue_ GUARDED_BY(mutex_);
  std::jthread sender_;  // made when the channel is full for the first time
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_TCP_LINK_H_
