// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/lanes.h"

#include <algorithm>
#include <cstring>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/cluster/launcher_words.h"

namespace fleet::ps {
namespace {

using channel::Channel;

// Between attempts to reach a server that is gone.
constexpr auto kRetryInterval = std::chrono::milliseconds(20);

// Between looks whether the user wants an end (^C).
constexpr auto kInterruptInterval = std::chrono::milliseconds(100);

// Between looks whether a server that does not answer still lives, where nobody
// can want an end.
constexpr auto kLifeInterval = std::chrono::milliseconds(1000);

// For an answer that was sent before the connection of OpenLife ended.
constexpr auto kTimeToArrive = std::chrono::milliseconds(100);

// For a hello to a server that was lost: signs of life to the others wait.
constexpr auto kTimeToReturn = std::chrono::milliseconds(250);

// What comes later on these connections belongs to nobody.
void CloseAll(Lane& lane) {
  for (Lane::Connection& each : lane.connections) each.channel.reset();
}

}  // namespace

std::string CallName::ToString() const {
  std::string text = verb;
  if (!table.empty()) text += base::Concat(" ", table);
  if (unit != nullptr) text += base::Concat(" (", count, " ", unit, ")");
  return text;
}

uint32_t MillisecondsUntil(Deadline deadline) {
  if (deadline.is_infinite()) return ~uint32_t{0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline.remaining());
  return static_cast<uint32_t>(
      std::clamp<int64_t>(left.count(), 1, ~uint32_t{0}));
}

Deadline WithTimeToAnswer(Deadline deadline) {
  if (deadline.is_infinite()) return deadline;
  return Deadline::At(deadline.time_point() + std::chrono::seconds(5));
}

std::span<std::byte> Call::Into(uint32_t, size_t, size_t) { return {}; }

Status Call::Take(uint32_t, size_t, std::span<const std::byte>) {
  return OkStatus();
}

size_t Call::FirstOfGroup(uint32_t, size_t request) { return request; }

void Call::BeginAgain(uint32_t, size_t, std::span<const size_t>) {
  FLEET_CHECK(false, name_.ToString(), " is never run again");
}

void Call::CountUpdates(uint32_t, size_t, UpdateCounts&) {}

Lanes::Lanes(uint32_t num_servers, OpenConnection open,
             const LaneOptions& options)
    : num_servers_(num_servers),
      open_(std::move(open)),
      options_(options),
      epochs_(num_servers),
      life_(num_servers),
      heartbeats_({base::Concat("worker ", options.worker), "server",
                   std::chrono::seconds(2), options.heartbeat_timeout}) {}

Lanes::~Lanes() {
  if (!beating_.joinable()) return;
  if (origin_.in_child()) {
    // A fork has no such thread, nor may it take locks that the thread had.
    beating_.detach();
    return;
  }
  ending_.Raise(FailedPrecondition("the worker ends"));
}

std::unique_ptr<Lane> Lanes::Borrow() {
  base::MutexLock lock(mutex_);
  if (!idle_.empty()) {
    std::unique_ptr<Lane> lane = std::move(idle_.back());
    idle_.pop_back();
    return lane;
  }
  auto lane = std::make_unique<Lane>();
  lane->number = num_lanes_++;
  lane->connections.resize(num_servers_);
  return lane;
}

void Lanes::GiveBack(std::unique_ptr<Lane> lane) {
  base::MutexLock lock(mutex_);
  idle_.push_back(std::move(lane));
}

Status Lanes::Named(const Status& status, const CallName& name,
                    uint32_t server) const {
  if (status.ok()) return status;
  if (status.code() == StatusCode::kUnavailable) {
    cluster::TellLauncher(cluster::LauncherWord::kOthersFailed);
  }
  return status.WithContext(base::Concat("worker ", options_.worker, ": ",
                                         name.ToString(), " at server ",
                                         server));
}

Status Lanes::OpenLife(uint32_t server, Deadline deadline) {
  // Without the lock: a server that hangs must not keep calls to others.
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                   Greet(nullptr, server, deadline));
  base::MutexLock lock(life_mutex_);
  Life& life = life_[server];
  life.channel = std::move(channel);
  life.beat.clear();
  life.asked = false;
  return OkStatus();
}

