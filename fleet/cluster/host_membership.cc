// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/host_membership.h"

#include <fcntl.h>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/base/log.h"
#include "fleet/channel/hmac.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/cluster/munge.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;
using channel::Listener;

// How often those who came are told who is missing.
constexpr auto kTellInterval = std::chrono::seconds(1);
// A job that cannot begin stays so long for those who are still on their way,
// who would else look for it in vain until their deadline.
constexpr auto kLastWords = std::chrono::seconds(1);
// "1, 3 and 17 more".
constexpr size_t kMaxNamed = 8;

std::string RandomName() {
  std::random_device device;
  std::ostringstream out;
  out << std::hex;
  for (int i = 0; i < 4; ++i) out << (device() | uint64_t{1} << 32);
  return out.str();
}

bool IsAnyHost(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

// Whether `fd` is a socket that listens where the ranks meet.
bool ListensAt(int fd, const MeetingPlace& place) {
  channel::SocketAddress bound;
  bound.byte_size = sizeof(bound.storage);
  int listens = 0;
  socklen_t byte_size = sizeof(listens);
  if (getsockname(fd, bound.get(), &bound.byte_size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &byte_size) != 0 ||
      listens == 0) {
    return false;
  }
  const channel::Address own = ToAddress(bound);
  for (const channel::Address& address : place.addresses) {
    if (address.is_local() || own.is_local() || address.port != own.port) {
      continue;
    }
    if (IsAnyHost(own.host)) return true;
    const auto resolved = Resolve(address);
    if (!resolved.ok()) continue;
    for (const channel::SocketAddress& at : *resolved) {
      if (ToAddress(at).host == own.host) return true;
    }
  }
  return false;
}

// Ranks that come without a secret get one where nobody else can hear it.
Status ComeToSecret(const MeetingPlace& place, JoinOptions& options,
                    channel::Trust& trust) {
  if (!trust.secret.empty()) return OkStatus();
  const bool inside_host = place.addresses.front().is_local();
  if (channel::CanCheckSecrets() && (inside_host || options.munge != nullptr)) {
    ASSIGN_OR_RETURN(trust.secret, channel::Secret::Random());
    if (!inside_host) options.trust.secret = trust.secret;
    return OkStatus();
  }
  return inside_host ? OkStatus() : CheckSecretRequired(options);
}

}  // namespace

HostMembership::HostMembership(const Role& role, const MeetingPlace& place,
                               JoinOptions options, channel::Trust trust)
    : options_(std::move(options)),
      trust_(std::move(trust)),
      self_(MakeJoinRequest(role, place)),
      job_id_(RandomName()),
      service_(values_),
      store_({.send = [this](std::string_view message) { AskSelf(message); },
              .interrupt = options_.interrupt}) {}

HostMembership::~HostMembership() {
  StopListening();
  std::map<uint64_t, std::unique_ptr<Guest>> guests;
  {
    MutexLock lock(mutex_);
    guests.swap(guests_);
  }
  guests.clear();
  store_.Abort(FailedPrecondition("this process has left its job"));
}

void HostMembership::StopListening() {
  if (listener_ == nullptr) return;
  listener_->Abort(FailedPrecondition("rank 0 has gone"));
  if (acceptor_.joinable()) acceptor_.join();
  listener_.reset();
}

channel::MeetOptions HostMembership::MeetingOptions() const {
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kWorker, 0};
  options.trust = options_.trust;
  options.interrupt = options_.interrupt;
  if (options_.munge != nullptr) {
    options.sealed_secret = [this] {
      return options_.munge->Seal(options_.trust.secret);
    };
  }
  // Small: what goes through it is.
  options.shared_memory.ring_byte_size = 64 << 10;
  return options;
}

