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

// The most keys that one request may take.
constexpr uint64_t kMaxTaken = uint64_t{1} << 24;

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
  if (!older.empty()) DropSums(worker);
}

void PsServer::DropSums(int worker) {
  base::MutexLock lock(whole_tables_);
  if (log_ == nullptr) return DropSums(worker, nullptr);
  // They are left out whether or not the log can tell of it: a server that
  // begins again finds a newer incarnation, and drops them too.
  Result<base::LogFile::Room> room = ReserveForAll(0);
  Logged logged;
  DropSums(worker, &logged);
  RequestHead head;
  head.op = Op::kDrop;
  head.count = static_cast<uint64_t>(worker);
  if (room.ok()) (void)AppendLog({}, head, std::move(room).value(), logged);
}

void PsServer::DropSums(int worker, Logged* logged) {
  ++num_steps_[static_cast<size_t>(worker)];
  for (const auto& [id, table] : TablesById()) {
    table::Turns* const turns = logged == nullptr ? nullptr : logged->Begin();
    if (table->sparse != nullptr) {
      table->sparse->DropAccumulated(worker, turns);
    } else {
      table->dense->DropAccumulated(worker, turns);
    }
    if (logged == nullptr) continue;
    logged->Take(id, table->sparse != nullptr ? table->sparse->num_shards() : 0,
                 0);
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
  session.lane_number = lane_number;
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
  HelloAnswer answer{epoch_, incarnation, roster_.IsBack(worker), {}, {}};
  for (const auto& [key, lane] : AllLanes()) {
    if (key.first != worker || lane->incarnation != incarnation) continue;
    base::MutexLock lock(lane->mutex);
    if (lane->last_sequence == 0) continue;
    answer.lanes.push_back(RecordOf(worker, key.second, *lane, false));
  }
  answer.lost_of_gone = lost_of_gone();
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
  if (options.training && table->sparse->PullsCount()) {
    RETURN_IF_ERROR(
        PullCounted(session, request, keys, options, *table->sparse));
  } else {
    RETURN_IF_ERROR(table->sparse->Pull(keys, session.rows, options));
  }
  num_pulled_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::PullCounted(Session& session, const Request& request,
                             std::span<const table::Key> keys,
                             table::PullOptions options,
                             table::SparseTable& table) {
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  const uint64_t sequence = request.head.sequence;
  if (sequence != 0 && sequence <= lane.last_pull) {
    // Its answer was lost: it has its rows, and does not count again.
    options.training = false;
    return table.Pull(keys, session.rows, options);
  }
  if (log_ == nullptr) {
    RETURN_IF_ERROR(table.Pull(keys, session.rows, options));
    lane.last_pull = sequence;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(base::LogFile::Room room, ReserveLog(request, lane));
  Logged& logged = session.logged;
  logged.Clear();
  options.turns = logged.Begin();
  RETURN_IF_ERROR(table.Pull(keys, session.rows, options));
  logged.Take(request.head.table, table.num_shards(), 0);
  logged.body.push_back(request.body);
  RequestHead unnumbered = request.head;
  unnumbered.sequence = 0;
  RETURN_IF_ERROR(AppendLog(session, unnumbered, std::move(room), logged));
  lane.last_pull = sequence;
  return OkStatus();
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
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  Status outcome;
  if (WasDone(lane, request.head.sequence, &outcome)) {
    num_repeated_.fetch_add(1, std::memory_order_relaxed);
    return outcome;
  }
  base::LogFile::Room room;
  Logged* logged = nullptr;
  if (log_ != nullptr) {
    if ((request.head.flags & kFlagContinues) == 0) {
      lane.held = {};
      lane.no_room = OkStatus();
    }
    // Where the disk is full nothing is done, of the whole call.
    Result<base::LogFile::Room> reserved =
        lane.no_room.ok() ? ReserveLog(request, lane) : lane.no_room;
    if (!reserved.ok()) {
      lane.no_room = reserved.status();
      // What is behind it on this lane may have room: it must not pass for
      // done when it comes again.
      NoteDone(lane, request.head.sequence, reserved.status());
      return reserved.status();
    }
    room = std::move(reserved).value();
    logged = &session.logged;
    logged->Clear();
  }
  const bool sums = request.head.op == Op::kAccumulate && log_ != nullptr;
  const uint64_t segment = sums ? room.segment() : 0;
  if (sums) NoteSums(segment);
  lane.taken.clear();
  const bool dense = (request.head.flags & kFlagDense) != 0;
  outcome = dense ? UpdateDense(session.worker, request, lane, logged)
                  : UpdateSparse(session, request, lane, logged);
  if (outcome.ok() && logged != nullptr && !logged->body.empty()) {
    RequestHead head = request.head;
    if (dense) head.count = logged->sections.size();
    RETURN_IF_ERROR(AppendLog(session, head, std::move(room), *logged));
  }
  // A step may have ended since it was noted, before these sums came.
  if (sums) NoteSums(segment);
  if (!outcome.ok() || request.head.num_following == 0) lane.held = {};
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

void PsServer::CountUpdate(int worker, Op op, TableId table, Lane& lane) {
  ++lane.applied[table];
  if (op != Op::kAccumulate) return;
  const uint64_t step = num_steps_[static_cast<size_t>(worker)];
  if (lane.waiting.empty() || lane.waiting_step != step) {
    lane.waiting_step = step;
    lane.waiting.clear();
    lane.before_waiting = lane.whole_sequence;
  }
  ++lane.waiting[table];
}

Status PsServer::UpdateSparse(Session& session, const Request& request,
                              Lane& lane, Logged* logged) {
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
  options.turns = logged == nullptr ? nullptr : logged->Begin();
  switch (head.op) {
    case Op::kPush:
      RETURN_IF_ERROR(table.Push(keys, values, options));
      if (logged == nullptr) {
        table.EndStep(head.end_steps);
        break;
      }
      logged->Take(head.table, table.num_shards(), 0);
      table.EndStep(head.end_steps, logged->Begin());
      logged->Take(head.table, table.num_shards(), kStepEnds);
      logged->of_table.clear();
      break;
    case Op::kAccumulate:
      RETURN_IF_ERROR(table.Accumulate(session.worker, keys, values, options));
      break;
    case Op::kAssign:
      return InvalidArgument("table ", table.name(),
                             ": rows are not assigned by workers");
    default:
      RETURN_IF_ERROR(
          table.options().num_geo_workers == 0
              ? table.Add(keys, values, options.turns)
              : table.AddFrom(session.worker, keys, values, options.turns));
  }
  if (logged != nullptr) {
    logged->Take(head.table, table.num_shards(), 0);
    logged->body.push_back(request.body);
  }
  CountUpdate(session.worker, head.op, head.table, lane);
  return OkStatus();
}

Status PsServer::UpdateDense(int worker, const Request& request, Lane& lane,
                             Logged* logged) {
  const RequestHead& head = request.head;
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(head.count);
  for (const DenseSection& section : sections) {
    ASSIGN_OR_RETURN(table::DenseTable* const table, FindDense(section.table));
    const auto values = body.TakeSpan<float>(section.count);
    if (values.size() != section.count) return CheckFinished(body);
    RETURN_IF_ERROR(
        UpdateSection(worker, head.op, section, values, lane, *table, logged));
    if ((section.flags & kFlagLast) == 0) continue;
    table->EndStep(head.end_steps,
                   logged == nullptr ? nullptr : logged->Begin());
    if (logged != nullptr) logged->Take(section.table, 0, kStepEnds);
    CountUpdate(worker, head.op, section.table, lane);
  }
  if (logged != nullptr && !logged->sections.empty()) {
    logged->body.insert(logged->body.begin(),
                        std::as_bytes(std::span(logged->sections)));
  }
  return CheckFinished(body);
}

Status PsServer::UpdateSection(int worker, Op op, const DenseSection& section,
                               std::span<const float> values, Lane& lane,
                               table::DenseTable& table, Logged* logged) {
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
  table::Turns* const turns = logged == nullptr ? nullptr : logged->Begin();
  Status done;
  switch (op) {
    case Op::kPush:
      done = table.Push(whole, turns);
      break;
    case Op::kAccumulate:
      done = table.Accumulate(worker, whole, turns);
      break;
    case Op::kAssign:
      if ((section.flags & kFlagIfNew) == 0 || !table.initialized()) {
        done = table.Assign(whole, turns);
      }
      break;
    default:
      done = table.Add(whole, turns);
  }
  if (logged == nullptr || !done.ok()) return done;
  logged->Take(section.table, 0,
               static_cast<uint32_t>(logged->sections.size()));
  logged->sections.push_back({section.table, section.flags, 0, whole.size()});
  if (whole.data() == lane.gathered.data()) {
    logged->gathered.push_back(std::exchange(lane.gathered, {}));
    whole = logged->gathered.back();
  }
  logged->body.push_back(std::as_bytes(whole));
  return done;
}

Result<std::span<const std::byte>> PsServer::HandleTakeChanges(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  if (request.head.count > kMaxTaken) {
    return InvalidArgument("a request for ", request.head.count, " keys");
  }
  // A reply that was lost must not lose the keys, so it is numbered as pushes
  // are, and kept.
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  if (request.head.sequence > lane.last_sequence) {
    // At all shards before or after another such request.
    base::MutexLock whole(whole_tables_);
    base::LogFile::Room room;
    Logged logged;
    if (log_ != nullptr) {
      ASSIGN_OR_RETURN(room,
                       log_->Reserve(table->sparse->num_shards(),
                                     request.head.count * sizeof(table::Key)));
    }
    ASSIGN_OR_RETURN(
        lane.taken,
        table->sparse->TakeChanges(session.worker, request.head.count,
                                   log_ == nullptr ? nullptr : logged.Begin()));
    if (log_ != nullptr) {
      logged.Take(request.head.table, table->sparse->num_shards(), 0);
      logged.body.push_back(std::as_bytes(std::span(lane.taken)));
      RETURN_IF_ERROR(
          AppendLog(session, request.head, std::move(room), logged));
    }
    NoteDone(lane, request.head.sequence, OkStatus());
  }
  session.text = base::TextOf(std::as_bytes(std::span(lane.taken)));
  return BytesOf(session.text);
}

Status PsServer::FinishStep(const Roster::Came& came, int num_active,
                            const Request& request) {
  base::MutexLock lock(whole_tables_);
  LoggedStep step;
  step.rounds = {
      std::string(base::TextOf(request.body)), came.after, false, {}};
  step.num_active = static_cast<uint32_t>(num_active);
  step.later.assign(came.later.begin(), came.later.end());
  for (int worker = 0; worker < options_.num_workers; ++worker) {
    if (came.later.contains(worker) || came.workers.contains(worker)) continue;
    // Lost in the middle of its step: it is not in the mean.
    step.dropped.push_back(worker);
  }
  const std::string body = Encode(step);
  base::LogFile::Room room;
  if (log_ != nullptr) {
    ASSIGN_OR_RETURN(room, ReserveForAll(body.size()));
  }
  // Sums of those that join later wait since an older one.
  if (came.later.empty()) sums_since_ = 0;
  for (const int worker : came.workers) {
    ++num_steps_[static_cast<size_t>(worker)];
  }
  for (const int worker : step.dropped) DropSums(worker, nullptr);
  const double scale = 1.0 / num_active;
  Status first;
  Logged logged;
  for (const auto& [id, table] : TablesById()) {
    const auto turns = [&] {
      return log_ == nullptr ? nullptr : logged.Begin();
    };
    const uint32_t num_shards =
        table->sparse != nullptr ? table->sparse->num_shards() : 0;
    Status applied =
        table->sparse != nullptr
            ? table->sparse->ApplyAccumulated(scale, came.later, turns())
            : table->dense->ApplyAccumulated(scale, came.later, turns());
    if (log_ != nullptr) logged.Take(id, num_shards, 0);
    if (first.ok()) first = std::move(applied);
    if (table->sparse != nullptr) {
      table->sparse->EndStep(1, turns());
    } else {
      table->dense->EndStep(1, turns());
    }
    if (log_ != nullptr) logged.Take(id, num_shards, kStepEnds);
  }
  if (log_ == nullptr) return first;
  RequestHead head;
  head.op = Op::kFinishStep;
  head.round = came.round;
  logged.body.push_back(BytesOf(body));
  NoteRounds(step.rounds);
  RETURN_IF_ERROR(AppendLog({}, head, std::move(room), logged));
  RETURN_IF_ERROR(log_->Commit());
  return first;
}

Result<std::span<const std::byte>> PsServer::HandleFinishStep(
    Session& session, const Request& request) {
  if ((request.head.flags & kFlagContinues) != 0) {
    // The step must not end without sums that found no room.
    Lane& lane = *session.lane;
    base::MutexLock lock(lane.mutex);
    RETURN_IF_ERROR(lane.no_room);
  }
  const bool idle = (request.head.flags & kFlagIdle) != 0;
  if (idle) {
    base::MutexLock lock(idle_mutex_);
    idle_workers_.insert(session.worker);
  }
  // The mean is over those that have gradients.
  auto complete = [this, &request](const Roster::Came& came) {
    auto num_active = static_cast<int>(came.workers.size());
    {
      base::MutexLock lock(idle_mutex_);
      for (const int worker : came.workers) {
        num_active -= static_cast<int>(idle_workers_.erase(worker));
      }
      // Who joins has not been asked yet.
      all_idle_ = num_active <= 0 && came.later.empty();
    }
    if (num_active > 0) return FinishStep(came, num_active, request);
    return LogRounds({std::string(base::TextOf(request.body)),
                      came.after,
                      came.later.empty(),
                      {}});
  };
  const Result<Roster::Ended> ended = HandleBarrier(session, request, complete);
  // The step was over before this worker came: the server was started again,
  // and others told it. One that took part may ask again, also when its next
  // sums have come on another connection.
  if (ended.ok() && !ended->took_part) DropSums(session.worker);
  base::MutexLock lock(idle_mutex_);
  // Also after a step that was over before: a call may be repeated.
  idle_workers_.erase(session.worker);
  RETURN_IF_ERROR(ended.status());
  // The next step cannot end without this worker: it is still that of this one.
  session.text = channel::MessageWriter()
                     .U64(ended->round)
                     .U8(idle && all_idle_ ? 1 : 0)
                     .Take();
  return BytesOf(session.text);
}

Result<Roster::Ended> PsServer::HandleBarrier(
    const Session& session, const Request& request,
    const Roster::Complete& complete) {
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

void PsServer::HandleGoodbye(const Session& session) {
  Goodbye goodbye{
      static_cast<uint32_t>(session.worker), session.incarnation, {}};
  for (const auto& [key, lane] : AllLanes()) {
    if (key.first != session.worker) continue;
    base::MutexLock lock(lane->mutex);
    for (const auto& [table, count] : lane->applied) {
      goodbye.updates[table].count += count;
    }
  }
  std::string all;
  {
    base::MutexLock lock(mutex_);
    for (auto& [id, updates] : goodbye.updates) {
      const auto table = tables_.find(id);
      if (table == tables_.end()) continue;
      updates.table = table->second.sparse != nullptr
                          ? table->second.sparse->name()
                          : table->second.dense->name();
    }
    // A worker may come again and say it again.
    std::erase_if(goodbyes_, [&](const Goodbye& before) {
      return before.worker == goodbye.worker &&
             before.incarnation == goodbye.incarnation;
    });
    goodbyes_.push_back(std::move(goodbye));
    all = Encode(goodbyes_);
  }
  if (options_.on_goodbye) options_.on_goodbye(all);
  heartbeats_.Forget(session.worker);
  roster_.Stop(session.worker, session.incarnation);
}

Result<std::span<const std::byte>> PsServer::HandleGather(
    Session& session, const Request& request) {
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

Result<std::span<const std::byte>> PsServer::HandleShrink(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  // It changes all rows: those that a save has not written yet would all be put
  // aside.
  RETURN_IF_ERROR(WaitUntilWritten(Deadline::After(std::chrono::milliseconds(
                                       request.head.timeout_ms)))
                      .WithContext("shrink"));
  // Rows are a day older after each call: one whose answer was lost must not
  // count again.
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  if (request.head.sequence > lane.last_sequence) {
    base::MutexLock whole(whole_tables_);
    base::LogFile::Room room;
    if (log_ != nullptr) {
      ASSIGN_OR_RETURN(room, log_->Reserve(table->sparse->num_shards(), 8));
    }
    Logged logged;
    const Result<uint64_t> erased =
        table->sparse->Shrink(static_cast<uint32_t>(request.head.count),
                              log_ == nullptr ? nullptr : logged.Begin());
    if (log_ != nullptr && erased.ok()) {
      logged.Take(request.head.table, table->sparse->num_shards(), 0);
      logged.body.push_back(base::BytesOf(*erased));
      RETURN_IF_ERROR(
          AppendLog(session, request.head, std::move(room), logged));
    }
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

Status PsServer::TellRate(const std::string& name, double rate,
                          Logged* logged) {
  {
    base::MutexLock lock(mutex_);
    rates_[name] = rate;
  }
  for (const auto& [id, table] : TablesById()) {
    table::Turns* const turns = logged == nullptr ? nullptr : logged->Begin();
    if (table->sparse != nullptr) {
      table->sparse->SetRate(name, rate, turns);
    } else {
      table->dense->SetRate(name, rate, turns);
    }
    if (logged == nullptr) continue;
    logged->Take(id, table->sparse != nullptr ? table->sparse->num_shards() : 0,
                 0);
  }
  return OkStatus();
}

Result<std::span<const std::byte>> PsServer::HandleBeat(
    Session& session, const Request& request) {
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
