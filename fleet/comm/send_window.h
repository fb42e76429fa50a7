// SPDX-License-Identifier: Apache-2.0

// How far one rank may send ahead of another's receives: the rule of
// Communicator::Send, for backends in which ranks tell each other what they
// have received.
//
// Both ends count the bytes of messages since the start. A receiver tells how
// many it has received when that are kTellEvery more than it told last; so a
// sender knows of all but the last few, and allows for them. A sender that
// begins to wait first tells what it has received itself, and then how much the
// other must receive before the wait ends. Messages arrive in order, so who
// hears that the other waits, and waits itself, knows all that the other has
// received: if that is not enough, neither wait ever ends.

#ifndef FLEET_COMM_SEND_WINDOW_H_
#define FLEET_COMM_SEND_WINDOW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {

// What a message counts as.
inline uint64_t SendCharge(size_t byte_size) {
  return std::max<uint64_t>(byte_size, kMinSendCharge);
}

// The failure of two ranks that wait for each other to receive.
inline Status BothSend(int rank, int peer) {
  return FailedPrecondition(
      "rank ", rank, " and rank ", peer,
      " wait for each other: both send, and neither receives the more than ",
      kSendAhead >> 20, " MB that the other has sent it");
}

// One rank's side of what it sends to one other, and receives from it. One
// thread.
class SendWindow final {
 public:
  static constexpr uint64_t kTellEvery = uint64_t{1} << 20;

  // A message, by its charge, is about to be sent.
  void Send(uint64_t charge) { sent_ += charge; }
  // Whether the sender may go on.
  bool fits() const { return sent_ - known_ <= kSendAhead + kTellEvery; }
  // How much the peer must have received for fits().
  uint64_t need() const { return sent_ - (kSendAhead + kTellEvery); }
  // Whether the peer will tell of more than it has told, once it received all.
  bool expects_news() const { return sent_ - known_ >= kTellEvery; }
  // The peer told how much it has received.
  void PeerReceived(uint64_t total) { known_ = std::max(known_, total); }

  // A message came, and is kept until it is received.
  void Keep(uint64_t charge) { came_ += charge; }
  uint64_t kept() const { return came_ - received_; }

  // A message that came was received; true when it is time to tell.
  bool Receive(uint64_t charge) {
    received_ += charge;
    return received_ - told_ >= kTellEvery;
  }
  // What to tell, and that it is told.
  uint64_t Tell() { return told_ = received_; }
  bool untold() const { return told_ != received_; }
  // The peer told that it waits until this rank has received `need`.
  void PeerWaits(uint64_t need) { peer_needs_ = need; }
  bool peer_waits() const { return peer_needs_ > received_; }

 private:
  uint64_t sent_ = 0;
  uint64_t known_ = 0;  // of it, received by the peer
  uint64_t came_ = 0;
  uint64_t received_ = 0;  // of it
  uint64_t told_ = 0;      // of what was received
  uint64_t peer_needs_ = 0;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_SEND_WINDOW_H_
