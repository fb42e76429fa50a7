// SPDX-License-Identifier: Apache-2.0

// What a server does for each kind of request, but for those of rows and
// values (server_updates.cc) and of saves (server_saves.cc).

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "fleet/channel/message.h"
#include "fleet/ps/server_impl.h"

namespace fleet::ps {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Result<ServerTable*> PsServer::Impl::Find(Session& session, TableId id) {
  if (session.table == nullptr || session.table_id != id) {
    ASSIGN_OR_RETURN(session.table, tables_.Find(id));
    session.table_id = id;
  }
  return session.table;
}

PsServer::Impl::Answer PsServer::Impl::Handle(Session& session,
                                              const Request& request) {
  using Nothing = std::span<const std::byte>;
  const RequestHead& head = request.head;
  if (head.op == Op::kDescribe) {
    session.text = Encode(Describe());
    return BytesOf(session.text);
  }
  if (head.op == Op::kHello) return HandleHello(session, request);
  if (session.worker < 0) {
    return FailedPrecondition("a request before the hello");
  }
  RETURN_IF_ERROR(CheckFence(session));
  switch (head.op) {
    case Op::kPull:
      return HandlePull(session, request);
    case Op::kPush:
    case Op::kAccumulate:
    case Op::kAdd:
    case Op::kAssign:
      RETURN_IF_ERROR(HandleUpdate(session, request));
      // Also for one that was done before: it may not be on the disk yet.
      if (log_ != nullptr) RETURN_IF_ERROR(log_->Commit());
      return Nothing();
    case Op::kTakeChanges: {
      auto taken = HandleTakeChanges(session, request);
      if (log_ != nullptr && taken.ok()) RETURN_IF_ERROR(log_->Commit());
      return taken;
    }
    case Op::kFinishStep:
      return HandleFinishStep(session, request);
    case Op::kBarrier: {
      const auto note = [&](const Roster::Came& came) {
        return LogRounds(
            {std::string(base::TextOf(request.body)), came.after, false, {}});
      };
      ASSIGN_OR_RETURN(const Roster::Ended ended,
                       HandleBarrier(session, request, note));
      session.text = channel::MessageWriter().U64(ended.round).Take();
      return BytesOf(session.text);
    }
    case Op::kJoin: {
      const std::string name(base::TextOf(request.body));
      const auto note = [&](const Roster::Rounds& after) {
        base::MutexLock lock(idle_mutex_);
        return LogRounds({name, after, all_idle_, {}});
      };
      ASSIGN_OR_RETURN(const uint64_t from,
                       roster_.Join(name, session.worker, head.round, note));
      session.text = channel::MessageWriter().U64(from).Take();
      return BytesOf(session.text);
    }
    case Op::kGather:
      return HandleGather(session, request);
    case Op::kBeginSave:
      return HandleBeginSave(session, request);
    case Op::kCutSave:
      return HandleCutSave(session, request);
    case Op::kSave:
      return HandleSave(session, request);
    case Op::kCommitSave:
      RETURN_IF_ERROR(HandleCommitSave(request));
      return Nothing();
    case Op::kEndSave:
      RETURN_IF_ERROR(HandleEndSave(request));
      return Nothing();
    case Op::kBeginLoad:
      return HandleBeginLoad(session, request);
    case Op::kLoad:
      RETURN_IF_ERROR(HandleLoad(request));
      return Nothing();
    case Op::kEndLoad:
      RETURN_IF_ERROR(HandleEndLoad(request));
      return Nothing();
    case Op::kShrink: {
      auto erased = HandleShrink(session, request);
      if (log_ != nullptr && erased.ok()) RETURN_IF_ERROR(log_->Commit());
      return erased;
    }
    case Op::kStats:
      return HandleStats(session, request);
    case Op::kSetRate:
      RETURN_IF_ERROR(HandleSetRate(request));
      if (log_ != nullptr) RETURN_IF_ERROR(log_->Commit());
      return Nothing();
    case Op::kBeat:
      return HandleBeat(session, request);
    case Op::kCreate: {
      ASSIGN_OR_RETURN(const std::vector<TableSpec> specs,
                       DecodeTableSpecs(base::TextOf(request.body)));
      RETURN_IF_ERROR(Create(specs));
      return Nothing();
    }
    case Op::kBeginTurn:
    case Op::kEndTurn:
    case Op::kBeginCut:
    case Op::kEndCut:
      RETURN_IF_ERROR(HandleTurn(session, head));
      return Nothing();
    case Op::kBye:
      HandleGoodbye(session);
      return Nothing();
    default:
      return InvalidArgument("an unknown request, ",
                             static_cast<uint32_t>(head.op));
  }
}

Status PsServer::Impl::CheckFence(const Session& session) const {
  if (!session.lane->fenced.load(std::memory_order_relaxed)) return OkStatus();
  return roster_.CheckNewest(session.worker, session.incarnation);
}

Status PsServer::Impl::FenceOlder(int worker, uint64_t incarnation) {
  if (!lanes_.FenceOlder(worker, incarnation)) return OkStatus();
  return DropSums(worker);
}

PsServer::Impl::Answer PsServer::Impl::HandleHello(Session& session,
                                                   const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const auto worker = static_cast<int>(in.U32());
  const uint32_t lane_number = in.U32();
  uint64_t incarnation = in.U64();
  const uint64_t turn = in.U64();
  RETURN_IF_ERROR(in.Finish());
  if (session.worker >= 0) return FailedPrecondition("a second hello");
  Connection& connection = *session.connection;
  const std::optional<channel::Identity>& peer = connection.peer;
  if (peer.has_value() &&
      (peer->kind != channel::ProcessKind::kWorker || peer->rank != worker)) {
    return InvalidArgument("a hello of worker ", worker, " on a connection of ",
                           peer->Name());
  }
  if (incarnation == 0) {
    if (options_.rank != 0) {
      return FailedPrecondition("worker ", worker,
                                " has no incarnation yet: server 0 gives them");
    }
    incarnation = roster_.NewIncarnation();
  }
  // A server that is started again has to know whom it waits for, and whom it
  // refuses.
  const bool is_new = lanes_.IsNew(worker, incarnation);
  base::LogFile::Room room;
  if (is_new && log_ != nullptr) {
    ASSIGN_OR_RETURN(room, log_->Reserve(0, 0));
  }
  RETURN_IF_ERROR(roster_.Enter(worker, incarnation, turn));
  session.worker = worker;
  session.incarnation = incarnation;
  session.lane_number = lane_number;
  const Status fenced = FenceOlder(worker, incarnation);
  session.lane = lanes_.Enter(worker, lane_number, incarnation);
  if (is_new && log_ != nullptr && fenced.ok()) {
    RequestHead head;
    head.op = Op::kEnter;
    RETURN_IF_ERROR(AppendLog(session, head, std::move(room), {}));
    RETURN_IF_ERROR(log_->Commit());
  }
  {
    base::MutexLock lock(mutex_);
    connection.worker = worker;
    connection.incarnation = incarnation;
    connection.is_life = lane_number == kLifeLane;
  }
  {
    // Waits for a push of the connection before, if one is still at work.
    base::MutexLock lock(session.lane->mutex);
    RETURN_IF_ERROR(CheckFence(session));
  }
  if (lane_number == kLifeLane && options_.on_arrival) {
    options_.on_arrival(worker, connection.way);
  }
  HelloAnswer answer{epoch_, incarnation, roster_.IsBack(worker),
                     lanes_.RecordsOf(worker, incarnation),
                     lanes_.lost_of_gone()};
  session.text = Encode(answer);
  return BytesOf(session.text);
}

Result<Roster::Ended> PsServer::Impl::HandleBarrier(
    const Session& session, const Request& request,
    const Roster::Complete& complete) {
  const RequestHead& head = request.head;
  const std::string name(base::TextOf(request.body));
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(head.timeout_ms));
  return roster_.Barrier(name, head.round, session.worker, session.incarnation,
                         deadline, complete);
}