Status HostMembership::Open(const MeetingPlace& place, base::Descriptor socket,
                            Deadline deadline) {
  if (socket.valid()) {
    // The socket itself stays open for the job after this one: bound anew, it
    // would be in the way of connections of this one.
    const int copy = fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0) {
      return ErrnoStatus(errno, base::Concat("descriptor ", socket.get()));
    }
    socket_ = std::move(socket);
    ASSIGN_OR_RETURN(listener_, Listener::Adopt(copy, MeetingOptions()));
  } else {
    Result<std::unique_ptr<Listener>> listener =
        ListenAt(place, MeetingOptions(), deadline);
    RETURN_IF_ERROR(listener.status().WithContext(self_.Name()));
    listener_ = std::move(*listener);
  }
  const std::string& bound = listener_->address().host;
  if (!bound.empty() && !IsAnyHost(bound)) host_ = bound;
  if (trust_.secret.empty() && !options_.launcher_warned &&
      !channel::IsLoopback(bound)) {
    FLEET_LOG(WARNING) << "This job has no secret: "
                       << WhoCanJoin(trust_.named_hosts)
                       << " can join it. Give all its processes the same "
                          "FLEET_SECRET_FILE.";
  }
  acceptor_ = std::jthread([this] { AcceptGuests(); });
  return OkStatus();
}

void HostMembership::AcceptGuests() {
  base::Interrupt nobody;
  while (true) {
    // Guests whose link has ended before they joined, or for good.
    std::vector<std::unique_ptr<Guest>> done;
    Result<channel::Connection> connection =
        listener_->Accept(Deadline::Infinite());
    {
      MutexLock lock(mutex_);
      for (auto at = guests_.begin(); at != guests_.end();) {
        if (at->second->ended) {
          done.push_back(std::move(at->second));
          at = guests_.erase(at);
        } else {
          ++at;
        }
      }
    }
    done.clear();
    if (connection.ok()) {
      TakeIn(std::move(*connection));
    } else if (connection.status().code() == StatusCode::kUnavailable) {
      FLEET_LOG(WARNING) << connection.status().message();
      (void)nobody.SleepUntil(Deadline::After(base::kInterruptInterval));
    } else {
      return;
    }
  }
}

void HostMembership::TakeIn(channel::Connection connection) {
  auto guest = std::make_unique<Guest>();
  guest->said_rank = connection.peer.rank;
  // The link's callbacks wait for this lock, so they find the guest.
  MutexLock lock(mutex_);
  const uint64_t id = next_guest_++;
  if (reached_at_.empty() || channel::IsLoopback(reached_at_)) {
    reached_at_ = connection.own_host;
  }
  guest->link = std::make_unique<Lifeline>(
      std::move(connection.channel),
      LifelineOptions{.heartbeat_interval = options_.heartbeat_interval,
                      .heartbeat_patience = options_.heartbeat_patience},
      LifelineCallbacks{
          [this, id](std::string_view message) { OnMessage(id, message); },
          [this, id](const Status& why) { OnEnd(id, why); }});
  guests_.emplace(id, std::move(guest));
}

HostMembership::Guest* HostMembership::FindLocked(uint64_t id) {
  const auto found = guests_.find(id);
  return found == guests_.end() ? nullptr : found->second.get();
}

std::map<int, HostMembership::Guest*> HostMembership::MembersLocked() {
  std::map<int, Guest*> members;
  for (const auto& [id, guest] : guests_) {
    if (guest->joined && !guest->ended) {
      members[guest->joined->rank] = guest.get();
    }
  }
  return members;
}

std::string HostMembership::MissingLocked() {
  const std::map<int, Guest*> members = MembersLocked();
  std::ostringstream out;
  size_t count = 0;
  for (int rank = 1; rank < size(); ++rank) {
    if (members.contains(rank)) continue;
    if (count < kMaxNamed) out << (count == 0 ? "rank " : ", ") << rank;
    ++count;
  }
  if (count > kMaxNamed) out << " and " << count - kMaxNamed << " more";
  out << " of " << size();
  return out.str();
}

void HostMembership::SendToAllLocked(const std::string& message, int but_rank) {
  for (const auto& [rank, guest] : MembersLocked()) {
    if (rank != but_rank) guest->link->Send(message);
  }
}

void HostMembership::SendTo(uint64_t id, std::string message) {
  MutexLock lock(mutex_);
  Guest* guest = FindLocked(id);
  if (guest != nullptr) guest->link->Send(std::move(message));
}