Status Lanes::Meet(uint32_t server, Deadline deadline) {
  const Deadline patience =
      Earlier(deadline, Deadline::After(options_.reconnect_for));
  base::Interrupt never;
  while (true) {
    Status met = OpenLife(server, deadline);
    if (met.code() != StatusCode::kUnavailable || patience.expired()) {
      return met;
    }
    if (options_.interrupt) RETURN_IF_ERROR(options_.interrupt());
    (void)never.SleepUntil(Earlier(patience, Deadline::After(kRetryInterval)));
  }
}

void Lanes::StartBeating() {
  beating_ = std::jthread([this] { Beat(); });
}

void Lanes::Beat() {
  while (true) {
    {
      base::MutexLock lock(life_mutex_);
      for (uint32_t s = 0; s < num_servers_; ++s) {
        Life& life = life_[s];
        const Status status = BeatOnce(s, life);
        // Calls see for themselves that it is lost.
        if (!status.ok()) heartbeats_.Forget(static_cast<int>(s));
        if (status.code() == StatusCode::kUnavailable &&
            options_.reconnect_for.count() > 0) {
          life.channel.reset();
          life.lost = status;
          ++life.num_lost;
        }
      }
      for (const Heartbeats::News& news :
           heartbeats_.Look(std::chrono::steady_clock::now())) {
        Log(news);
        if (news.kind != Heartbeats::News::Kind::kDead) continue;
        Channel* const channel =
            life_[static_cast<size_t>(news.peer)].channel.get();
        if (channel != nullptr) channel->Abort(Unavailable(news.text));
      }
    }
    ReturnToOne();
    if (!ending_.SleepUntil(Deadline::After(kBeatInterval)).ok()) return;
  }
}

void Lanes::ReturnToOne() {
  base::MutexLock one(returning_mutex_);
  if (!returns_ || has_failed_) return;
  for (uint32_t i = 1; i <= num_servers_; ++i) {
    const uint32_t server = (last_returned_ + i) % num_servers_;
    {
      base::MutexLock lock(life_mutex_);
      if (life_[server].channel != nullptr) continue;
    }
    last_returned_ = server;
    // What is wrong with it, if something is, calls are told.
    (void)OpenLife(server, Deadline::After(kTimeToReturn));
    return;
  }
}

void Lanes::StopReturning() {
  if (origin_.in_child()) return;
  base::MutexLock one(returning_mutex_);
  returns_ = false;
}

uint64_t Lanes::NumLost(uint32_t server) const {
  base::MutexLock lock(life_mutex_);
  return life_[server].num_lost;
}

std::string Lanes::MakeBeat() const {
  RequestHead head;
  head.op = Op::kBeat;
  channel::MessageWriter body;
  body.Text(ThisProcess());
  base::MutexLock lock(mutex_);
  body.U32(num_servers_);
  for (const uint64_t epoch : epochs_) body.U64(epoch);
  std::string beat;
  base::Append(beat, head);
  return beat + body.Take();
}

Status Lanes::TakeBeat(uint32_t server, Life& life) {
  const Result<std::vector<std::byte>> answer = life.channel->RecvMessage(
      sizeof(ReplyHead) + kMaxInline, Deadline::After(std::chrono::seconds(0)));
  if (answer.status().code() == StatusCode::kDeadlineExceeded) {
    return OkStatus();
  }
  RETURN_IF_ERROR(answer.status());
  // Nobody asked.
  if (!life.asked || answer->size() < sizeof(ReplyHead)) {
    return DataLoss("a message that is no answer to a beat");
  }
  life.asked = false;
  const auto head = base::LoadAt<ReplyHead>(*answer, 0);
  // A newer incarnation of this worker is there, say: calls are told why.
  if (head.code != 0) return FailedPrecondition("no answer to a beat");
  heartbeats_.Heard(static_cast<int>(server),
                    base::TextOf(std::span(*answer).subspan(sizeof(ReplyHead))),
                    std::chrono::steady_clock::now());
  return OkStatus();
}

