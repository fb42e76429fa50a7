// SPDX-License-Identifier: Apache-2.0

// A connection that is kept from the start of a job to its end: messages both
// ways, heartbeats beside them, and one notice when it is over. Its two threads
// run no code of others but the two callbacks, so a process whose main thread
// is busy for minutes still beats.

#ifndef FLEET_CLUSTER_LIFELINE_H_
#define FLEET_CLUSTER_LIFELINE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/message.h"

namespace fleet::cluster {

struct LifelineOptions {
  std::chrono::milliseconds heartbeat_interval = std::chrono::seconds(1);
  std::chrono::milliseconds heartbeat_patience = std::chrono::seconds(10);
  // How much may wait for a peer that does not take it. Four of the largest
  // messages: more is not in flight unless the peer is stuck.
  uint64_t max_unsent_byte_size = 4 * channel::kMaxMessageByteSize;
};

// Both callbacks run on a thread of the link, one at a time, and must not wait
// for long: meanwhile nothing is received.
struct LifelineCallbacks {
  std::function<void(std::string_view)> on_message;
  // The last call. DeadlineExceeded: the peer gave no sign of life for the
  // patience, or too much waits to be sent to it. Unavailable: it closed or
  // died. What Close was given, after that.
  // What is sent here still goes out, if the peer takes it at once.
  std::function<void(const Status&)> on_end;
};

// All functions are thread-safe.
class Lifeline final {
 public:
  Lifeline(std::unique_ptr<channel::Channel> channel, LifelineOptions options,
           LifelineCallbacks callbacks);
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  // Closes. Not from a callback.
  ~Lifeline();

  const std::string& peer() const { return channel_->peer(); }

  // Hands the message over and returns; never waits. It is dropped when the
  // link has ended, and ends it when with it more than max_unsent_byte_size
  // bytes would wait.
  void Send(std::string message);

  // Waits until all that was handed over is on its way; false when that was
  // not so by `deadline`, or when the link ended first.
  bool Flush(base::Deadline deadline);

  // Ends it, with `why`, which is not ok. What was not sent is dropped.
  void Close(Status why);

 private:
  // Both threads end soon.
  void End();
  void Write();
  void Read();
  bool overflowed();

  const std::unique_ptr<channel::Channel> channel_;
  const LifelineOptions options_;
  const LifelineCallbacks callbacks_;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::string> outbox_ GUARDED_BY(mutex_);
  uint64_t unsent_byte_size_ GUARDED_BY(mutex_) = 0;  // of the outbox
  // Ok until too much waited to be sent; then what is said of that.
  Status overflow_ GUARDED_BY(mutex_);
  bool sending_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;

  std::jthread writer_;
  std::jthread reader_;
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_LIFELINE_H_