void HostMembership::AskSelf(std::string_view message) {
  const Status handled =
      service_.Handle(kSelf, message, [this](std::string_view reply) {
        FLEET_CHECK(store_.OnReply(reply).ok());
      });
  FLEET_CHECK(handled.ok(), handled);
}

void HostMembership::OnMessage(uint64_t id, std::string_view message) {
  const Status handled = Handle(id, message);
  if (handled.ok()) return;
  MutexLock lock(mutex_);
  Guest* guest = FindLocked(id);
  if (guest == nullptr) return;
  FLEET_LOG(WARNING) << "rank 0: closed the connection to "
                     << guest->link->peer() << ": " << handled.message();
  guest->link->Close(handled);
}

Status HostMembership::Handle(uint64_t id, std::string_view message) {
  const auto kind = static_cast<MessageKind>(message.front());
  const std::string_view rest = message.substr(1);
  if (kind == MessageKind::kJoin) return OnJoin(id, rest);
  RETURN_IF_ERROR(CheckJoined(id));
  switch (kind) {
    case MessageKind::kRequest:
      return service_.Handle(id, rest, [this, id](std::string_view reply) {
        MessageWriter out;
        out.Raw(reply);
        SendTo(id, MakeMessage(MessageKind::kReply, std::move(out)));
      });
    case MessageKind::kReport:
      return OnReport(id, rest);
    case MessageKind::kLeave:
      OnLeave(id);
      return OkStatus();
    default:
      return DataLoss("a message of kind ", int{message.front()});
  }
}

Status HostMembership::CheckJoined(uint64_t id) {
  MutexLock lock(mutex_);
  const Guest* guest = FindLocked(id);
  if (guest != nullptr && guest->joined && phase_ == Phase::kRunning) {
    return OkStatus();
  }
  return FailedPrecondition("it has not joined");
}

Status HostMembership::CheckGuestLocked(const Guest& guest,
                                        const JoinRequest& request) {
  RETURN_IF_ERROR(failure_);
  RETURN_IF_ERROR(CheckSameView(self_, request));
  if (request.rank < 1 || request.rank >= size() ||
      request.rank != guest.said_rank) {
    return FailedPrecondition(request.Name(), " is no worker of a job of ",
                              size());
  }
  const std::map<int, Guest*> members = MembersLocked();
  if (const auto found = members.find(request.rank); found != members.end()) {
    return FailedPrecondition(request.Name(), " is not the only rank ",
                              request.rank, ": ", found->second->joined->Name(),
                              " came before");
  }
  if (phase_ == Phase::kRunning) {
    return FailedPrecondition(request.Name(),
                              " came when the job was already running");
  }
  return OkStatus();
}

Status HostMembership::OnJoin(uint64_t id, std::string_view rest) {
  ASSIGN_OR_RETURN(JoinRequest request, DecodeJoinRequest(rest));
  MutexLock lock(mutex_);
  Guest* guest = FindLocked(id);
  if (guest == nullptr || guest->joined) return OkStatus();
  // Who left this job comes for the next one of the same processes, for which
  // rank 0 does not listen yet.
  const bool elsewhere = request.meeting_name != self_.meeting_name ||
                         left_.contains(request.rank);
  Status why = elsewhere ? FailedPrecondition("another job is at this address")
                         : CheckGuestLocked(*guest, request);
  if (why.ok()) {
    guest->joined = std::move(request);
    MessageWriter progress;
    progress.Text(self_.Name()).Text(MissingLocked());
    guest->link->Send(MakeMessage(MessageKind::kProgress, std::move(progress)));
    changed_.NotifyAll();
    return OkStatus();
  }
  MessageWriter out;
  out.U8(elsewhere).Failure(why);
  guest->link->Send(MakeMessage(MessageKind::kRefused, std::move(out)));
  if (elsewhere) return OkStatus();
  told_.insert(request.rank);
  FLEET_LOG(WARNING) << "rank 0: refused " << why.message();
  last_refusal_ = why.message();
  // Two ideas of the job cannot both be right, and rank 0 has no better one.
  const bool is_fatal = phase_ == Phase::kJoining && failure_.ok() &&
                        !CheckSameView(self_, request).ok();
  if (is_fatal) failure_ = why;
  changed_.NotifyAll();
  return OkStatus();
}