Status Lanes::BeatOnce(uint32_t server, Life& life) {
  if (life.channel == nullptr) return OkStatus();
  RETURN_IF_ERROR(TakeBeat(server, life));
  if (life.asked) return OkStatus();
  if (life.beat.empty()) life.beat = MakeBeat();
  const Status sent =
      life.channel->Send(std::as_bytes(std::span(life.beat)),
                         Deadline::After(std::chrono::seconds(0)));
  // What was begun goes on with the next step.
  if (sent.code() == StatusCode::kDeadlineExceeded) return OkStatus();
  RETURN_IF_ERROR(sent);
  life.beat.clear();
  life.asked = true;
  return OkStatus();
}

Status Lanes::Open(Lane& lane, uint32_t server, Deadline deadline) {
  lane.connections[server].num_lost = NumLost(server);
  ASSIGN_OR_RETURN(lane.connections[server].channel,
                   Greet(&lane, server, deadline));
  return OkStatus();
}

Result<std::unique_ptr<Channel>> Lanes::Greet(Lane* lane, uint32_t server,
                                              Deadline deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, open_(server, deadline));
  const IdleCounts before = CountIdle(server);
  if (server == 0) ++num_hellos_;
  RequestHead head;
  head.op = Op::kHello;
  const std::string body = channel::MessageWriter()
                               .U32(static_cast<uint32_t>(options_.worker))
                               .U32(lane == nullptr ? kLifeLane : lane->number)
                               .U64(incarnation_)
                               .U64(server == 0 ? turn_.load() : 0)
                               .Take();
  ASSIGN_OR_RETURN(const std::string bytes,
                   Ask(*channel, head, body, deadline, options_.interrupt));
  ASSIGN_OR_RETURN(const HelloAnswer answer, DecodeHelloAnswer(bytes));
  incarnation_ = answer.incarnation;
  if (server == 0) is_back_ = answer.is_back;
  RETURN_IF_ERROR(CheckLost(lane, server, before, answer));
  return channel;
}

std::string Lanes::Describe(const UpdateCounts& updates) const {
  std::string text;
  for (const auto& [table, count] : updates) {
    text += base::Concat(
        text.empty() ? "" : ", ", count,
        !text.empty() ? " of "
        : count == 1  ? " update of "
                      : " updates of ",
        name_of_table_ ? name_of_table_(table)
                       : base::Concat("table ", static_cast<uint32_t>(table)));
  }
  return text;
}

uint64_t Lanes::num_server_restarts() const {
  base::MutexLock lock(mutex_);
  return num_server_restarts_;
}

UpdateCounts Lanes::lost() const {
  base::MutexLock lock(mutex_);
  return lost_;
}

Lanes::IdleCounts Lanes::CountIdle(uint32_t server) const {
  base::MutexLock lock(mutex_);
  IdleCounts counts;
  for (const std::unique_ptr<Lane>& idle : idle_) {
    counts[idle.get()] = idle->connections[server].acknowledged;
  }
  return counts;
}

