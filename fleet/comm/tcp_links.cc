// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/tcp_links.h"

#include <chrono>
#include <string>
#include <utility>

#include "fleet/base/interrupt.h"
#include "fleet/channel/meet.h"

namespace fleet::comm {
namespace {

// How long a rank that failed waits for the others to take the reason: those
// that are alive do so at once, unless their processes stand still.
constexpr auto kTellFailure = std::chrono::seconds(1);

class Gathering final {
 public:
  Gathering(const Meeting& meeting, const CommunicatorOptions& options,
            Deadline deadline)
      : meeting_(meeting), options_(options), deadline_(deadline) {}

  Result<std::vector<std::unique_ptr<Link>>> Meet() {
    channel::MeetOptions meet{.self = {.rank = meeting_.rank},
                              .trust = meeting_.trust,
                              .carrier = meeting_.carrier,
                              .interrupt = options_.interrupt};
    ASSIGN_OR_RETURN(
        auto listener,
        channel::Listener::Bind({.host = meeting_.host, .port = 0}, meet));
    RETURN_IF_ERROR(meeting_.store->Set(
        Key(meeting_.rank), listener->address().ToString(), deadline_));
    links_.resize(meeting_.size);
    for (int i = meeting_.rank + 1; i < meeting_.size; ++i) {
      ASSIGN_OR_RETURN(const channel::Address address, AddressOf(i));
      ASSIGN_OR_RETURN(channel::Connection connection,
                       channel::Connect(address, meet, deadline_));
      RETURN_IF_ERROR(Add(i, std::move(connection)));
    }
    for (int i = 0; i < meeting_.rank; ++i) {
      Result<channel::Connection> connection = base::WaitInterruptibly(
          deadline_, options_.interrupt,
          [&](Deadline slice) { return listener->Accept(slice); });
      if (!connection.ok()) return Missing(connection.status());
      const int came = connection->peer.rank;
      RETURN_IF_ERROR(Add(came, *std::move(connection)));
    }
    return std::move(links_);
  }

 private:
  std::string Key(int rank) const {
    return base::Concat(meeting_.prefix, "/address/", rank);
  }

  Result<channel::Address> AddressOf(int rank) {
    Result<std::vector<std::string>> found = base::WaitInterruptibly(
        deadline_, options_.interrupt, [&](Deadline slice) {
          return meeting_.store->Wait({Key(rank)}, slice);
        });
    if (!found.ok()) return Missing(found.status());
    return channel::Address::Parse(found->front());
  }

  Status Add(int rank, channel::Connection connection) {
    const int came = connection.peer.rank;
    if (came != rank || came < 0 || came >= meeting_.size ||
        came == meeting_.rank || links_[came] != nullptr) {
      return FailedPrecondition("rank ", meeting_.rank, " met ",
                                connection.peer.Name(), ", which is not due");
    }
    links_[came] = std::make_unique<Link>(came, std::move(connection.channel));
    return OkStatus();
  }

  // `why`, and if it is that somebody is late, who.
  Status Missing(const Status& why) const {
    if (why.code() != StatusCode::kDeadlineExceeded) return why;
    std::vector<int> ranks;
    for (int i = 0; i < meeting_.size; ++i) {
      const bool here =
          i == meeting_.rank || links_[i] != nullptr ||
          (i > meeting_.rank &&
           meeting_.store->Get(Key(i), Deadline::After(std::chrono::seconds(1)))
               .ok());
      if (!here) ranks.push_back(i);
    }
    return DeadlineExceeded("no connection to ", RankList(ranks), ": ",
                            why.message());
  }

  const Meeting& meeting_;
  const CommunicatorOptions& options_;
  const Deadline deadline_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace

// Without the reason, a peer takes the end of this rank for the cause.
void Links::TellFailure(uint64_t call_number, const Status& why) {
  const Deadline deadline = Deadline::After(kTellFailure);
  std::vector<Link*> busy;
  for (const auto& link : to_) {
    if (link == nullptr) continue;
    if (link->idle()) {
      link->TellFailure(call_number, why, deadline);
    } else {
      busy.push_back(link.get());
    }
  }
  for (Link* link : busy) link->TellFailure(call_number, why, deadline);
}

void Links::Fail(const Status& why) {
  for (const auto& link : to_) {
    if (link != nullptr) link->Fail(why);
  }
}

void Links::WaitIdle() {
  for (const auto& link : to_) {
    if (link != nullptr) link->WaitIdle();
  }
}

void Links::Flush(base::Deadline deadline) {
  for (const auto& link : to_) {
    if (link == nullptr) continue;
    if (link->WaitSent(link->posted(), deadline).ok()) {
      (void)link->WaitReceived(deadline).ok();
    }
  }
}

Result<std::unique_ptr<Links>> ConnectLinks(const Meeting& meeting,
                                            const CommunicatorOptions& options,
                                            Deadline deadline) {
  Result<std::vector<std::unique_ptr<Link>>> links =
      Gathering(meeting, options, deadline).Meet();
  if (!links.ok()) return links.status().WithContext(options.name);
  return std::make_unique<Links>(
      *std::move(links),
      Whereabouts(*meeting.store, meeting.prefix, meeting.rank, meeting.size));
}

}  // namespace fleet::comm
