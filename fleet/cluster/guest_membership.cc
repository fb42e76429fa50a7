// SPDX-License-Identifier: Apache-2.0

// The side of the ranks that are not 0: one link to rank 0.

#include <optional>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/log.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/cluster/membership_protocol.h"
#include "fleet/cluster/munge.h"
#include "fleet/cluster/news_board.h"
#include "fleet/cluster/remote_store.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

// Where the address is a guess: how long one that is connected may be silent
// before the next is tried, and the pause before all are tried again.
constexpr auto kGuessPatience = std::chrono::seconds(1);
constexpr auto kGuessPause = std::chrono::milliseconds(50);

// Rank 0 started as long ago, as a rule, and is about to say who is missing. A
// rank that leaves before that would be missed itself.
constexpr auto kGrace = std::chrono::seconds(2);

class GuestMembership final : public Membership {
 public:
  GuestMembership(JoinRequest self, const JoinOptions& options,
                  channel::Connection connection)
      : self_(std::move(self)),
        options_(options),
        host_(connection.own_host.empty() ? "127.0.0.1" : connection.own_host),
        trust_(options_.trust),
        host_name_("rank 0 at " + connection.channel->peer()),
        store_({.send =
                    [this](std::string_view message) {
                      MessageWriter rest;
                      rest.Raw(message);
                      link_->Send(
                          MakeMessage(MessageKind::kRequest, std::move(rest)));
                    },
                .interrupt = options_.interrupt}) {
    MutexLock lock(mutex_);  // the callbacks wait until link_ is there
    link_ = std::make_unique<Lifeline>(
        std::move(connection.channel),
        LifelineOptions{.heartbeat_interval = options_.heartbeat_interval,
                        .heartbeat_patience = options_.heartbeat_patience},
        LifelineCallbacks{
            [this](std::string_view message) { OnMessage(message); },
            [this](const Status& why) { OnEnd(why); }});
    link_->Send(Encode(self_));
  }

  ~GuestMembership() override {
    store_.Abort(FailedPrecondition("this process has left its job"));
  }

  // Why a join failed, and whether it was only the wrong door.
  struct Refusal {
    Status why;
    bool elsewhere = false;
  };
  // Ok when all ranks are there.
  Refusal WaitForAll(WaitReporter& patience, Deadline deadline);

  int rank() const override { return self_.rank; }
  int size() const override { return static_cast<int>(self_.view.worker_num); }
  const std::string& job_id() const override { return job_id_; }
  const std::string& host() const override { return host_; }
  const channel::Trust& trust() const override { return trust_; }
  Store& store() override { return store_; }
  int Subscribe(std::function<void(const News&)> listener) override {
    return board_.Subscribe(std::move(listener));
  }
  void Unsubscribe(int subscription) override {
    board_.Unsubscribe(subscription);
  }
  void Report(std::string topic, Status why) override {
    MessageWriter rest;
    rest.Text(topic).Failure(why);
    link_->Send(MakeMessage(MessageKind::kReport, std::move(rest)));
  }
  void Leave(Deadline deadline) override;

 private:
  struct Welcome {
    std::string job_id;
    channel::Secret secret;  // that rank 0 made; empty when all had one
  };

  void OnMessage(std::string_view message);
  Status Handle(MessageKind kind, std::string_view rest);
  void OnNews(News news);
  void OnEnd(const Status& why);

  const JoinRequest self_;
  const JoinOptions options_;
  const std::string host_;
  channel::Trust trust_;  // these two are set before Join returns
  std::string job_id_;

  NewsBoard board_;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::string host_name_ GUARDED_BY(mutex_);  // of rank 0, for messages
  std::string missing_ GUARDED_BY(mutex_);
  std::optional<Welcome> welcome_ GUARDED_BY(mutex_);
  std::optional<Refusal> refusal_ GUARDED_BY(mutex_);
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool host_left_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
  bool goodbye_ GUARDED_BY(mutex_) = false;

  RemoteStore store_;
  std::unique_ptr<Lifeline> link_;  // last: its threads use all of the above
};

