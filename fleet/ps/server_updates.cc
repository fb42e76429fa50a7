// SPDX-License-Identifier: Apache-2.0

// What a server does for requests that read or change rows and values.

#include <algorithm>
#include <utility>

#include "fleet/channel/message.h"
#include "fleet/ps/server_impl.h"

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

PsServer::Impl::Answer PsServer::Impl::HandlePull(Session& session,
                                                  const Request& request) {
  const RequestHead& head = request.head;
  if ((head.flags & kFlagDense) != 0) return PullDense(session, request);
  ASSIGN_OR_RETURN(ServerTable* const table, Find(session, head.table));
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

Status PsServer::Impl::PullCounted(Session& session, const Request& request,
                                   std::span<const table::Key> keys,
                                   table::PullOptions options,
                                   table::SparseTable& table) {
  WorkerLane& lane = *session.lane;
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
  // Pulls are not among the updates that the log numbers.
  RequestHead head = request.head;
  head.round = std::exchange(head.sequence, 0);
  RETURN_IF_ERROR(AppendLog(session, head, std::move(room), logged));
  lane.last_pull = sequence;
  return OkStatus();
}

PsServer::Impl::Answer PsServer::Impl::PullDense(Session& session,
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
    ASSIGN_OR_RETURN(table::DenseTable* const table,
                     tables_.FindDense(section.table));
    RETURN_IF_ERROR(table->PullFrom(section.offset, rest.first(section.count)));
    rest = rest.subspan(section.count);
  }
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::Impl::HandleUpdate(Session& session, const Request& request) {
  WorkerLane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  RETURN_IF_ERROR(CheckFence(session));
  Status outcome;
  if (lane.WasDone(request.head.sequence, &outcome)) {
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
      lane.NoteDone(request.head.sequence, reserved.status());
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
  if (!outcome.ok() && logged != nullptr) {
    // Those behind it may be done and logged before it is answered: it must not
    // pass for done when it comes again.
    RETURN_IF_ERROR(LogFailure(session, request, outcome, std::move(room)));
  }
  // A step may have ended since it was noted, before these sums came.
  if (sums) NoteSums(segment);
  if (!outcome.ok() || request.head.num_following == 0) lane.held = {};
  lane.NoteDone(request.head.sequence, outcome);
  return outcome;
}

Status PsServer::Impl::LogFailure(const Session& session,
                                  const Request& request, const Status& outcome,
                                  base::LogFile::Room room) {
  RequestHead head = request.head;
  head.op = Op::kFailed;
  head.count = static_cast<uint64_t>(outcome.code());
  Logged logged;
  const std::string& why = outcome.message();
  // What there is room for, where the request had keys or a whole gradient.
  logged.body.push_back(
      BytesOf(why).first(std::min<uint64_t>(why.size(), log_->BodyOf(room))));
  return AppendLog(session, head, std::move(room), logged);
}

Status PsServer::Impl::UpdateSparse(Session& session, const Request& request,
                                    WorkerLane& lane, Logged* logged) {
  const RequestHead& head = request.head;
  ASSIGN_OR_RETURN(ServerTable* const found, Find(session, head.table));
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
  lanes_.CountUpdate(session.worker, head.op == Op::kAccumulate, head.table,
                     lane);
  return OkStatus();
}

Status PsServer::Impl::UpdateDense(int worker, const Request& request,
                                   WorkerLane& lane, Logged* logged) {
  const RequestHead& head = request.head;
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(head.count);
  for (const DenseSection& section : sections) {
    ASSIGN_OR_RETURN(table::DenseTable* const table,
                     tables_.FindDense(section.table));
    const auto values = body.TakeSpan<float>(section.count);
    if (values.size() != section.count) return CheckFinished(body);
    RETURN_IF_ERROR(
        UpdateSection(worker, head.op, section, values, lane, *table, logged));
    if ((section.flags & kFlagLast) == 0) continue;
    table->EndStep(head.end_steps,
                   logged == nullptr ? nullptr : logged->Begin());
    if (logged != nullptr) logged->Take(section.table, 0, kStepEnds);
    lanes_.CountUpdate(worker, head.op == Op::kAccumulate, section.table, lane);
  }
  if (logged != nullptr && !logged->sections.empty()) {
    logged->body.insert(logged->body.begin(),
                        std::as_bytes(std::span(logged->sections)));
  }
  return CheckFinished(body);
}

Status PsServer::Impl::UpdateSection(int worker, Op op,
                                     const DenseSection& section,
                                     std::span<const float> values,
                                     WorkerLane& lane, table::DenseTable& table,
                                     Logged* logged) {
  if (section.offset > table.part().size() ||
      values.size() > table.part().size() - section.offset) {
    return InvalidArgument("table ", table.name(), ": values [", section.offset,
                           ", ", section.offset + values.size(), ") of ",
                           table.part().size());
  }
  std::span<const float> whole = values;
  const TableId gathering = std::exchange(lane.parts_of, WorkerLane::kNoTable);
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

PsServer::Impl::Answer PsServer::Impl::HandleTakeChanges(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(ServerTable* const table, tables_.Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  if (request.head.count > kMaxTaken) {
    return InvalidArgument("a request for ", request.head.count, " keys");
  }
  // A reply that was lost must not lose the keys, so it is numbered as pushes
  // are, and kept.
  WorkerLane& lane = *session.lane;
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
    lane.NoteDone(request.head.sequence, OkStatus());
  }
  session.text = base::TextOf(std::as_bytes(std::span(lane.taken)));
  return BytesOf(session.text);
}

PsServer::Impl::Answer PsServer::Impl::HandleFinishStep(
    Session& session, const Request& request) {
  if ((request.head.flags & kFlagContinues) != 0) {
    // The step must not end without sums that found no room.
    WorkerLane& lane = *session.lane;
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
  if (ended.ok() && !ended->took_part) (void)DropSums(session.worker);
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

Status PsServer::Impl::FinishStep(const Roster::Came& came, int num_active,
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
    lanes_.BeginStep(worker);
  }
  for (const int worker : step.dropped) DropSums(worker, nullptr);
  const double scale = 1.0 / num_active;
  Status first;
  Logged logged;
  for (const auto& [id, table] : tables_.ById()) {
    const auto turns = [&] {
      return log_ == nullptr ? nullptr : logged.Begin();
    };
    const uint32_t num_shards = table->num_shards();
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

Status PsServer::Impl::DropSums(int worker) {
  base::MutexLock lock(whole_tables_);
  if (log_ == nullptr) {
    DropSums(worker, nullptr);
    return OkStatus();
  }
  // A server that begins again without the record finds a newer incarnation,
  // and drops them too.
  Result<base::LogFile::Room> room = ReserveForAll(0);
  Logged logged;
  DropSums(worker, &logged);
  RequestHead head;
  head.op = Op::kDrop;
  head.count = static_cast<uint64_t>(worker);
  RETURN_IF_ERROR(room.status());
  return AppendLog({}, head, std::move(room).value(), logged);
}

void PsServer::Impl::DropSums(int worker, Logged* logged) {
  lanes_.BeginStep(worker);
  for (const auto& [id, table] : tables_.ById()) {
    table::Turns* const turns = logged == nullptr ? nullptr : logged->Begin();
    if (table->sparse != nullptr) {
      table->sparse->DropAccumulated(worker, turns);
    } else {
      table->dense->DropAccumulated(worker, turns);
    }
    if (logged == nullptr) continue;
    logged->Take(id, table->num_shards(), 0);
  }
}

PsServer::Impl::Answer PsServer::Impl::HandleShrink(Session& session,
                                                    const Request& request) {
  ASSIGN_OR_RETURN(ServerTable* const table, tables_.Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  // It changes all rows: those that a save has not written yet would all be put
  // aside.
  RETURN_IF_ERROR(WaitUntilWritten(Deadline::After(std::chrono::milliseconds(
                                       request.head.timeout_ms)))
                      .WithContext("shrink"));
  // Rows are a day older after each call: one whose answer was lost must not
  // count again.
  WorkerLane& lane = *session.lane;
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
    lane.NoteDone(request.head.sequence, erased.status());
    lane.num_erased = erased.ok() ? *erased : 0;
  } else {
    num_repeated_.fetch_add(1, std::memory_order_relaxed);
  }
  Status outcome;
  (void)lane.WasDone(request.head.sequence, &outcome);
  RETURN_IF_ERROR(outcome);
  session.text = channel::MessageWriter().U64(lane.num_erased).Take();
  return BytesOf(session.text);
}

}  // namespace fleet::ps