Status Lanes::CheckLost(Lane* lane, uint32_t server, const IdleCounts& before,
                        const HelloAnswer& answer) {
  UpdateCounts lost;
  bool is_new = false;  // this epoch of a server that was known before
  const auto compare = [&](Lane& with) {
    const auto record = std::find_if(
        answer.lanes.begin(), answer.lanes.end(),
        [&](const LaneRecord& r) { return r.lane == with.number; });
    for (auto& [table, count] : with.connections[server].acknowledged) {
      uint64_t applied = 0;
      if (record != answer.lanes.end()) {
        const auto found = record->applied.find(table);
        if (found != record->applied.end()) applied = found->second;
      }
      if (count <= applied) continue;
      lost[table] += count - applied;
      count = applied;
    }
  };
  {
    base::MutexLock lock(mutex_);
    if (answer.epoch < epochs_[server]) {
      return Unavailable("it was started again (epoch ", epochs_[server],
                         "), and an old process of it answers, or one whose "
                         "clock was set back (epoch ",
                         answer.epoch, ")");
    }
    is_new = epochs_[server] != 0 && answer.epoch > epochs_[server];
    if (is_new) ++num_server_restarts_;
    epochs_[server] = answer.epoch;
    if (lane != nullptr) compare(*lane);
    for (const std::unique_ptr<Lane>& idle : idle_) {
      // One that was used since may have been answered after this hello.
      const auto was = before.find(idle.get());
      if (was != before.end() &&
          was->second == idle->connections[server].acknowledged) {
        compare(*idle);
      }
    }
    for (const auto& [table, count] : lost) lost_[table] += count;
  }
  // Who has said good-bye cannot be told any more: who is here is.
  const std::string of_gone = is_new ? answer.lost_of_gone : std::string();
  if (lost.empty() && of_gone.empty()) return OkStatus();
  const std::string what =
      base::Concat("server ", server, " was started again and has lost ",
                   Describe(lost), lost.empty() || of_gone.empty() ? "" : "; ",
                   of_gone, of_gone.empty() ? "" : " (which has said good-bye)",
                   " that it had acknowledged");
  cluster::TellLauncher(cluster::LauncherWord::kLost);
  if (options_.on_data_loss == OnDataLoss::kGoOn) {
    FLEET_LOG(WARNING) << "worker " << options_.worker << ": " << what
                       << "; training goes on without them "
                          "(FLEET_PS_ON_DATA_LOSS=go_on)";
    return OkStatus();
  }
  const Status failed = DataLoss(
      what,
      ". Begin again from the last save, save more often, or set "
      "FLEET_PS_ON_DATA_LOSS=go_on, with which training goes on without them");
  base::MutexLock lock(mutex_);
  if (failed_.ok()) failed_ = failed;
  has_failed_ = true;
  return failed_;
}

Status Lanes::CheckLife(uint32_t server, uint64_t num_lost) {
  base::MutexLock lock(life_mutex_);
  Life& life = life_[server];
  if (life.num_lost > num_lost) return life.lost;
  if (life.channel == nullptr) return OkStatus();
  // An answer that came before the end hides it.
  Status status = TakeBeat(server, life);
  if (status.ok()) status = TakeBeat(server, life);
  return status.code() == StatusCode::kUnavailable ? status : OkStatus();
}

Deadline Lanes::NextSlice() const {
  return Deadline::After(options_.interrupt ? kInterruptInterval
                                            : kLifeInterval);
}

template <typename Wait>
auto Lanes::InSlices(uint32_t server, const Lane::Connection& connection,
                     Deadline deadline, Deadline& slice, const Wait& wait)
    -> decltype(wait(deadline)) {
  while (true) {
    auto outcome = wait(Earlier(deadline, slice));
    StatusCode code;
    if constexpr (std::is_same_v<decltype(outcome), Status>) {
      code = outcome.code();
    } else {
      code = outcome.status().code();
    }
    // The connection that carries nothing knows why both are lost.
    if (code == StatusCode::kUnavailable) {
      RETURN_IF_ERROR(CheckLife(server, connection.num_lost));
    }
    if (code != StatusCode::kDeadlineExceeded || deadline.expired()) {
      return outcome;
    }
    if (options_.interrupt) RETURN_IF_ERROR(options_.interrupt());
    Status life = CheckLife(server, connection.num_lost);
    if (!life.ok()) {
      // A server that ends has answered before, a good-bye for one. The answer
      // may have come since the slice ended, or is about to come: each
      // connection is carried for itself.
      outcome = wait(Earlier(deadline, Deadline::After(kTimeToArrive)));
      if (outcome.ok()) return outcome;
      return life;
    }
    slice = NextSlice();
  }
}

