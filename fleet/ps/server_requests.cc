// SPDX-License-Identifier: Apache-2.0

// What a server does for each kind of request.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "fleet/channel/message.h"
#include "fleet/ps/server.h"

namespace fleet::ps {
namespace {

// InvalidArgument when something was missing in the body of a request, or is
// left over. Its buffer is aligned, and parts come in the order of their
// alignment, so that they can be used where they lie.
Status CheckFinished(const base::ByteReader& body) {
  if (body.finished()) return OkStatus();
  return InvalidArgument("a request that does not have the size it says");
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Result<PsServer::Table*> PsServer::Find(TableId id) {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(id);
  if (it != tables_.end()) return &it->second;
  return NotFound("no table with id ", static_cast<uint32_t>(id));
}

Result<PsServer::Table*> PsServer::Find(Session& session, TableId id) {
  if (session.table == nullptr || session.table_id != id) {
    ASSIGN_OR_RETURN(session.table, Find(id));
    session.table_id = id;
  }
  return session.table;
}

Result<table::DenseTable*> PsServer::FindDense(TableId id) {
  ASSIGN_OR_RETURN(Table* const table, Find(id));
  if (table->dense != nullptr) return table->dense.get();
  return InvalidArgument("table ", table->sparse->name(), " is not dense");
}

Result<std::span<const std::byte>> PsServer::Handle(Session& session,
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
      return Nothing();
    case Op::kTakeChanges:
      return HandleTakeChanges(session, request);
    case Op::kFinishStep:
      return HandleFinishStep(session, request);
    case Op::kBarrier:
      RETURN_IF_ERROR(HandleBarrier(session, request, {}));
      return Nothing();
    case Op::kGather:
      return HandleGather(session, request);
    case Op::kBeginSave:
      return HandleBeginSave(session, request);
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
    case Op::kShrink:
      return HandleShrink(session, request);
    case Op::kStats:
      return HandleStats(session, request);
    case Op::kSetRate:
      RETURN_IF_ERROR(HandleSetRate(request));
      return Nothing();
    case Op::kCreate: {
      ASSIGN_OR_RETURN(const TableSpec spec,
                       DecodeTableSpec(base::TextOf(request.body)));
      RETURN_IF_ERROR(Create(spec));
      return Nothing();
    }
    case Op::kBeginTurn:
    case Op::kEndTurn:
    case Op::kBeginCut:
    case Op::kEndCut:
      RETURN_IF_ERROR(HandleTurn(session, head));
      return Nothing();
    case Op::kBye:
      roster_.Stop(session.worker, session.incarnation);
      return Nothing();
    default:
      return InvalidArgument("an unknown request, ",
                             static_cast<uint32_t>(head.op));
  }
}

Status PsServer::CheckFence(const Session& session) const {
  if (!session.lane->fenced.load(std::memory_order_relaxed)) return OkStatus();
  return roster_.CheckNewest(session.worker, session.incarnation);
}

void PsServer::FenceOlder(int worker, uint64_t incarnation) {
  std::vector<std::shared_ptr<Lane>> older;
  {
    base::MutexLock lock(mutex_);
    uint64_t& newest = newest_[worker];
    newest = std::max(newest, incarnation);
    auto it = lanes_.lower_bound({worker, 0});
    while (it != lanes_.end() && it->first.first == worker) {
      if (it->second->incarnation < newest) {
        older.push_back(std::move(it->second));
        it = lanes_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const std::shared_ptr<Lane>& lane : older) {
    // Waits for a push that is being applied.
    base::MutexLock lock(lane->mutex);
    lane->fenced = true;
    lane->gathered = {};
  }
}

Result<std::span<const std::byte>> PsServer::HandleHello(
    Session& session, const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const auto worker = static_cast<int>(in.U32());
  const uint32_t lane_number = in.U32();
  uint64_t incarnation = in.U64();
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
  RETURN_IF_ERROR(roster_.Enter(worker, incarnation));
  session.worker = worker;
  session.incarnation = incarnation;
  FenceOlder(worker, incarnation);
  session.lane = std::make_shared<Lane>(incarnation);
  {
    base::MutexLock lock(mutex_);
    // A newer one may have come since.
    if (newest_[worker] == incarnation) {
      std::shared_ptr<Lane>& lane = lanes_[{worker, lane_number}];
      if (lane == nullptr) lane = session.lane;
      session.lane = lane;
    } else {
      session.lane->fenced = true;
    }
    connection.worker = worker;
    connection.incarnation = incarnation;
    connection.carries_nothing = lane_number == kLifeLane;
  }
  {
    // Waits for a push of the connection before, if one is still at work.
    base::MutexLock lock(session.lane->mutex);
    RETURN_IF_ERROR(CheckFence(session));
  }
  if (lane_number == kLifeLane && options_.on_arrival) {
    options_.on_arrival(worker, connection.way);
  }
  HelloAnswer answer{epoch_, incarnation, {}};
  for (const auto& [key, lane] : AllLanes()) {
    if (key.first != worker || lane->incarnation != incarnation) continue;
    base::MutexLock lock(lane->mutex);
    if (lane->last_sequence == 0) continue;
    answer.lanes.push_back(RecordOf(key.second, *lane, false));
  }
  session.text = Encode(answer);
  return BytesOf(session.text);
}

Result<std::span<const std::byte>> PsServer::HandlePull(
    Session& session, const Request& request) {
  const RequestHead& head = request.head;
  if ((head.flags & kFlagDense) != 0) return PullDense(session, request);
  ASSIGN_OR_RETURN(Table* const table, Find(session, head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  base::ByteReader body(request.body);
  const auto keys = body.TakeSpan<table::Key>(head.count);
  table::PullOptions options;
  options.training = (head.flags & kFlagNotTraining) == 0;
  if ((head.flags & kFlagCounts) != 0) {
    options.counts = body.TakeSpan<uint32_t>(head.count);
  }
  RETURN_IF_ERROR(CheckFinished(body));
  session.rows.resize(keys.size() * table->sparse->dim());
  RETURN_IF_ERROR(table->sparse->Pull(keys, session.rows, options));
  num_pulled_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  return std::as_bytes(std::span(session.rows));
}

Result<std::span<const std::byte>> PsServer::PullDense(Session& session,
                                                       const Request& request) {
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(request.head.count);
  RETURN_IF_ERROR(CheckFinished(body));
  uint64_t num_values = 0;
  for (const DenseSection& section : sections) {
    // Where the sum wraps, the section is too large.
    num_values += section.count;
    if (section.count > kChunkValues || num_values > kChunkValues) {
      return InvalidArgument("a pull of more than ", kChunkValues,
                             " values at once");
    }
  }
  session.rows.resize(num_values);
  std::span<float> rest = session.rows;
  for (const DenseSection& section : sections) {
    ASSIGN_OR_RETURN(table::DenseTable* const table, FindDense(section.table));
    RETURN_IF_ERROR(table->PullFrom(section.offset, rest.first(section.count)));
    rest = rest.subspan(section.count);
  }
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::HandleUpdate(Session& session, const Request& request) {
  if (options_.push_delay.count() > 0) {
    std::this_thread::sleep_for(options_.push_delay);
  }
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  Status outcome;
  if (WasDone(lane, request.head.sequence, &outcome)) {
    num_repeated_.fetch_add(1, std::memory_order_relaxed);
    return outcome;
  }
  outcome = (request.head.flags & kFlagDense) != 0
                ? UpdateDense(request, lane)
                : UpdateSparse(session, request, lane);
  NoteDone(lane, request.head.sequence, outcome);
  return outcome;
}

bool PsServer::WasDone(const Lane& lane, uint64_t sequence, Status* outcome) {
  if (sequence > lane.last_sequence) return false;
  const auto& [number, status] = lane.outcomes[sequence % Lane::kNumOutcomes];
  // A worker has fewer on their way than are kept.
  if (number == sequence) *outcome = status;
  return true;
}

void PsServer::NoteDone(Lane& lane, uint64_t sequence, const Status& outcome) {
  lane.last_sequence = sequence;
  lane.outcomes[sequence % Lane::kNumOutcomes] = {sequence, outcome};
  if (lane.parts_of == kNoTable) lane.whole_sequence = sequence;
}

void PsServer::CountUpdate(Op op, TableId table, Lane& lane) {
  ++lane.applied[table];
  if (op != Op::kAccumulate) return;
  if (lane.waiting_step != num_steps_) {
    lane.waiting_step = num_steps_;
    lane.waiting.clear();
    lane.before_waiting = lane.whole_sequence;
  }
  ++lane.waiting[table];
}

Status PsServer::UpdateSparse(Session& session, const Request& request,
                              Lane& lane) {
  const RequestHead& head = request.head;
  ASSIGN_OR_RETURN(Table* const found, Find(session, head.table));
  if (found->sparse == nullptr) return InvalidArgument("no sparse table");
  table::SparseTable& table = *found->sparse;
  base::ByteReader body(request.body);
  const auto keys = body.TakeSpan<table::Key>(head.count);
  const auto values = body.TakeSpan<float>(head.count * table.dim());
  table::PushOptions options;
  if ((head.flags & kFlagShows) != 0) {
    options.shows = body.TakeSpan<float>(head.count);
    options.clicks = body.TakeSpan<float>(head.count);
  }
  RETURN_IF_ERROR(CheckFinished(body));
  num_pushed_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  switch (head.op) {
    case Op::kPush:
      RETURN_IF_ERROR(table.Push(keys, values, options));
      table.EndStep(head.end_steps);
      break;
    case Op::kAccumulate:
      RETURN_IF_ERROR(table.Accumulate(keys, values, options));
      break;
    case Op::kAssign:
      return InvalidArgument("table ", table.name(),
                             ": rows are not assigned by workers");
    default:
      RETURN_IF_ERROR(table.options().num_geo_workers == 0
                          ? table.Add(keys, values)
                          : table.AddFrom(session.worker, keys, values));
  }
  CountUpdate(head.op, head.table, lane);
  return OkStatus();
}

Status PsServer::UpdateDense(const Request& request, Lane& lane) {
  const RequestHead& head = request.head;
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(head.count);
  for (const DenseSection& section : sections) {
    ASSIGN_OR_RETURN(table::DenseTable* const table, FindDense(section.table));
    const auto values = body.TakeSpan<float>(section.count);
    if (values.size() != section.count) return CheckFinished(body);
    RETURN_IF_ERROR(UpdateSection(head.op, section, values, lane, *table));
    if ((section.flags & kFlagLast) == 0) continue;
    table->EndStep(head.end_steps);
    CountUpdate(head.op, section.table, lane);
  }
  return CheckFinished(body);
}

Status PsServer::UpdateSection(Op op, const DenseSection& section,
                               std::span<const float> values, Lane& lane,
                               table::DenseTable& table) {
  if (section.offset > table.part().size() ||
      values.size() > table.part().size() - section.offset) {
    return InvalidArgument("table ", table.name(), ": values [", section.offset,
                           ", ", section.offset + values.size(), ") of ",
                           table.part().size());
  }
  std::span<const float> whole = values;
  const TableId gathering = std::exchange(lane.parts_of, kNoTable);
  if (values.size() != table.part().size()) {
    // A part without those before it would be a gradient with zeros.
    if (section.offset != 0 &&
        (gathering != section.table || lane.num_gathered != section.offset)) {
      return FailedPrecondition("table ", table.name(), ": values from ",
                                section.offset,
                                " on, and those before it are "
                                "not here");
    }
    lane.gathered.resize(table.part().size());
    std::copy(values.begin(), values.end(),
              lane.gathered.begin() + static_cast<ptrdiff_t>(section.offset));
    whole = lane.gathered;
  }
  if ((section.flags & kFlagLast) == 0) {
    lane.parts_of = section.table;
    lane.num_gathered = section.offset + section.count;
    return OkStatus();
  }
  switch (op) {
    case Op::kPush:
      return table.Push(whole);
    case Op::kAccumulate:
      return table.Accumulate(whole);
    case Op::kAssign:
      if ((section.flags & kFlagIfNew) != 0 && table.initialized()) {
        return OkStatus();
      }
      return table.Assign(whole);
    default:
      return table.Add(whole);
  }
}

Result<std::span<const std::byte>> PsServer::HandleTakeChanges(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  // A reply that was lost must not lose the keys, so it is numbered as pushes
  // are, and kept.
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  if (request.head.sequence > lane.last_sequence) {
    ASSIGN_OR_RETURN(
        const std::vector<table::Key> keys,
        table->sparse->TakeChanges(session.worker, request.head.count));
    lane.gathered.resize(keys.size() * 2);
    if (!keys.empty()) {
      std::memcpy(lane.gathered.data(), keys.data(), keys.size() * 8);
    }
    NoteDone(lane, request.head.sequence, OkStatus());
  }
  session.rows = lane.gathered;
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::FinishStep(int num_workers) {
  const double scale = 1.0 / num_workers;
  Status first;
  ++num_steps_;
  for (Table* table : AllTables()) {
    Status applied = table->sparse != nullptr
                         ? table->sparse->ApplyAccumulated(scale)
                         : table->dense->ApplyAccumulated(scale);
    if (first.ok()) first = std::move(applied);
    if (table->sparse != nullptr) {
      table->sparse->EndStep();
    } else {
      table->dense->EndStep();
    }
  }
  return first;
}

Result<std::span<const std::byte>> PsServer::HandleFinishStep(
    Session& session, const Request& request) {
  const bool idle = (request.head.flags & kFlagIdle) != 0;
  if (idle) {
    base::MutexLock lock(idle_mutex_);
    idle_workers_.insert(session.worker);
  }
  // The mean is over those that have gradients.
  auto complete = [this](int num_workers) {
    int num_active = num_workers;
    {
      base::MutexLock lock(idle_mutex_);
      num_active -= static_cast<int>(idle_workers_.size());
      idle_workers_.clear();
      all_idle_ = num_active <= 0;
    }
    return num_active > 0 ? FinishStep(num_active) : OkStatus();
  };
  const Status status = HandleBarrier(session, request, complete);
  base::MutexLock lock(idle_mutex_);
  // Also after a step that was over before: a call may be repeated.
  idle_workers_.erase(session.worker);
  RETURN_IF_ERROR(status);
  if (!idle) return std::span<const std::byte>();
  // The next step cannot end without this worker: it is still that of this one.
  session.text.assign(1, all_idle_ ? '1' : '0');
  return BytesOf(session.text);
}

Status PsServer::HandleBarrier(
    const Session& session, const Request& request,
    const std::function<Status(int num_workers)>& complete) {
  const RequestHead& head = request.head;
  const std::string name(base::TextOf(request.body));
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(head.timeout_ms));
  return roster_.Barrier(name, head.round, session.worker, session.incarnation,
                         deadline, complete);
}

Status PsServer::HandleTurn(const Session& session, const RequestHead& head) {
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

Result<std::span<const std::byte>> PsServer::HandleGather(
    Session& session, const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const std::string name = in.Text();
  std::string bytes = in.Text();
  RETURN_IF_ERROR(in.Finish());
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      gathering_.Gather(
          name, request.head.round, session.worker, session.incarnation,
          std::move(bytes),
          Deadline::After(std::chrono::milliseconds(request.head.timeout_ms))));
  session.text = channel::MessageWriter().Texts(all).Take();
  return BytesOf(session.text);
}

Result<std::span<const std::byte>> PsServer::HandleShrink(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  // Rows are a day older after each call: one whose answer was lost must not
  // count again.
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  if (request.head.sequence > lane.last_sequence) {
    const Result<uint64_t> erased =
        table->sparse->Shrink(static_cast<uint32_t>(request.head.count));
    NoteDone(lane, request.head.sequence, erased.status());
    lane.num_erased = erased.ok() ? *erased : 0;
  } else {
    num_repeated_.fetch_add(1, std::memory_order_relaxed);
  }
  Status outcome;
  (void)WasDone(lane, request.head.sequence, &outcome);
  RETURN_IF_ERROR(outcome);
  session.text = channel::MessageWriter().U64(lane.num_erased).Take();
  return BytesOf(session.text);
}

Status PsServer::HandleSetRate(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const std::string name = in.Text();
  const auto rate = std::bit_cast<double>(in.U64());
  RETURN_IF_ERROR(in.Finish());
  if (!std::isfinite(rate)) {
    return InvalidArgument("a learning rate of ", rate);
  }
  for (Table* table : AllTables()) {
    if (table->sparse != nullptr) {
      table->sparse->SetRate(name, rate);
    } else {
      table->dense->SetRate(name, rate);
    }
  }
  return OkStatus();
}

Result<std::span<const std::byte>> PsServer::HandleStats(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
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

ServerInfo PsServer::Describe() const {
  ServerInfo info;
  info.server = static_cast<uint32_t>(options_.rank);
  info.num_servers = options_.num_servers;
  info.num_workers = static_cast<uint32_t>(options_.num_workers);
  info.epoch = epoch_;
  info.view = roster_.view();
  info.local_name = local_name_;
  base::MutexLock lock(mutex_);
  for (const auto& [id, table] : tables_) {
    TableInfo described;
    described.id = id;
    if (table.sparse != nullptr) {
      described.name = table.sparse->name();
      described.dim = table.sparse->dim();
    } else {
      described.name = table.dense->name();
      described.dense = true;
      described.size = table.dense->size();
      described.begin = table.dense->part().begin;
      described.end = table.dense->part().end;
      described.initialized = table.dense->initialized();
    }
    info.tables.push_back(std::move(described));
  }
  return info;
}

}  // namespace fleet::ps
