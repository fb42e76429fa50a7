// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/lifeline.h"

#include <span>
#include <utility>
#include <vector>

#include "fleet/channel/message.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

// For what on_end sent. The peer's socket takes it at once or never.
constexpr auto kLastWords = std::chrono::milliseconds(100);

}  // namespace

// A heartbeat is an empty message. Every other message is a sign of life too,
// so a beat is sent only when nothing else was for an interval.
Lifeline::Lifeline(std::unique_ptr<channel::Channel> channel,
                   LifelineOptions options, LifelineCallbacks callbacks)
    : channel_(std::move(channel)),
      options_(options),
      callbacks_(std::move(callbacks)),
      writer_([this] { Write(); }) {
  try {
    reader_ = std::jthread([this] { Read(); });
  } catch (...) {
    End();
    throw;
  }
}

// Its threads are joined first: they are its last members.
Lifeline::~Lifeline() { End(); }

void Lifeline::End() {
  channel_->Close();
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

void Lifeline::Send(std::string message) {
  Status overflow;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    const uint64_t byte_size = unsent_byte_size_ + message.size();
    if (byte_size <= options_.max_unsent_byte_size) {
      unsent_byte_size_ = byte_size;
      outbox_.push_back(std::move(message));
      changed_.NotifyAll();
      return;
    }
    overflow_ = DeadlineExceeded(
        peer(), " does not take what is sent to it: ", byte_size,
        " bytes wait, of at most ", options_.max_unsent_byte_size);
    overflow = overflow_;
  }
  Close(std::move(overflow));
}

bool Lifeline::Flush(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!ended_ && (sending_ || !outbox_.empty())) {
    if (!changed_.WaitUntil(mutex_, deadline)) return false;
  }
  return !ended_;
}

void Lifeline::Close(Status why) {
  channel_->Abort(std::move(why));
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

bool Lifeline::overflowed() {
  MutexLock lock(mutex_);
  return !overflow_.ok();
}

void Lifeline::Write() {
  while (true) {
    std::string message;
    {
      MutexLock lock(mutex_);
      const Deadline beat = Deadline::After(options_.heartbeat_interval);
      sending_ = false;
      changed_.NotifyAll();
      while (!ended_ && outbox_.empty()) {
        if (!changed_.WaitUntil(mutex_, beat)) break;
      }
      if (ended_) return;
      if (!outbox_.empty()) {
        message = std::move(outbox_.front());
        outbox_.pop_front();
        unsent_byte_size_ -= message.size();
      }
      sending_ = true;
    }
    const Status sent =
        channel_->Send(std::as_bytes(std::span(message)),
                       Deadline::After(options_.heartbeat_patience));
    if (!sent.ok()) {
      // What the peer wrote before it died is still to be read, so only a peer
      // that takes nothing is closed from here; the reader finds the others.
      if (sent.code() == StatusCode::kDeadlineExceeded) channel_->Abort(sent);
      MutexLock lock(mutex_);
      ended_ = true;
      changed_.NotifyAll();
      return;
    }
  }
}

void Lifeline::Read() {
  while (true) {
    Result<std::vector<std::byte>> message =
        channel_->RecvMessage(channel::kMaxMessageByteSize,
                              Deadline::After(options_.heartbeat_patience));
    if (message.ok()) {
      if (message->empty()) continue;
      callbacks_.on_message(
          {reinterpret_cast<const char*>(message->data()), message->size()});
      continue;
    }
    Status why = message.status();
    if (why.code() == StatusCode::kDeadlineExceeded && !overflowed()) {
      const std::chrono::duration<double> patience =
          options_.heartbeat_patience;
      why = DeadlineExceeded("no sign of life for ", patience.count(), " s");
    }
    callbacks_.on_end(why);
    // A peer that is only stopped learns, when it goes on, what was said of it.
    (void)Flush(Deadline::After(kLastWords));
    Close(std::move(why));
    return;
  }
}

}  // namespace fleet::cluster
