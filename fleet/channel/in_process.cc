// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/in_process.h"

#include <cstring>
#include <deque>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/waited.h"

namespace fleet::channel {
namespace {

using base::CondVar;
using base::Mutex;
using base::MutexLock;

// What the two ends share.
struct Link {
  struct Inbox {
    std::deque<std::vector<std::byte>> messages;
    size_t byte_size = 0;
  };

  explicit Link(size_t capacity) : capacity(capacity) {}

  const size_t capacity;
  Mutex mutex;
  CondVar changed;
  Inbox inbox[2] GUARDED_BY(mutex);   // [i] is read by end i
  Status ended[2] GUARDED_BY(mutex);  // why end i stopped, ok until then
};

class InProcessChannel final : public Channel {
 public:
  InProcessChannel(std::string peer, std::shared_ptr<Link> link, int end)
      : Channel(std::move(peer)), link_(std::move(link)), end_(end) {}
  ~InProcessChannel() override { Close(); }

  Status SendParts(std::span<const ConstBytes> parts,
                   Deadline deadline) override {
    size_t byte_size = 0;
    for (ConstBytes part : parts) byte_size += part.size();
    Waited waited;
    MutexLock lock(link_->mutex);
    Link::Inbox& inbox = link_->inbox[1 - end_];
    while (true) {
      RETURN_IF_ERROR(link_->ended[end_]);
      if (!link_->ended[1 - end_].ok()) {
        return Unavailable(peer(), ": send ", byte_size,
                           " bytes: the peer closed the channel, after ",
                           waited);
      }
      if (inbox.messages.empty() ||
          inbox.byte_size + byte_size <= link_->capacity) {
        break;
      }
      if (deadline.expired()) {
        return DeadlineExceeded(peer(), ": send ", byte_size,
                                " bytes: the peer takes nothing, after ",
                                waited);
      }
      waited.Begin();
      link_->changed.WaitUntil(link_->mutex, deadline);
    }
    std::vector<std::byte> message;
    message.reserve(byte_size);
    for (ConstBytes part : parts) {
      message.insert(message.end(), part.begin(), part.end());
    }
    inbox.byte_size += byte_size;
    inbox.messages.push_back(std::move(message));
    link_->changed.NotifyAll();
    return OkStatus();
  }

  Result<uint64_t> NextSize(Deadline deadline) override {
    MutexLock lock(link_->mutex);
    return NextSizeLocked(deadline);
  }

  Status Recv(MutableBytes into, Deadline deadline) override {
    MutexLock lock(link_->mutex);
    ASSIGN_OR_RETURN(const uint64_t byte_size, NextSizeLocked(deadline));
    if (byte_size != into.size()) {
      return InvalidArgument(peer(), ": recv: a message of ", byte_size,
                             " bytes, and ", into.size(), " are wanted");
    }
    Link::Inbox& inbox = link_->inbox[end_];
    if (byte_size > 0) {
      std::memcpy(into.data(), inbox.messages.front().data(), byte_size);
    }
    inbox.messages.pop_front();
    inbox.byte_size -= byte_size;
    link_->changed.NotifyAll();
    return OkStatus();
  }

  void Abort(Status why) override {
    FLEET_CHECK(!why.ok());
    MutexLock lock(link_->mutex);
    if (!link_->ended[end_].ok()) return;
    link_->ended[end_] = std::move(why);
    link_->changed.NotifyAll();
  }

 private:
  Result<uint64_t> NextSizeLocked(Deadline deadline) REQUIRES(link_->mutex) {
    Waited waited;
    Link::Inbox& inbox = link_->inbox[end_];
    while (true) {
      RETURN_IF_ERROR(link_->ended[end_]);
      if (!inbox.messages.empty()) return inbox.messages.front().size();
      if (!link_->ended[1 - end_].ok()) {
        return Unavailable(
            peer(), ": recv: the peer closed the channel, after ", waited);
      }
      if (deadline.expired()) {
        return DeadlineExceeded(peer(), ": recv: no message in ", waited);
      }
      waited.Begin();
      link_->changed.WaitUntil(link_->mutex, deadline);
    }
  }

  const std::shared_ptr<Link> link_;
  const int end_;
};

}  // namespace

std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> MakeInProcessPair(
    const InProcessOptions& options) {
  auto link = std::make_shared<Link>(options.capacity);
  auto first = std::make_unique<InProcessChannel>(options.second_name, link, 0);
  auto second = std::make_unique<InProcessChannel>(options.first_name, link, 1);
  return {std::move(first), std::move(second)};
}

}  // namespace fleet::channel