Status HostMembership::OnReport(uint64_t id, std::string_view rest) {
  MessageReader reader(rest);
  News news;
  news.kind = News::Kind::kFailed;
  news.topic = reader.Text();
  news.why = reader.Failure();
  RETURN_IF_ERROR(reader.Finish());
  MutexLock lock(mutex_);
  const Guest* guest = FindLocked(id);
  if (guest == nullptr) return OkStatus();
  news.rank = guest->joined->rank;
  news.why = news.why.WithContext(guest->joined->Name());
  SendToAllLocked(Encode(news), news.rank);
  board_.Publish(std::move(news));
  return OkStatus();
}

void HostMembership::OnLeave(uint64_t id) {
  MutexLock lock(mutex_);
  Guest* guest = FindLocked(id);
  if (guest == nullptr || guest->left) return;
  guest->left = true;
  guest->link->Send(MakeMessage(MessageKind::kGoodbye));
  News news;
  news.kind = News::Kind::kLeft;
  news.rank = guest->joined->rank;
  news.why = Unavailable(guest->joined->Name(), " has left the job");
  SendToAllLocked(Encode(news), news.rank);
  board_.Publish(std::move(news));
  gone_.insert(guest->joined->rank);
  left_.insert(guest->joined->rank);
  changed_.NotifyAll();
}

void HostMembership::OnEnd(uint64_t id, const Status& why) {
  Status death;
  {
    MutexLock lock(mutex_);
    Guest* guest = FindLocked(id);
    if (guest == nullptr) return;
    if (guest->joined && phase_ == Phase::kJoining) {
      FLEET_LOG(WARNING) << DescribeDeath(guest->joined->Name(), why).message()
                         << "; the job waits for rank " << guest->joined->rank
                         << " again";
    } else if (guest->joined && phase_ == Phase::kRunning && !guest->left) {
      News news;
      news.kind = News::Kind::kDied;
      news.rank = guest->joined->rank;
      news.why = DescribeDeath(guest->joined->Name(), why);
      death = news.why;
      // To the dead too, who may only have been stopped.
      SendToAllLocked(Encode(news), -1);
      board_.Publish(std::move(news));
      gone_.insert(guest->joined->rank);
    }
    guest->ended = true;
    changed_.NotifyAll();
  }
  if (!death.ok()) values_.EndWaits(death);
  values_.ExpireCaller(id);
}

Status HostMembership::WaitForAll(Deadline deadline) {
  WaitReporter patience(options_.interrupt);
  Deadline tell = Deadline::After(kTellInterval);
  Status outcome;
  bool cannot_begin = false;
  while (true) {
    std::string missing;
    {
      MutexLock lock(mutex_);
      outcome = failure_;
      cannot_begin = !failure_.ok();
      if (outcome.ok() &&
          MembersLocked().size() + 1 == static_cast<size_t>(size())) {
        phase_ = Phase::kRunning;
        MessageWriter welcome;
        welcome.Text(job_id_);
        welcome.Text(trust_.secret == options_.trust.secret
                         ? std::string_view()
                         : trust_.secret.text());
        SendToAllLocked(MakeMessage(MessageKind::kWelcome, std::move(welcome)),
                        -1);
        if (host_ == "127.0.0.1" && !reached_at_.empty()) host_ = reached_at_;
        return OkStatus();
      }
      missing = MissingLocked();
      if (outcome.ok() && deadline.expired()) {
        outcome = DeadlineExceeded(
            self_.Name(), " at ", listener_->address().ToString(), " waited ",
            patience.waited(), " for ", missing,
            last_refusal_.empty() ? "" : "; refused: ", last_refusal_);
      }
      if (!outcome.ok()) break;
      if (tell.expired()) {
        tell = Deadline::After(kTellInterval);
        MessageWriter progress;
        progress.Text(self_.Name()).Text(missing);
        SendToAllLocked(
            MakeMessage(MessageKind::kProgress, std::move(progress)), -1);
      }
      const Deadline slice = Deadline::After(base::kInterruptInterval);
      changed_.WaitUntil(mutex_, Earlier(deadline, slice));
    }
    outcome = patience.Check([&] { return "waiting for " + missing; });
    if (!outcome.ok()) break;
  }
  RefuseAll(outcome, cannot_begin);
  return outcome;
}