Status Lanes::SendRequest(Lane& lane, Call& call, uint32_t server,
                          Deadline deadline) {
  Lane::Connection& connection = lane.connections[server];
  if (connection.channel == nullptr) {
    // One that is gone, and is not waited for, would be called until the
    // deadline.
    if (options_.reconnect_for.count() == 0) {
      RETURN_IF_ERROR(CheckLife(server, connection.num_lost));
    }
    RETURN_IF_ERROR(Open(lane, server, deadline));
    // It may have been started anew since another lane was used.
    if (welcome_ && options_.reconnect_for.count() > 0) {
      RETURN_IF_ERROR(welcome_(*connection.channel, server, deadline));
    }
  }
  RequestHead head;
  lane.parts.resize(1);
  call.Ask(server, connection.sent, head, lane.parts);
  head.sequence = connection.first_sequence + connection.sent;
  lane.parts[0] = std::as_bytes(std::span(&head, 1));
  Deadline slice = NextSlice();
  const auto send = [&](Deadline until) {
    return connection.channel->SendParts(lane.parts, until);
  };
  RETURN_IF_ERROR(InSlices(server, connection, deadline, slice, send));
  ++connection.sent;
  connection.next_sequence =
      std::max(connection.next_sequence, head.sequence + 1);
  return OkStatus();
}

// `outcome` is what the server said; the return value how the connection is.
Status Lanes::TakeReply(Lane& lane, Call& call, uint32_t server,
                        Deadline deadline, Status* outcome) {
  Lane::Connection& connection = lane.connections[server];
  Channel& channel = *connection.channel;
  const size_t request = connection.received;
  const uint64_t sequence = connection.first_sequence + request;
  // One for all waits of this reply: they are short, and asking for the time
  // would take a part of them.
  Deadline slice = NextSlice();
  const auto receive = [&](std::span<std::byte> into) {
    return InSlices(server, connection, deadline, slice,
                    [&](Deadline until) { return channel.Recv(into, until); });
  };
  const auto next_size = [&](Deadline until) {
    return channel.NextSize(until);
  };
  ASSIGN_OR_RETURN(const uint64_t byte_size,
                   InSlices(server, connection, deadline, slice, next_size));
  if (byte_size < sizeof(ReplyHead) ||
      byte_size > sizeof(ReplyHead) + kMaxInline) {
    return DataLoss("a reply of ", byte_size, " bytes");
  }
  lane.small.resize(byte_size);
  RETURN_IF_ERROR(receive(lane.small));
  const auto head = base::LoadAt<ReplyHead>(lane.small, 0);
  if (head.sequence != sequence) {
    return DataLoss("the reply to request ", head.sequence, " instead of ",
                    sequence);
  }
  if ((head.flags & kReplyCutWanted) != 0) cut_wanted_ = true;
  const bool apart = (head.flags & kReplyApart) != 0;
  const std::span<const std::byte> inlined =
      std::span(lane.small).subspan(sizeof(head));
  if (head.code != 0) {
    *outcome = Status(static_cast<StatusCode>(head.code),
                      std::string(base::TextOf(inlined)));
    connection.refused.push_back(request);
    ++connection.received;
    return OkStatus();
  }
  const std::span<std::byte> into = call.Into(server, request, head.count);
  if (head.count != into.size() || (!apart && head.count != inlined.size())) {
    return DataLoss("an answer of ", head.count, " bytes instead of ",
                    into.size());
  }
  if (apart) {
    RETURN_IF_ERROR(receive(into));
  } else if (!into.empty()) {
    std::memcpy(into.data(), inlined.data(), into.size());
  }
  *outcome = call.Take(server, request, into);
  call.CountUpdates(server, request, connection.acknowledged);
  ++connection.received;
  return OkStatus();
}