Status PsServer::Impl::HandleTurn(const Session& session,
                                  const RequestHead& head) {
  const Roster::Caller caller{session.worker, session.incarnation, head.round};
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(head.timeout_ms));
  switch (head.op) {
    case Op::kBeginTurn:
      return roster_.BeginTurn(caller, deadline);
    case Op::kBeginCut:
      return roster_.BeginCut(caller, deadline);
    case Op::kEndTurn:
      roster_.EndTurn(caller);
      return OkStatus();
    default:
      roster_.EndCut(caller);
      return OkStatus();
  }
}

void PsServer::Impl::HandleGoodbye(const Session& session) {
  Goodbye goodbye = lanes_.CountsOf(session.worker, session.incarnation);
  for (auto& [id, updates] : goodbye.updates) {
    const Result<ServerTable*> table = tables_.Find(id);
    if (table.ok()) updates.table = (*table)->name();
  }
  const std::string all = lanes_.NoteGoodbye(std::move(goodbye));
  if (options_.on_goodbye) options_.on_goodbye(all);
  heartbeats_.Forget(session.worker);
  roster_.Stop(session.worker, session.incarnation);
}

PsServer::Impl::Answer PsServer::Impl::HandleGather(Session& session,
                                                    const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const std::string name = in.Text();
  std::string bytes = in.Text();
  RETURN_IF_ERROR(in.Finish());
  uint64_t ended = 0;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      gathering_.Gather(
          name, request.head.round, session.worker, session.incarnation,
          std::move(bytes),
          Deadline::After(std::chrono::milliseconds(request.head.timeout_ms)),
          &ended,
          [&](const Roster::Came& came, const std::vector<std::string>& given) {
            return LogRounds(
                {Gathering::BarrierOf(name), came.after, false, given});
          }));
  session.text = channel::MessageWriter().U64(ended).Texts(all).Take();
  return BytesOf(session.text);
}

