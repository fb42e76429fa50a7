// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/membership.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "fleet/base/fork.h"
#include "fleet/base/log.h"
#include "fleet/cluster/launcher_words.h"
#include "fleet/cluster/membership_protocol.h"

namespace fleet::cluster {
namespace {

using std::chrono::steady_clock;

std::string ThisProcess() {
  char host[256] = "";
  (void)gethostname(host, sizeof(host) - 1);
  return base::Concat("process ", getpid(), " on ", host);
}

// A membership as the forked children of its process see it: nothing. Its
// threads, and the locks that they may have held, are not theirs.
class OwnMembership final : public Membership {
 public:
  explicit OwnMembership(std::unique_ptr<Membership> real)
      : real_(std::move(real)) {}
  ~OwnMembership() override {
    if (origin_.in_child()) (void)real_.release();
  }

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  const std::string& job_id() const override { return real_->job_id(); }
  const std::string& host() const override { return real_->host(); }
  const channel::Trust& trust() const override { return real_->trust(); }
  Store& store() override { return real_->store(); }
  int Subscribe(std::function<void(const News&)> listener) override {
    return origin_.in_child() ? 0 : real_->Subscribe(std::move(listener));
  }
  void Unsubscribe(int subscription) override {
    if (!origin_.in_child()) real_->Unsubscribe(subscription);
  }
  void Report(std::string topic, Status why) override {
    if (origin_.in_child()) return;
    real_->Report(std::move(topic), std::move(why));
  }
  void Leave(base::Deadline deadline) override {
    if (!origin_.in_child()) real_->Leave(deadline);
  }

 private:
  const base::Origin origin_;
  std::unique_ptr<Membership> real_;
};

}  // namespace

std::string MakeMessage(MessageKind kind, MessageWriter rest) {
  return MessageWriter().U8(static_cast<uint8_t>(kind)).Raw(rest.Take()).Take();
}

std::string JoinRequest::Name() const {
  return base::Concat("rank ", rank, " (", process, ")");
}

JoinRequest MakeJoinRequest(const Role& role, const MeetingPlace& place) {
  JoinRequest request;
  request.rank = role.index;
  request.process = ThisProcess();
  request.meeting_name = place.name;
  request.view.worker_num = static_cast<uint32_t>(role.worker_num);
  for (const Endpoint& endpoint : role.worker_endpoints) {
    request.view.worker_endpoints.push_back(ToString(endpoint));
  }
  return request;
}

std::string Encode(const JoinRequest& request) {
  MessageWriter rest;
  rest.U32(static_cast<uint32_t>(request.rank))
      .Text(request.process)
      .Text(request.meeting_name)
      .U32(request.view.worker_num)
      .Texts(request.view.worker_endpoints);
  return MakeMessage(MessageKind::kJoin, std::move(rest));
}

Result<JoinRequest> DecodeJoinRequest(std::string_view rest) {
  MessageReader reader(rest);
  JoinRequest request;
  request.rank = static_cast<int>(reader.U32());
  request.process = reader.Text();
  request.meeting_name = reader.Text();
  request.view.worker_num = reader.U32();
  request.view.worker_endpoints = reader.Texts();
  RETURN_IF_ERROR(reader.Finish());
  return request;
}

std::string Encode(const News& news) {
  MessageWriter rest;
  rest.U8(static_cast<uint8_t>(news.kind))
      .U32(static_cast<uint32_t>(news.rank))
      .Text(news.topic)
      .Failure(news.why);
  return MakeMessage(MessageKind::kNews, std::move(rest));
}

Result<News> DecodeNews(std::string_view rest) {
  MessageReader reader(rest);
  News news;
  const uint8_t kind = reader.U8();
  news.kind = static_cast<News::Kind>(kind);
  news.rank = static_cast<int>(reader.U32());
  news.topic = reader.Text();
  news.why = reader.Failure();
  RETURN_IF_ERROR(reader.Finish());
  if (kind > static_cast<uint8_t>(News::Kind::kFailed)) {
    return DataLoss("news of a kind ", int{kind});
  }
  return news;
}

Status CheckSameView(const JoinRequest& host, const JoinRequest& guest) {
  const std::string who =
      base::Concat(guest.Name(), " and ", host.Name(),
                   " were told different things about their job: ");
  if (guest.view.worker_num != host.view.worker_num) {
    return FailedPrecondition(who, guest.view.worker_num, " workers for rank ",
                              guest.rank, ", ", host.view.worker_num,
                              " for rank ", host.rank);
  }
  const std::vector<std::string>& theirs = guest.view.worker_endpoints;
  const std::vector<std::string>& ours = host.view.worker_endpoints;
  if (theirs.size() != ours.size()) {
    return FailedPrecondition(who, theirs.size(), " endpoints for rank ",
                              guest.rank, ", ", ours.size(), " for rank ",
                              host.rank);
  }
  const auto [at, other] =
      std::mismatch(theirs.begin(), theirs.end(), ours.begin());
  if (at == theirs.end()) return OkStatus();
  return FailedPrecondition(who, "worker ", at - theirs.begin(), " is at ", *at,
                            " for rank ", guest.rank, ", at ", *other,
                            " for rank ", host.rank);
}

Status DescribeDeath(const std::string& name, const Status& end) {
  if (end.code() == StatusCode::kDeadlineExceeded) {
    return Unavailable(name, " is dead: ", end.message());
  }
  if (end.code() == StatusCode::kDataLoss) {
    return Unavailable(name, " was shut out: ", end.message());
  }
  return Unavailable(name, " is dead: its connection closed");
}

WaitReporter::WaitReporter(base::InterruptCheck interrupt,
                           std::chrono::milliseconds interval)
    : interrupt_(std::move(interrupt)),
      interval_(interval),
      since_(steady_clock::now()),
      next_(since_ + interval) {}

Status WaitReporter::Check(const std::function<std::string()>& what) {
  // Asked once it said stop, an interrupt may have forgotten.
  if (interrupted_.ok() && interrupt_) interrupted_ = interrupt_();
  RETURN_IF_ERROR(interrupted_);
  if (steady_clock::now() >= next_) {
    next_ += interval_;
    FLEET_LOG(INFO) << what() << " (since " << waited() << ")";
  }
  return OkStatus();
}

std::string WaitReporter::waited() const {
  const auto time = std::chrono::duration_cast<std::chrono::seconds>(
      steady_clock::now() - since_);
  return base::Concat(time.count(), " s");
}

Result<std::unique_ptr<Membership>> Membership::Join(const Role& role,
                                                     JoinOptions options,
                                                     base::Deadline deadline) {
  if (!role.is_worker()) {
    return InvalidArgument(ToString(role), " cannot join the workers");
  }
  const auto join = role.index == 0 ? JoinAsHost : JoinAsGuest;
  ASSIGN_OR_RETURN(std::unique_ptr<Membership> real,
                   join(role, std::move(options), deadline));
  if (role.worker_num > 1) TellLauncher(LauncherWord::kMet);
  return std::make_unique<OwnMembership>(std::move(real));
}

}  // namespace fleet::cluster