Status Lanes::Recover(Lane& lane, Call& call, uint32_t server,
                      const Status& status, Deadline deadline) {
  const CallName& name = call.name();
  Lane::Connection& connection = lane.connections[server];
  if (status.code() != StatusCode::kUnavailable ||
      options_.reconnect_for.count() == 0) {
    CloseAll(lane);
    return Named(status, name, server);
  }
  connection.channel.reset();
  const Deadline patience =
      Earlier(deadline, Deadline::After(options_.reconnect_for));
  base::Interrupt never;
  while (true) {
    Status back = Open(lane, server, patience);
    if (back.ok() && welcome_) {
      back = welcome_(*connection.channel, server, patience);
    }
    if (back.ok()) back = OpenLife(server, patience);
    if (back.ok()) break;
    // It is there, and says why it does not go on: trying again changes
    // nothing.
    if (back.code() != StatusCode::kUnavailable &&
        back.code() != StatusCode::kDeadlineExceeded) {
      CloseAll(lane);
      return Named(back, name, server);
    }
    connection.channel.reset();
    if (patience.expired()) {
      CloseAll(lane);
      return Named(status.WithContext("it did not come back"), name, server);
    }
    if (options_.interrupt) {
      const Status stop = options_.interrupt();
      if (!stop.ok()) {
        CloseAll(lane);
        return stop;
      }
    }
    (void)never.SleepUntil(Earlier(patience, Deadline::After(kRetryInterval)));
  }
  // From the first that was not answered on, and what belongs to it; the server
  // knows which of them it has done.
  connection.received = call.FirstOfGroup(server, connection.received);
  connection.sent = connection.received;
  return OkStatus();
}

Status Lanes::Run(Lane& lane, Call& call, Deadline deadline) {
  for (Lane::Connection& connection : lane.connections) {
    connection.first_sequence = connection.next_sequence;
    connection.sent = 0;
    connection.received = 0;
    connection.refused.clear();
  }
  return AskAll(lane, call, deadline);
}

Status Lanes::RunAgain(Lane& lane, Call& call, Deadline deadline) {
  for (uint32_t s = 0; s < num_servers_; ++s) {
    Lane::Connection& connection = lane.connections[s];
    // What comes on it answers what was asked before.
    if (connection.received < connection.sent) connection.channel.reset();
    const size_t answered = call.FirstOfGroup(s, connection.received);
    // A group of which a part was refused is not done, and by the old numbers
    // it would be refused again. The request behind those that were sent may
    // have reached the server, too.
    const bool refused =
        !connection.refused.empty() && connection.refused.back() >= answered;
    if (refused && call.FirstOfGroup(s, connection.sent) == answered) {
      connection.first_sequence = connection.next_sequence + 1;
    } else {
      connection.first_sequence += answered;
    }
    call.BeginAgain(s, answered, connection.refused);
    connection.sent = 0;
    connection.received = 0;
    connection.refused.clear();
  }
  return AskAll(lane, call, deadline);
}

// Requests go to every server as far as max_inflight allows, then a reply is
// taken from each. Unanswered requests to a server are at most max_inflight
// parts, and pulls, whose replies are large, are small: so a server that waits
// to send finds the client reading sooner or later, whatever the channel holds.
Status Lanes::AskAll(Lane& lane, Call& call, Deadline deadline) {
  if (has_failed_) {
    base::MutexLock lock(mutex_);
    return failed_.WithContext(base::Concat("worker ", options_.worker));
  }
  Status failure;  // of a server; what was sent is still answered
  for (bool busy = true; busy;) {
    busy = false;
    for (uint32_t s = 0; s < num_servers_; ++s) {
      const Lane::Connection& at = lane.connections[s];
      while (failure.ok() && at.sent - at.received < options_.max_inflight &&
             call.HasRequest(s, at.sent)) {
        const Status sent = SendRequest(lane, call, s, deadline);
        if (!sent.ok()) {
          RETURN_IF_ERROR(Recover(lane, call, s, sent, deadline));
        }
      }
    }
    for (uint32_t s = 0; s < num_servers_; ++s) {
      const Lane::Connection& at = lane.connections[s];
      if (at.received == at.sent) continue;
      busy = true;
      Status outcome;
      const Status taken = TakeReply(lane, call, s, deadline, &outcome);
      if (!taken.ok()) {
        RETURN_IF_ERROR(Recover(lane, call, s, taken, deadline));
      } else if (!outcome.ok() && failure.ok()) {
        failure = Named(outcome, call.name(), s);
      }
    }
  }
  return failure;
}

}  // namespace fleet::ps