GuestMembership::Refusal GuestMembership::WaitForAll(WaitReporter& patience,
                                                     Deadline deadline) {
  if (!deadline.is_infinite()) {
    deadline = Deadline::At(deadline.time_point() + kGrace);
  }
  while (true) {
    std::string missing;
    {
      MutexLock lock(mutex_);
      if (welcome_) {
        job_id_ = welcome_->job_id;
        if (trust_.secret.empty()) trust_.secret = welcome_->secret;
        return {};
      }
      if (refusal_) return *refusal_;
      missing = missing_.empty() ? "an answer of " + host_name_ : missing_;
      if (deadline.expired()) {
        return {DeadlineExceeded(self_.Name(), " waited ", patience.waited(),
                                 " for ", missing)};
      }
      const Deadline slice = Deadline::After(base::kInterruptInterval);
      changed_.WaitUntil(mutex_, Earlier(deadline, slice));
    }
    Status go_on = patience.Check([&] { return "waiting for " + missing; });
    if (!go_on.ok()) return {std::move(go_on)};
  }
}

void GuestMembership::OnMessage(std::string_view message) {
  const auto kind = static_cast<MessageKind>(message.front());
  const Status handled = Handle(kind, message.substr(1));
  if (!handled.ok()) link_->Close(handled);
}

Status GuestMembership::Handle(MessageKind kind, std::string_view rest) {
  if (kind == MessageKind::kReply) return store_.OnReply(rest);
  MessageReader reader(rest);
  if (kind == MessageKind::kNews) {
    ASSIGN_OR_RETURN(News news, DecodeNews(rest));
    OnNews(std::move(news));
    return OkStatus();
  }
  MutexLock lock(mutex_);
  changed_.NotifyAll();
  switch (kind) {
    case MessageKind::kProgress:
      host_name_ = reader.Text();
      missing_ = reader.Text();
      return reader.Finish();
    case MessageKind::kWelcome:
      welcome_ = Welcome{reader.Text(), reader.Text()};
      return reader.Finish();
    case MessageKind::kRefused: {
      Refusal refusal;
      refusal.elsewhere = reader.U8() != 0;
      refusal.why = reader.Failure();
      if (!refusal_) refusal_ = std::move(refusal);
      return reader.Finish();
    }
    case MessageKind::kGoodbye:
      goodbye_ = true;
      return reader.Finish();
    default:
      return DataLoss("a message of kind ", static_cast<int>(kind));
  }
}

void GuestMembership::OnNews(News news) {
  if (news.rank == 0 && news.kind == News::Kind::kLeft) {
    MutexLock lock(mutex_);
    host_left_ = true;
  }
  if (news.rank == self_.rank && news.kind == News::Kind::kDied) {
    // This process was stopped, and the job went on without it.
    store_.Abort(news.why);
  }
  board_.Publish(std::move(news));
}

void GuestMembership::OnEnd(const Status& why) {
  News news;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
    news.rank = 0;
    if (host_left_ || leaving_) {
      news.kind = News::Kind::kLeft;
      news.why = Unavailable(host_name_, " has left the job");
    } else {
      news.kind = News::Kind::kDied;
      news.why = DescribeDeath(host_name_, why);
    }
    if (!refusal_) refusal_ = Refusal{news.why};
  }
  store_.Abort(news.why);
  if (news.kind == News::Kind::kDied) board_.Publish(std::move(news));
}

void GuestMembership::Leave(Deadline deadline) {
  MutexLock lock(mutex_);
  leaving_ = true;
  link_->Send(MakeMessage(MessageKind::kLeave));
  // Rank 0 answers, so that an end of this process cannot overtake the word.
  while (!goodbye_ && !ended_) {
    if (!changed_.WaitUntil(mutex_, deadline)) break;
  }
}

// Tries all guesses in turn until one of them is rank 0 of this job.
class Search final {
 public:
  Search(const Role& role, const MeetingPlace& place, JoinOptions options,
         Deadline deadline)
      : place_(place),
        options_(std::move(options)),
        deadline_(deadline),
        self_(MakeJoinRequest(role, place)),
        patience_(options_.interrupt) {
    NameHosts(role, options_.trust);
    meet_.self = {channel::ProcessKind::kWorker, self_.rank};
    meet_.trust = options_.trust;
    meet_.interrupt = [this] {
      return patience_.Check([this] {
        return base::Concat("rank ", self_.rank, ": waiting for rank 0 at ",
                            place_.addresses.front().ToString());
      });
    };
  }

