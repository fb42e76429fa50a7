// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <random>
#include <system_error>
#include <unistd.h>

#include "fleet/base/exceptions.h"
#include "fleet/base/log.h"
#include "fleet/channel/in_process.h"
#include "fleet/ps/server_impl.h"

namespace fleet::ps {
namespace {

using channel::Channel;
using channel::ConstBytes;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string RandomName() {
  std::random_device random;
  return base::Concat("fleet-ps-", getpid(), "-", random(), random());
}

}  // namespace

PsServer::PsServer(const PsServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

PsServer::~PsServer() = default;

Status PsServer::AddSparse(TableId id,
                           std::unique_ptr<table::SparseTable> table) {
  ServerTable added;
  added.sparse = std::move(table);
  return impl_->tables_.Add(id, std::move(added));
}

Status PsServer::AddDense(TableId id,
                          std::unique_ptr<table::DenseTable> table) {
  ServerTable added;
  added.dense = std::move(table);
  return impl_->tables_.Add(id, std::move(added));
}

Status PsServer::Create(std::span<const TableSpec> specs) {
  return impl_->Create(specs);
}

Status PsServer::OpenLog() { return impl_->OpenLog(); }
Status PsServer::CheckpointIfDue() { return impl_->CheckpointIfDue(); }
void PsServer::StopWriting() { impl_->StopWriting(); }
Status PsServer::RemoveLog() { return impl_->RemoveLog(); }

Status PsServer::Listen(const channel::Address& address) {
  return impl_->Listen(address);
}

Status PsServer::ListenOn(int fd) { return impl_->ListenOn(fd); }

const channel::Address& PsServer::address() const { return impl_->address_; }

std::unique_ptr<Channel> PsServer::ConnectInProcess(const std::string& name) {
  return impl_->ConnectInProcess(name);
}

Result<uint64_t> PsServer::ExpireRows(Deadline::TimePoint now) {
  return impl_->ExpireRows(now);
}

void PsServer::WatchWorkers(Deadline::TimePoint now) {
  impl_->WatchWorkers(now);
}

Status PsServer::WaitUntilStopped(Deadline deadline) {
  return impl_->WaitUntilStopped(deadline);
}

Status PsServer::WaitUntilAlone(Deadline deadline) {
  return impl_->roster_.WaitUntilAlone(deadline);
}

std::string PsServer::NotSeenWorkers() const {
  return impl_->roster_.NotSeen();
}

void PsServer::Abort(const Status& why) { impl_->Abort(why); }

std::string PsServer::EncodeLedger(bool for_save) {
  return impl_->EncodeLedger(for_save);
}

Status PsServer::RestoreLedger(std::string_view bytes) {
  return impl_->RestoreLedger(bytes);
}

Status PsServer::RestoreGoodbyes(std::string_view bytes) {
  return impl_->RestoreGoodbyes(bytes);
}

std::string PsServer::lost_of_gone() const {
  return impl_->lanes_.lost_of_gone();
}

int32_t PsServer::rank() const { return impl_->options_.rank; }
uint32_t PsServer::num_servers() const { return impl_->options_.num_servers; }
PsServerCounters PsServer::counters() const { return impl_->counters(); }
PsServerHoldings PsServer::holdings() { return impl_->tables_.holdings(); }

table::SparseTable* PsServer::sparse(TableId id) {
  const Result<ServerTable*> table = impl_->tables_.Find(id);
  return table.ok() ? (*table)->sparse.get() : nullptr;
}

table::DenseTable* PsServer::dense(TableId id) {
  const Result<ServerTable*> table = impl_->tables_.Find(id);
  return table.ok() ? (*table)->dense.get() : nullptr;
}

PsServer::Impl::Impl(const PsServerOptions& options)
    : options_(options),
      epoch_(std::max<uint64_t>(options.epoch, 1)),
      lanes_(options.num_workers),
      roster_({.num_workers = options.num_workers,
               .epoch = epoch_,
               .grace = options.worker_grace,
               .return_grace =
                   std::max(options.worker_grace, RosterOptions().return_grace),
               .go_on_without_lost = options.go_on_without_lost_workers}),
      heartbeats_({base::Concat("server ", options.rank), "worker",
                   std::chrono::seconds(2), options.heartbeat_timeout}) {}

PsServer::Impl::~Impl() {
  const Status why = Unavailable("server ", options_.rank, " is ending");
  // Who waits at a barrier is told why before the connection ends.
  roster_.Abort(why);
  WaitUntilIdle(Deadline::After(std::chrono::seconds(1)));
  Abort(why);
  // Requests that wait for them would be waited for.
  StopWriting();
  acceptors_.clear();  // which waits for them
  std::list<Connection> connections;
  {
    base::MutexLock lock(mutex_);
    connections.splice(connections.end(), connections_);
  }
  connections.clear();
  // Its thread asks for what is destroyed before it.
  log_.reset();
}

channel::MeetOptions PsServer::Impl::HowToMeet() const {
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kServer, options_.rank};
  options.trust = options_.trust;
  options.carrier = options_.carrier;
  options.shared_memory.processes_on_host = options_.processes_on_host;
  return options;
}

Status PsServer::Impl::Listen(const channel::Address& address) {
  const channel::MeetOptions options = HowToMeet();
  RETURN_IF_ERROR(ListenLocally(options));
  return AcceptFrom(channel::Listener::Bind(address, options));
}

Status PsServer::Impl::ListenOn(int fd) {
  const channel::MeetOptions options = HowToMeet();
  RETURN_IF_ERROR(ListenLocally(options));
  return AcceptFrom(channel::Listener::Adopt(fd, options));
}

Status PsServer::Impl::ListenLocally(const channel::MeetOptions& options) {
  if (!options_.shared_memory) return OkStatus();
  local_name_ = RandomName();
  channel::Address local;
  local.local_name = local_name_;
  return AcceptFrom(channel::Listener::Bind(local, options));
}

Status PsServer::Impl::AcceptFrom(
    Result<std::unique_ptr<channel::Listener>> listener) {
  RETURN_IF_ERROR(listener.status());
  channel::Listener& bound = **listener;
  address_ = bound.address();
  listeners_.push_back(std::move(listener).value());
  acceptors_.emplace_back([this, &bound] { AcceptLoop(bound); });
  return OkStatus();
}

void PsServer::Impl::AcceptLoop(channel::Listener& listener) {
  while (true) {
    const Status accepted =
        base::CatchExceptions([&] { return AcceptOne(listener); });
    if (accepted.ok()) continue;
    base::MutexLock lock(mutex_);
    if (aborted_) return;
    // No descriptor or memory left for a peer: others may end and give some.
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << accepted;
    (void)aborting_.WaitUntil(mutex_,
                              Deadline::After(std::chrono::milliseconds(100)));
  }
}

Status PsServer::Impl::AcceptOne(channel::Listener& listener) {
  ASSIGN_OR_RETURN(channel::Connection came,
                   listener.Accept(Deadline::Infinite()));
  const char* network =
      options_.carrier == channel::Carrier::kUcx ? "ucx" : "tcp";
  Adopt(std::move(came.channel),
        listener.address().is_local() ? "shared memory" : network, came.peer);
  return OkStatus();
}

std::unique_ptr<Channel> PsServer::Impl::ConnectInProcess(
    const std::string& name) {
  auto [ours, theirs] = channel::MakeInProcessPair(
      {.first_name = name,
       .second_name = base::Concat("server ", options_.rank)});
  Adopt(std::move(theirs), "memory of the process", std::nullopt);
  return std::move(ours);
}

void PsServer::Impl::Adopt(std::unique_ptr<Channel> channel, const char* way,
                           const std::optional<channel::Identity>& peer) {
  std::list<Connection> ended;
  {
    base::MutexLock lock(mutex_);
    if (aborted_) return;
    for (auto it = connections_.begin(); it != connections_.end();) {
      auto next = std::next(it);
      if (it->ended) ended.splice(ended.end(), connections_, it);
      it = next;
    }
    Connection& connection = connections_.emplace_back();
    connection.channel = std::move(channel);
    connection.way = way;
    connection.peer = peer;
    try {
      connection.thread = std::jthread([this, &connection] {
        Serve(connection);
        connection.channel->Close();
        connection.ended = true;
      });
    } catch (const std::system_error& error) {
      // Others are served as before; this peer sees that its connection ended.
      FLEET_LOG(WARNING) << "server " << options_.rank << ": no thread for "
                         << connection.channel->peer() << ": " << error.what();
      connections_.pop_back();
    }
  }
  // The threads of `ended` are joined without the lock.
}

void PsServer::Impl::Abort(const Status& why) {
  // Without the lock: who ends a step holds the roster's and asks for this one.
  roster_.Abort(why);
  base::MutexLock lock(mutex_);
  aborted_ = true;
  aborting_.NotifyAll();
  for (auto& listener : listeners_) listener->Abort(why);
  for (Connection& connection : connections_) connection.channel->Abort(why);
}

Status PsServer::Impl::WaitUntilStopped(Deadline deadline) {
  return roster_.WaitUntilStopped(deadline).WithContext(
      base::Concat("server ", options_.rank));
}

PsServerCounters PsServer::Impl::counters() const {
  return {num_requests_, num_pulled_keys_, num_pushed_keys_, num_repeated_};
}

void PsServer::Impl::Serve(Connection& connection) {
  Session session;
  session.connection = &connection;
  session.channel = connection.channel.get();
  Status outcome;
  while (outcome.ok()) {
    outcome = base::CatchExceptions([&] { return ServeOne(session); });
  }
  EndConnectionsOf(connection);
  if (session.lane != nullptr) session.lane->ReleaseRoom();
  if (session.worker >= 0) roster_.Leave(session.worker, session.incarnation);
  if (outcome.code() == StatusCode::kInvalidArgument ||
      outcome.code() == StatusCode::kDataLoss ||
      outcome.code() == StatusCode::kInternal) {
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << outcome;
  }
}

void PsServer::Impl::EndConnectionsOf(const Connection& life) {
  base::MutexLock lock(mutex_);
  if (!life.is_life) return;
  const auto is_same = [&](const Connection& other) {
    return &other != &life && !other.ended && other.worker == life.worker &&
           other.incarnation == life.incarnation;
  };
  for (const Connection& other : connections_) {
    if (is_same(other) && other.is_life) return;
  }
  heartbeats_.Forget(life.worker);
  for (Connection& other : connections_) {
    if (!is_same(other)) continue;
    other.channel->Abort(Unavailable("worker ", life.worker, " is gone"));
  }
}

void PsServer::Impl::WatchWorkers(Deadline::TimePoint now) {
  for (const Heartbeats::News& news : heartbeats_.Look(now)) {
    Log(news);
    if (news.kind != Heartbeats::News::Kind::kDead) continue;
    base::MutexLock lock(mutex_);
    for (Connection& connection : connections_) {
      if (connection.worker != news.peer) continue;
      connection.channel->Abort(Unavailable(news.text));
    }
  }
}

Status PsServer::Impl::ServeOne(Session& session) {
  ASSIGN_OR_RETURN(const uint64_t byte_size,
                   session.channel->NextSize(Deadline::Infinite()));
  if (byte_size < sizeof(RequestHead) || byte_size > tables_.max_request()) {
    return DataLoss(session.channel->peer(), ": a request of ", byte_size,
                    " bytes");
  }
  session.request.resize(byte_size);
  RETURN_IF_ERROR(session.channel->Recv(session.request, Deadline::Infinite()));
  Request request;
  request.head = base::LoadAt<RequestHead>(session.request, 0);
  request.body = std::span(session.request).subspan(sizeof(RequestHead));
  if (request.head.op != Op::kBeat) {
    num_requests_.fetch_add(1, std::memory_order_relaxed);
  }
  ++num_busy_;
  const Status sent = base::CatchExceptions([&] {
    const Result<std::span<const std::byte>> payload =
        base::CatchExceptions([&] { return Handle(session, request); });
    if (log_ != nullptr && log_->has_failed()) {
      // What was done may not be there again: nobody hears of it.
      return Unavailable("the log fails");
    }
    return Reply(session, request.head.sequence, payload.status(),
                 payload.ok() ? *payload : std::span<const std::byte>());
  });
  if (--num_busy_ == 0 && ending_) {
    base::MutexLock lock(mutex_);
    idle_.NotifyAll();
  }
  return sent;
}

void PsServer::Impl::WaitUntilIdle(Deadline deadline) {
  ending_ = true;
  base::MutexLock lock(mutex_);
  while (num_busy_ > 0 && idle_.WaitUntil(mutex_, deadline)) {
  }
}

Status PsServer::Impl::Reply(Session& session, uint64_t sequence,
                             const Status& outcome,
                             std::span<const std::byte> payload) {
  ReplyHead head;
  head.sequence = sequence;
  head.code = static_cast<uint32_t>(outcome.code());
  if (!outcome.ok()) payload = BytesOf(outcome.message());
  // Errors are short; a very long one is cut.
  if (!outcome.ok())
    payload = payload.first(std::min(payload.size(), kMaxInline));
  head.count = payload.size();
  const bool apart = payload.size() > kMaxInline;
  if (apart) head.flags |= kReplyApart;
  if (roster_.cut_wanted()) head.flags |= kReplyCutWanted;
  const std::array<ConstBytes, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                           payload};
  if (!apart) {
    return session.channel->SendParts(parts, Deadline::Infinite());
  }
  RETURN_IF_ERROR(session.channel->Send(parts[0], Deadline::Infinite()));
  return session.channel->Send(payload, Deadline::Infinite());
}

ServerInfo PsServer::Impl::Describe() const {
  ServerInfo info;
  info.server = static_cast<uint32_t>(options_.rank);
  info.num_servers = options_.num_servers;
  info.num_workers = static_cast<uint32_t>(options_.num_workers);
  info.epoch = epoch_;
  info.view = roster_.view();
  info.local_name = local_name_;
  info.tables = tables_.Describe();
  return info;
}

}  // namespace fleet::ps