void HostMembership::RefuseAll(const Status& why, bool wait_for_others) {
  const Deadline last_words = Deadline::After(kLastWords);
  {
    MutexLock lock(mutex_);
    phase_ = Phase::kFailed;
    failure_ = why;
    MessageWriter out;
    out.U8(0).Failure(why);
    SendToAllLocked(MakeMessage(MessageKind::kRefused, std::move(out)), -1);
    for (const auto& [rank, guest] : MembersLocked()) told_.insert(rank);
    while (wait_for_others && told_.size() + 1 < static_cast<size_t>(size())) {
      if (!changed_.WaitUntil(mutex_, last_words)) break;
    }
  }
  // No new guest is taken in from here on, so that the links stay.
  listener_->Abort(why);
  acceptor_.join();
  std::vector<Lifeline*> links;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, guest] : guests_) links.push_back(guest->link.get());
  }
  for (Lifeline* link : links) {
    (void)link->Flush(Deadline::After(kLastWords));
  }
}

void HostMembership::Report(std::string topic, Status why) {
  News news;
  news.kind = News::Kind::kFailed;
  news.rank = 0;
  news.topic = std::move(topic);
  news.why = why.WithContext(self_.Name());
  MutexLock lock(mutex_);
  SendToAllLocked(Encode(news), 0);
}

void HostMembership::Leave(Deadline deadline) {
  News news;
  news.kind = News::Kind::kLeft;
  news.rank = 0;
  news.why = Unavailable(self_.Name(), " has left the job");
  {
    MutexLock lock(mutex_);
    SendToAllLocked(Encode(news), 0);
  }
  WaitUntilOthersLeft(deadline);
  StopListening();
  (void)socket_.Release();
}

void HostMembership::WaitUntilOthersLeft(Deadline deadline) {
  WaitReporter patience(options_.interrupt);
  while (true) {
    {
      MutexLock lock(mutex_);
      if (gone_.size() + 1 >= static_cast<size_t>(size())) return;
      const Deadline slice = Deadline::After(base::kInterruptInterval);
      changed_.WaitUntil(mutex_, Earlier(deadline, slice));
    }
    const Status go_on = patience.Check([this] {
      MutexLock lock(mutex_);
      return base::Concat("rank 0 has ended and stays for ",
                          size() - 1 - static_cast<int>(gone_.size()),
                          " other ranks");
    });
    if (!go_on.ok() || deadline.expired()) return;
  }
}

Result<std::unique_ptr<Membership>> JoinAsHost(const Role& role,
                                               JoinOptions options,
                                               Deadline deadline) {
  const bool alone = role.worker_num <= 1;
  Result<MeetingPlace> found = FindMeetingPlace(role);
  if (!found.ok() && !alone) return found.status();
  const MeetingPlace place = found.ok() ? *std::move(found) : MeetingPlace();
  base::Descriptor listener;
  if (ListensAt(options.listen_fd, place)) {
    listener = base::Descriptor::OfThisProcess(options.listen_fd);
  }
  channel::Trust trust = options.trust;
  if (!alone) {
    RETURN_IF_ERROR(ComeToSecret(place, options, trust));
    NameHosts(role, options.trust);
    NameHosts(role, trust);
  }
  auto host = std::make_unique<HostMembership>(role, place, std::move(options),
                                               std::move(trust));
  if (!alone) {
    RETURN_IF_ERROR(host->Open(place, std::move(listener), deadline));
  }
  RETURN_IF_ERROR(host->WaitForAll(deadline));
  return host;
}

}  // namespace fleet::cluster
