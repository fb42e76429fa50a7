// SPDX-License-Identifier: Apache-2.0

// For tests: what can happen to a worker's request on its way to a server.

#ifndef FLEET_TESTING_REQUEST_FAULTS_H_
#define FLEET_TESTING_REQUEST_FAULTS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/bytes.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/channel.h"
#include "fleet/ps/wire.h"
#include "fleet/testing/testing.h"

namespace fleet::testing {

enum class RequestFault {
  kLost,        // the connection ends before the server has the request
  kAnswerLost,  // and when the server has carried it out
  kRefused,     // the server answers with an error
  kUnanswered,  // nothing comes of it, on a connection that stays
};

// Thread-safe.
class RequestFaults final {
 public:
  // The next request of that kind, behind `skip` others.
  void Arm(ps::Op op, RequestFault fault, int skip = 0) {
    base::MutexLock lock(mutex_);
    armed_ = {op, fault, skip};
  }
  bool armed() const {
    base::MutexLock lock(mutex_);
    return armed_.has_value();
  }
  // So long every update is on its way.
  void Delay(std::chrono::milliseconds delay) {
    base::MutexLock lock(mutex_);
    delay_ = delay;
  }

 private:
  friend class FaultyChannel;
  struct Armed {
    ps::Op op{};
    RequestFault fault{};
    int skip = 0;
  };
  std::optional<RequestFault> Take(ps::Op op) {
    base::MutexLock lock(mutex_);
    if (!armed_.has_value() || armed_->op != op) return std::nullopt;
    if (armed_->skip-- > 0) return std::nullopt;
    const RequestFault fault = armed_->fault;
    armed_.reset();
    return fault;
  }
  std::chrono::milliseconds delay() const {
    base::MutexLock lock(mutex_);
    return delay_;
  }

  mutable base::Mutex mutex_;
  std::optional<Armed> armed_ GUARDED_BY(mutex_);
  std::chrono::milliseconds delay_ GUARDED_BY(mutex_){0};
};

// A worker's end of a connection to a server.
class FaultyChannel final : public channel::Channel {
 public:
  FaultyChannel(std::unique_ptr<channel::Channel> channel,
                std::shared_ptr<RequestFaults> faults)
      : Channel(channel->peer()),
        channel_(std::move(channel)),
        faults_(std::move(faults)) {}

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   base::Deadline deadline) override {
    auto head = base::LoadAt<ps::RequestHead>(parts[0], 0);
    if (head.op == ps::Op::kPush || head.op == ps::Op::kAccumulate) {
      std::this_thread::sleep_for(faults_->delay());
    }
    const std::optional<RequestFault> fault = faults_->Take(head.op);
    if (!fault.has_value()) return channel_->SendParts(parts, deadline);
    if (*fault == RequestFault::kUnanswered) return OkStatus();
    if (*fault == RequestFault::kRefused) {
      // A table that no server has.
      constexpr ps::TableId kNone{0xffff};
      std::vector<channel::ConstBytes> other(parts.begin(), parts.end());
      if ((head.flags & ps::kFlagDense) == 0) {
        head.table = kNone;
        other[0] = base::BytesOf(head);
        return channel_->SendParts(other, deadline);
      }
      auto section = base::LoadAt<ps::DenseSection>(parts[1], 0);
      section.table = kNone;
      std::vector<std::byte> sections(parts[1].begin(), parts[1].end());
      base::StoreAt(std::span(sections), 0, section);
      other[1] = sections;
      return channel_->SendParts(other, deadline);
    }
    if (*fault == RequestFault::kAnswerLost) {
      RETURN_IF_ERROR(channel_->SendParts(parts, deadline));
      // Those of the requests before it go with it.
      std::vector<std::byte> answer;
      do {
        ASSIGN_OR_RETURN(answer,
                         channel_->RecvMessage(uint64_t{1} << 30, deadline));
      } while (base::LoadAt<ps::ReplyHead>(answer, 0).sequence !=
               head.sequence);
    }
    channel_->Abort(Unavailable("the test ends this connection"));
    return Unavailable(peer(), ": the test ends this connection");
  }
  Result<uint64_t> NextSize(base::Deadline deadline) override {
    return channel_->NextSize(deadline);
  }
  Status Recv(channel::MutableBytes into, base::Deadline deadline) override {
    return channel_->Recv(into, deadline);
  }
  void Abort(Status why) override { channel_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<channel::Channel> channel_;
  const std::shared_ptr<RequestFaults> faults_;
};

}  // namespace fleet::testing

#endif  // FLEET_TESTING_REQUEST_FAULTS_H_