  Result<std::unique_ptr<Membership>> Run() {
    if (place_.addresses.size() > 1) return TryAll();
    base::Interrupt nobody;
    const channel::Address& address = place_.addresses.front();
    while (true) {
      RETURN_IF_ERROR(
          LearnSecret(address, deadline_, channel::AskForSealedSecret));
      ASSIGN_OR_RETURN(channel::Connection connection,
                       channel::Connect(address, meet_, deadline_));
      auto guest = Enter(std::move(connection));
      const auto refusal = guest->WaitForAll(patience_, deadline_);
      if (refusal.why.ok()) return guest;
      // Another job is there, perhaps the one that this process has just left.
      if (!refusal.elsewhere || deadline_.expired()) return refusal.why;
      RETURN_IF_ERROR(meet_.interrupt());
      RETURN_IF_ERROR(
          nobody.SleepUntil(Earlier(deadline_, Deadline::After(kGuessPause))));
    }
  }

 private:
  std::unique_ptr<GuestMembership> Enter(channel::Connection connection) {
    return std::make_unique<GuestMembership>(self_, options_,
                                             std::move(connection));
  }

  Result<std::unique_ptr<Membership>> TryAll() {
    base::Interrupt nobody;
    Status failure = Unavailable("nobody listens");
    while (true) {
      for (const channel::Address& address : place_.addresses) {
        RETURN_IF_ERROR(meet_.interrupt());
        const Deadline patience =
            Earlier(deadline_, Deadline::After(kGuessPatience));
        const Status learned =
            LearnSecret(address, patience, channel::TryToAskForSealedSecret);
        if (!learned.ok()) {
          RETURN_IF_ERROR(meet_.interrupt());
          failure = learned.WithContext("at " + address.ToString());
          continue;
        }
        Result<channel::Connection> connection =
            channel::TryToConnect(address, meet_, patience);
        RETURN_IF_ERROR(meet_.interrupt());
        if (!connection.ok()) {
          failure = connection.status().WithContext("at " + address.ToString());
          continue;
        }
        auto guest = Enter(std::move(*connection));
        const auto refusal = guest->WaitForAll(patience_, deadline_);
        if (refusal.why.ok()) return guest;
        if (!refusal.elsewhere) return refusal.why;
        failure = refusal.why.WithContext("at " + address.ToString());
      }
      if (deadline_.expired()) {
        return DeadlineExceeded(
            self_.Name(), " waited ", patience_.waited(),
            " for rank 0 at one of ", place_.addresses.size(), " ports of ",
            place_.addresses.front().host, "; the last: ", failure.message());
      }
      RETURN_IF_ERROR(
          nobody.SleepUntil(Earlier(deadline_, Deadline::After(kGuessPause))));
    }
  }

  // Takes the secret of who listens at `address`, where it is sealed for this
  // user. `ask` is one of the two functions that ask for it.
  template <typename Ask>
  Status LearnSecret(const channel::Address& address, Deadline deadline,
                     const Ask& ask) {
    if (options_.munge == nullptr || address.is_local()) return OkStatus();
    ASSIGN_OR_RETURN(const std::optional<std::string> sealed,
                     ask(address, meet_, deadline));
    if (!sealed.has_value()) {
      return FailedPrecondition(
          self_.Name(), ": who listens at ", address.ToString(),
          " seals no secret by MUNGE, as this process would: is munged "
          "running there?");
    }
    Result<channel::Secret> secret = options_.munge->Open(*sealed);
    RETURN_IF_ERROR(secret.status().WithContext(base::Concat(
        self_.Name(), ": the secret of who listens at ", address.ToString())));
    options_.trust.secret = meet_.trust.secret = *std::move(secret);
    return OkStatus();
  }

  const MeetingPlace& place_;
  JoinOptions options_;
  const Deadline deadline_;
  const JoinRequest self_;
  WaitReporter patience_;
  channel::MeetOptions meet_;
};

}  // namespace

Result<std::unique_ptr<Membership>> JoinAsGuest(const Role& role,
                                                JoinOptions options,
                                                Deadline deadline) {
  ASSIGN_OR_RETURN(const MeetingPlace place, FindMeetingPlace(role));
  if (!place.addresses.front().is_local() && options.munge == nullptr) {
    RETURN_IF_ERROR(CheckSecretRequired(options));
  }
  return Search(role, place, std::move(options), deadline).Run();
}

}  // namespace fleet::cluster