Status PsServer::Impl::HandleSetRate(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const std::string name = in.Text();
  const auto rate = std::bit_cast<double>(in.U64());
  RETURN_IF_ERROR(in.Finish());
  if (!std::isfinite(rate)) {
    return InvalidArgument("a learning rate of ", rate);
  }
  base::MutexLock lock(whole_tables_);
  if (log_ == nullptr) return TellRate(name, rate, nullptr);
  ASSIGN_OR_RETURN(base::LogFile::Room room,
                   ReserveForAll(request.body.size()));
  Logged logged;
  RETURN_IF_ERROR(TellRate(name, rate, &logged));
  logged.body.push_back(request.body);
  RequestHead head = request.head;
  head.sequence = 0;
  return AppendLog({}, head, std::move(room), logged);
}

Status PsServer::Impl::TellRate(const std::string& name, double rate,
                                Logged* logged) {
  tables_.NoteRate(name, rate);
  for (const auto& [id, table] : tables_.ById()) {
    table::Turns* const turns = logged == nullptr ? nullptr : logged->Begin();
    if (table->sparse != nullptr) {
      table->sparse->SetRate(name, rate, turns);
    } else {
      table->dense->SetRate(name, rate, turns);
    }
    if (logged == nullptr) continue;
    logged->Take(id, table->num_shards(), 0);
  }
  return OkStatus();
}

PsServer::Impl::Answer PsServer::Impl::HandleBeat(Session& session,
                                                  const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const std::string process = in.Text();
  const uint32_t num_servers = in.U32();
  if (num_servers != options_.num_servers) {
    return InvalidArgument("a sign of life with ", num_servers, " servers");
  }
  for (uint32_t server = 0; server < num_servers; ++server) {
    roster_.KnowServer(server, in.U64());
  }
  RETURN_IF_ERROR(in.Finish());
  heartbeats_.Heard(session.worker, process, std::chrono::steady_clock::now());
  session.text = ThisProcess();
  return BytesOf(session.text);
}

PsServer::Impl::Answer PsServer::Impl::HandleStats(Session& session,
                                                   const Request& request) {
  ASSIGN_OR_RETURN(ServerTable* const table, tables_.Find(request.head.table));
  table::SparseTableStats stats;
  if (table->sparse != nullptr) {
    stats = table->sparse->stats();
  } else {
    stats.byte_size = table->dense->byte_size();
    stats.num_nonfinite = table->dense->num_nonfinite();
    stats.step = table->dense->step();
  }
  session.text = channel::MessageWriter()
                     .U64(stats.num_rows)
                     .U64(stats.num_candidates)
                     .U64(stats.num_rows_in_memory)
                     .U64(stats.byte_size)
                     .U64(stats.num_nonfinite)
                     .U64(stats.step)
                     .U64(stats.num_expired)
                     .Take();
  return BytesOf(session.text);
}

std::string PsServer::Impl::EncodeLedger(bool for_save) {
  return Encode(lanes_.MakeLedger(for_save));
}

Status PsServer::Impl::RestoreLedger(std::string_view bytes) {
  ASSIGN_OR_RETURN(const Ledger ledger, DecodeLedger(bytes));
  for (const WorkerRecord& worker : ledger.workers) {
    roster_.Know(static_cast<int>(worker.worker), worker.incarnation);
    lanes_.Restore(worker);
  }
  return OkStatus();
}

Status PsServer::Impl::RestoreGoodbyes(std::string_view bytes) {
  ASSIGN_OR_RETURN(std::vector<Goodbye> goodbyes, DecodeGoodbyes(bytes));
  for (const Goodbye& goodbye : goodbyes) {
    roster_.KnowStopped(static_cast<int>(goodbye.worker), goodbye.incarnation);
  }
  lanes_.RestoreGoodbyes(std::move(goodbyes));
  return OkStatus();
}

}  // namespace fleet::ps
