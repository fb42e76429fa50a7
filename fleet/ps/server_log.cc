// SPDX-License-Identifier: Apache-2.0

// What a server logs of its requests, and how it has its tables again.

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <utility>

#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/ps/server.h"

namespace fleet::ps {
namespace {

// For requests that are being done when a checkpoint begins.
constexpr auto kTimeToFinish = std::chrono::seconds(60);

// For answers that are being sent when the job has ended well.
constexpr auto kTimeToAnswer = std::chrono::seconds(5);

// Where the options have no limit: a server that is started again does some 200
// MB of its log a second, and so has its tables again within half a second.
constexpr uint64_t kCheckpointByteSize = uint64_t{128} << 20;

// Smaller ones would be begun too often.
constexpr uint64_t kLeastSegment = uint64_t{1} << 20;

// After a checkpoint that failed: the disk may be full for long.
constexpr auto kCheckpointAgain = std::chrono::seconds(5);

Result<Checkpoint> ReadCheckpoint(const base::Path& folder) {
  const base::Path file = folder / kCheckpointFile;
  if (!base::Exists(file)) return Checkpoint();
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(file));
  Result<Checkpoint> checkpoint = DecodeCheckpoint(bytes);
  RETURN_IF_ERROR(checkpoint.status().WithContext(file.string()));
  return checkpoint;
}

// Tables of checkpoints, but for those of the one that counts.
Status RemoveBases(const base::Path& folder, const std::string& counts) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(folder));
  for (const std::string& name : names) {
    const bool is_older = (name.starts_with("base.") && name != counts) ||
                          base::NameUnderConstruction(name).has_value();
    if (!is_older) continue;
    std::error_code error;
    std::filesystem::remove_all(folder / name, error);
    if (error) {
      return ErrnoStatus(error.value(), "remove " + (folder / name).string());
    }
  }
  return OkStatus();
}

// What a checkpoint wrote that was cut off.
Status RemoveOldBases(const base::Path& folder) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(folder));
  return RemoveBases(folder, checkpoint.folder);
}

// Values of some keys of a request.
template <typename T>
std::vector<T> Chosen(std::span<const T> all, std::span<const uint32_t> places,
                      size_t width) {
  std::vector<T> chosen;
  chosen.reserve(places.size() * width);
  for (const uint32_t place : places) {
    const auto from = all.begin() + static_cast<ptrdiff_t>(place * width);
    chosen.insert(chosen.end(), from, from + static_cast<ptrdiff_t>(width));
  }
  return chosen;
}

}  // namespace

Result<base::LogFile::Room> PsServer::ReserveLog(const Request& request,
                                                 Lane& lane) {
  const RequestHead& head = request.head;
  if (head.count > kMaxChunkKeys) {
    return InvalidArgument("a request with ", head.count, " keys, and ",
                           kMaxChunkKeys, " are the most");
  }
  uint64_t body = request.body.size();
  size_t num_turns = 0;
  uint64_t most_body = body;
  size_t most_turns = 0;
  if ((head.flags & kFlagDense) == 0) {
    ASSIGN_OR_RETURN(const Table* const table, Find(head.table));
    if (table->sparse == nullptr) return InvalidArgument("no sparse table");
    num_turns = most_turns = table->sparse->num_shards() + 1;
  } else {
    // A gradient that comes in parts is logged with the last, as one.
    body = 0;
    for (const DenseSection& section :
         base::ByteReader(request.body).TakeSpan<DenseSection>(head.count)) {
      if ((section.flags & kFlagLast) == 0) continue;
      ASSIGN_OR_RETURN(table::DenseTable* const table,
                       FindDense(section.table));
      body += sizeof(section) + table->part().size() * sizeof(float);
      num_turns += 2;
    }
    most_body = kChunkByteSize + kMaxSections * sizeof(DenseSection);
    most_turns = 2 * kMaxSections;
  }
  if (head.num_following > 0 && !lane.held.holds()) {
    // The first request, or the first after its connection was lost.
    ASSIGN_OR_RETURN(lane.held, log_->HoldRoom(uint64_t{head.num_following} + 1,
                                               most_turns, most_body));
  }
  return log_->Reserve(num_turns, body, &lane.held);
}

void PsServer::ReleaseRoom(Lane& lane) {
  base::LogFile::Hold held;
  base::MutexLock lock(lane.mutex);
  held = std::move(lane.held);
}

Status PsServer::AppendLog(const Session& session, const RequestHead& head,
                           base::LogFile::Room room, const Logged& logged) {
  LoggedHead of;
  of.epoch = epoch_;
  of.incarnation = session.incarnation;
  of.worker = static_cast<uint32_t>(session.worker);
  of.lane = session.lane_number;
  return log_->Append(std::move(room), of, head, logged.turns, logged.body);
}

void PsServer::NoteRounds(const LoggedRounds& rounds) {
  base::MutexLock lock(rounds_mutex_);
  rounds_[rounds.name] = rounds;
}

Status PsServer::LogRounds(LoggedRounds rounds) {
  if (log_ == nullptr) return OkStatus();
  const std::string body = Encode(rounds);
  ASSIGN_OR_RETURN(base::LogFile::Room room, log_->Reserve(0, body.size()));
  // While there is room in a segment, a checkpoint that has cut it waits.
  NoteRounds(rounds);
  RequestHead head;
  head.op = Op::kRounds;
  Logged logged;
  logged.body.push_back(std::as_bytes(std::span(body)));
  RETURN_IF_ERROR(AppendLog({}, head, std::move(room), logged));
  return log_->Commit();
}

void PsServer::NoteSums(uint64_t segment) {
  uint64_t since = sums_since_;
  while ((since == 0 || segment < since) &&
         !sums_since_.compare_exchange_weak(since, segment)) {
  }
}

Result<base::LogFile::Room> PsServer::ReserveForAll(uint64_t body) {
  size_t num_turns = 0;
  for (const Table* table : AllTables()) {
    num_turns += table->sparse != nullptr ? table->sparse->num_shards() + 1 : 2;
  }
  return log_->Reserve(num_turns, body);
}

Result<base::Descriptor> PsServer::LockLog(const base::Path& folder,
                                           bool alone) {
  const std::string path = (folder / "lock").string();
  base::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, "open " + path);
  const int how = alone ? LOCK_EX : LOCK_SH;
  if (::flock(file.get(), how | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
  return FailedPrecondition(folder.string(),
                            ": another server that runs logs here");
}

Status PsServer::OpenLog() {
  if (options_.durability == Durability::kNone) return OkStatus();
  const base::Path folder = options_.log_folder;
  RETURN_IF_ERROR(base::MakeFolders(folder));
  ASSIGN_OR_RETURN(log_lock_, LockLog(folder, true));
  uint32_t num_others = 0;
  uint64_t next = 1;
  if (LogIsWhole(folder)) {
    ASSIGN_OR_RETURN(next, Recover(folder));
    RETURN_IF_ERROR(RemoveOldBases(folder));
  } else {
    ASSIGN_OR_RETURN(num_others, FindOtherLogs());
    if (num_others > 0) RETURN_IF_ERROR(TakeOver(num_others));
  }
  const auto end = [this](const Status& why) {
    Abort(DataLoss("the log fails, and what is on the disk is not known: ",
                   why.message()));
  };
  base::LogOptions log{folder, next, options_.log_segment_byte_size};
  // A small limit means small segments.
  const uint64_t limit = options_.checkpoint_byte_size != 0
                             ? options_.checkpoint_byte_size
                             : kCheckpointByteSize;
  log.segment_byte_size =
      std::min(log.segment_byte_size, std::max(limit / 8, kLeastSegment));
  ASSIGN_OR_RETURN(log_, RequestLog::Open(log, options_.durability, end));
  if (num_others > 0) RETURN_IF_ERROR(FinishTakeOver());
  return RemoveOtherLogs();
}

Result<uint64_t> PsServer::Recover(const base::Path& folder) {
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(folder));
  Ledger ledger;
  if (!checkpoint.ledger.empty()) {
    ASSIGN_OR_RETURN(ledger, DecodeLedger(checkpoint.ledger));
  }
  ASSIGN_OR_RETURN(const base::LogRecords records,
                   base::LogRecords::Read(folder, checkpoint.segment));
  if (!checkpoint.folder.empty() &&
      records.next_segment() <= checkpoint.segment) {
    return DataLoss(folder.string(), ": log.", checkpoint.segment,
                    ", which its checkpoint goes on with, is not there");
  }
  if (checkpoint.tables.empty() && records.all().empty()) {
    return records.next_segment();
  }

  // The tables as the checkpoint has them.
  table::SavedModel model;
  model.folder = folder / base::FileNameOf(checkpoint.folder);
  model.number = 1;
  model.saves.emplace_back();
  std::map<PartOfTable, uint64_t> done;
  for (const Checkpoint::Table& table : checkpoint.tables) {
    if (table.saved) model.saves[0].lists.push_back(table.list);
    for (const table::Turn& turn : table.cut.turns) {
      done[{table.id, turn.part}] = turn.number;
    }
  }
  for (const Checkpoint::Table& table : checkpoint.tables) {
    ASSIGN_OR_RETURN(const TableSpec spec, DecodeTableSpec(table.spec));
    ASSIGN_OR_RETURN(Table made, Make(spec));
    if (table.saved && made.sparse != nullptr) {
      RETURN_IF_ERROR(made.sparse
                          ->Load(model, static_cast<uint32_t>(options_.rank),
                                 options_.num_servers)
                          .status());
      RETURN_IF_ERROR(made.sparse->TakeCut(table.cut));
    } else if (table.saved) {
      RETURN_IF_ERROR(made.dense->Load(model).status());
    }
    RETURN_IF_ERROR(AddTable(spec.id, std::move(made)));
  }
  for (const auto& [name, rate] : checkpoint.rates) {
    RETURN_IF_ERROR(TellRate(name, rate, nullptr));
  }

  // What came after it, or while it was written.
  std::vector<LoggedRequest> requests;
  requests.reserve(records.all().size());
  for (const std::span<const std::byte> record : records.all()) {
    ASSIGN_OR_RETURN(const LoggedRequest request, DecodeLogged(record));
    if (request.head.epoch >= epoch_) {
      return FailedPrecondition(
          folder.string(), ": a log of epoch ", request.head.epoch,
          ", and server ", options_.rank, " is started with epoch ", epoch_,
          ": does the server that wrote it still run?");
    }
    requests.push_back(request);
    if (request.request.op != Op::kCreate) continue;
    ASSIGN_OR_RETURN(const TableSpec spec,
                     DecodeTableSpec(base::TextOf(request.body)));
    if (Find(spec.id).ok()) continue;
    ASSIGN_OR_RETURN(Table made, Make(spec));
    RETURN_IF_ERROR(AddTable(spec.id, std::move(made)));
  }
  std::map<TableId, uint64_t> steps;
  for (const auto& [id, table] : TablesById()) {
    if (table->sparse != nullptr) steps[id] = table->sparse->stats().step;
  }
  RETURN_IF_ERROR(
      Redo(requests, checkpoint.epoch, done,
           [&](const LoggedRequest& request, const LoggedTurn& turn) {
             return RedoTurn(request, turn, steps);
           })
          .WithContext(folder.string()));
  for (const auto& [id, step] : steps) {
    ASSIGN_OR_RETURN(Table* const table, Find(id));
    table->sparse->SetStep(step);
  }
  for (const LoggedRequest& request : requests) AddToLedger(request, ledger);
  RETURN_IF_ERROR(RestoreLedger(Encode(ledger)));
  for (const LoggedRequest& request : requests) {
    if (request.request.op == Op::kAccumulate) {
      // Some may wait for the end of their step.
      NoteSums(checkpoint.segment);
    }
    if (request.request.op != Op::kSetRate) continue;
    channel::MessageReader in(base::TextOf(request.body));
    const std::string name = in.Text();
    const auto rate = std::bit_cast<double>(in.U64());
    RETURN_IF_ERROR(in.Finish());
    base::MutexLock lock(mutex_);
    rates_[name] = rate;
  }
  // Answers that may be asked for again.
  for (const LoggedRequest& request : requests) {
    if (request.request.op != Op::kTakeChanges) continue;
    const auto keys =
        base::ByteReader(request.body)
            .TakeSpan<table::Key>(request.body.size() / sizeof(table::Key));
    checkpoint.answers.push_back({request.head.worker,
                                  request.head.lane,
                                  request.request.sequence,
                                  {keys.begin(), keys.end()}});
  }
  for (const Checkpoint::Answer& answer : checkpoint.answers) {
    for (const auto& [key, lane] : AllLanes()) {
      if (key != std::pair(static_cast<int>(answer.worker), answer.lane)) {
        continue;
      }
      base::MutexLock inner(lane->mutex);
      if (lane->last_sequence == answer.sequence) lane->taken = answer.keys;
    }
  }
  RETURN_IF_ERROR(RestoreRounds(checkpoint.rounds, requests));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  FLEET_LOG(INFO) << "server " << options_.rank
                  << " has its tables again: " << checkpoint.tables.size()
                  << " from its checkpoint, and " << requests.size()
                  << " requests of its log, in "
                  << static_cast<int64_t>(seconds.count() * 1e3) << " ms";
  return records.next_segment();
}

Status PsServer::RestoreRounds(
    const std::map<std::string, LoggedRounds>& before,
    std::span<const LoggedRequest> requests) {
  std::map<std::string, LoggedRounds> rounds = before;
  for (const LoggedRequest& request : requests) {
    LoggedRounds later;
    if (request.request.op == Op::kFinishStep) {
      ASSIGN_OR_RETURN(LoggedStep step, DecodeLoggedStep(request.body));
      later = std::move(step.rounds);
    } else if (request.request.op == Op::kRounds) {
      ASSIGN_OR_RETURN(later, DecodeLoggedRounds(base::TextOf(request.body)));
    } else {
      continue;
    }
    LoggedRounds& last = rounds[later.name];
    if (later.rounds.number >= last.rounds.number) last = std::move(later);
  }
  for (const auto& [name, each] : rounds) {
    roster_.SetRounds(name, each.rounds);
    if (name == kStepBarrier) {
      base::MutexLock lock(idle_mutex_);
      all_idle_ = each.idle;
    }
    const std::string gather = Gathering::BarrierOf("");
    if (name.starts_with(gather)) {
      gathering_.Restore(name.substr(gather.size()), each.gathered);
    }
  }
  base::MutexLock lock(rounds_mutex_);
  rounds_ = std::move(rounds);
  return OkStatus();
}

void PsServer::AddToLedger(const LoggedRequest& request, Ledger& ledger) {
  const RequestHead& head = request.request;
  if (head.sequence == 0) return;
  auto worker = std::ranges::find(ledger.workers, request.head.worker,
                                  &WorkerRecord::worker);
  if (worker == ledger.workers.end()) {
    worker = ledger.workers.insert(worker, {request.head.worker, 0, {}});
  }
  if (request.head.incarnation < worker->incarnation) return;
  if (request.head.incarnation > worker->incarnation) {
    *worker = {request.head.worker, request.head.incarnation, {}};
  }
  auto lane =
      std::ranges::find(worker->lanes, request.head.lane, &LaneRecord::lane);
  if (lane == worker->lanes.end()) {
    lane = worker->lanes.insert(lane, {request.head.lane, 0, {}});
  }
  if (head.sequence <= lane->last_sequence) return;
  lane->last_sequence = head.sequence;
  if (head.op == Op::kShrink || head.op == Op::kTakeChanges) return;
  if ((head.flags & kFlagDense) == 0) {
    ++lane->applied[head.table];
    return;
  }
  for (const DenseSection& section :
       base::ByteReader(request.body).TakeSpan<DenseSection>(head.count)) {
    ++lane->applied[section.table];
  }
}

Status PsServer::RedoTurn(const LoggedRequest& request, const LoggedTurn& turn,
                          std::map<TableId, uint64_t>& steps) {
  const RequestHead& head = request.request;
  ASSIGN_OR_RETURN(Table* const found, Find(turn.table));
  const uint64_t end_steps =
      head.op == Op::kFinishStep ? 1 : uint64_t{head.end_steps};
  if (turn.num_shards == 0) {
    if (found->dense == nullptr) return DataLoss("a turn of no dense table");
    if (turn.section == kStepEnds) {
      found->dense->EndStep(end_steps);
      return OkStatus();
    }
    return RedoDense(request, turn, *found->dense);
  }
  if (found->sparse == nullptr) return DataLoss("a turn of no sparse table");
  table::SparseTable& table = *found->sparse;
  if (turn.section == kStepEnds) {
    steps[turn.table] += end_steps;
    return OkStatus();
  }
  table.SetStep(turn.step);
  base::ByteReader body(request.body);
  switch (head.op) {
    case Op::kFinishStep: {
      ASSIGN_OR_RETURN(const LoggedStep step, DecodeLoggedStep(request.body));
      for (const int worker : step.dropped) table.DropAccumulated(worker);
      return table.ApplyAccumulated(1.0 / step.num_active,
                                    {step.later.begin(), step.later.end()});
    }
    case Op::kDrop:
      table.DropAccumulated(static_cast<int>(head.count));
      return OkStatus();
    case Op::kTakeChanges:
      return table
          .TakeChanges(static_cast<int>(request.head.worker), head.count)
          .status();
    case Op::kShrink:
      return table.Shrink(static_cast<uint32_t>(head.count)).status();
    case Op::kExpire:
      return table.ExpireAgain().status();
    case Op::kSetRate: {
      channel::MessageReader in(base::TextOf(request.body));
      const std::string name = in.Text();
      table.SetRate(name, std::bit_cast<double>(in.U64()));
      return in.Finish();
    }
    default:
      break;
  }
  const auto all = body.TakeSpan<table::Key>(head.count);
  const std::vector<uint32_t> places =
      table::KeysOfTurn({.part = turn.part}, all, turn.num_shards);
  const std::vector<table::Key> keys = Chosen(all, places, 1);
  if (head.op == Op::kPull) {
    table::PullOptions options;
    std::vector<uint32_t> counts;
    if ((head.flags & kFlagCounts) != 0) {
      counts = Chosen(body.TakeSpan<uint32_t>(head.count), places, 1);
      options.counts = counts;
    }
    if (!body.whole()) return DataLoss("a logged pull is cut off");
    std::vector<float> rows(keys.size() * table.dim());
    return table.Pull(keys, rows, options);
  }
  const std::vector<float> values = Chosen(
      body.TakeSpan<float>(head.count * table.dim()), places, table.dim());
  table::PushOptions options;
  std::vector<float> shows;
  std::vector<float> clicks;
  if ((head.flags & kFlagShows) != 0) {
    shows = Chosen(body.TakeSpan<float>(head.count), places, 1);
    clicks = Chosen(body.TakeSpan<float>(head.count), places, 1);
    options.shows = shows;
    options.clicks = clicks;
  }
  if (!body.finished()) return DataLoss("a logged update is cut off");
  switch (head.op) {
    case Op::kPush:
      return table.Push(keys, values, options);
    case Op::kAccumulate:
      return table.Accumulate(static_cast<int>(request.head.worker), keys,
                              values, options);
    case Op::kAdd:
      return table.options().num_geo_workers == 0
                 ? table.Add(keys, values)
                 : table.AddFrom(static_cast<int>(request.head.worker), keys,
                                 values);
    default:
      return DataLoss("a logged request of kind ",
                      static_cast<uint32_t>(head.op));
  }
}

Status PsServer::RedoDense(const LoggedRequest& request, const LoggedTurn& turn,
                           table::DenseTable& table) {
  const RequestHead& head = request.request;
  if (head.op == Op::kFinishStep) {
    ASSIGN_OR_RETURN(const LoggedStep step, DecodeLoggedStep(request.body));
    for (const int worker : step.dropped) table.DropAccumulated(worker);
    return table.ApplyAccumulated(1.0 / step.num_active,
                                  {step.later.begin(), step.later.end()});
  }
  if (head.op == Op::kDrop) {
    table.DropAccumulated(static_cast<int>(head.count));
    return OkStatus();
  }
  if (head.op == Op::kSetRate) {
    channel::MessageReader in(base::TextOf(request.body));
    const std::string name = in.Text();
    table.SetRate(name, std::bit_cast<double>(in.U64()));
    return in.Finish();
  }
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(head.count);
  for (size_t i = 0; i < sections.size(); ++i) {
    const auto values = body.TakeSpan<float>(sections[i].count);
    if (i != turn.section) continue;
    if (!body.whole()) break;
    switch (head.op) {
      case Op::kPush:
        return table.Push(values);
      case Op::kAccumulate:
        return table.Accumulate(static_cast<int>(request.head.worker), values);
      case Op::kAssign:
        return table.Assign(values);
      case Op::kAdd:
        return table.Add(values);
      default:
        break;
    }
  }
  return DataLoss("a logged update of table ", table.name(), " is cut off");
}

Result<uint64_t> PsServer::Expire(TableId id, table::SparseTable& table) {
  if (log_ == nullptr) return table.Expire();
  ASSIGN_OR_RETURN(base::LogFile::Room room,
                   log_->Reserve(table.num_shards(), 0));
  Logged logged;
  ASSIGN_OR_RETURN(const uint64_t num_erased, table.Expire(logged.Begin()));
  if (logged.of_table.empty()) return num_erased;  // nobody trains
  logged.Take(id, table.num_shards(), 0);
  RequestHead head;
  head.op = Op::kExpire;
  RETURN_IF_ERROR(AppendLog({}, head, std::move(room), logged));
  return num_erased;
}

bool PsServer::CheckpointDue() {
  if (log_ == nullptr || log_->file().byte_size() == 0) return false;
  const uint64_t byte_size = log_->file().disk_size();
  const uint64_t limit = options_.checkpoint_byte_size;
  if (limit != 0) return byte_size > limit;
  // Asks all shards.
  return byte_size > kCheckpointByteSize &&
         byte_size > 2 * holdings().byte_size;
}

Status PsServer::CheckpointIfDue() {
  if (!CheckpointDue()) return OkStatus();
  {
    base::MutexLock lock(checkpointing_);
    if (!next_checkpoint_.expired()) return OkStatus();
  }
  {
    base::MutexLock lock(saving_);
    if (HasSave()) return OkStatus();
  }
  return WriteCheckpoint(false).status();
}

Result<bool> PsServer::WriteCheckpoint(bool must, NewTables* added) {
  base::MutexLock one(checkpointing_);
  if (!must) {
    base::MutexLock saving(saving_);
    if (HasSave()) return false;
  }
  Checkpoint checkpoint;
  checkpoint.epoch = epoch_;
  Result<bool> written = WriteCheckpoint(must, added, checkpoint);
  if (!written.ok()) next_checkpoint_ = Deadline::After(kCheckpointAgain);
  if (!checkpoint.folder.empty()) {
    // Its rows take room that the log may need. A checkpoint may count although
    // its writing failed at the end.
    const Result<Checkpoint> counts = ReadCheckpoint(log_->folder());
    std::error_code error;
    if (!counts.ok() || counts->folder != checkpoint.folder) {
      std::filesystem::remove_all(log_->folder() / checkpoint.folder, error);
    }
  }
  return written;
}

Result<bool> PsServer::WriteCheckpoint(bool must, NewTables* added,
                                       Checkpoint& checkpoint) {
  // From here on: requests of older segments are done, and their lanes and
  // tables have them. Of newer ones the turns tell.
  ASSIGN_OR_RETURN(checkpoint.segment,
                   log_->file().Rotate(Deadline::After(kTimeToFinish)));
  checkpoint.folder = base::Concat("base.", epoch_, ".", ++num_checkpoints_);
  checkpoint.ledger = EncodeLedger(false);
  for (const auto& [key, lane] : AllLanes()) {
    base::MutexLock inner(lane->mutex);
    if (lane->taken.empty()) continue;
    checkpoint.answers.push_back({static_cast<uint32_t>(key.first), key.second,
                                  lane->last_sequence, lane->taken});
  }
  const base::Path folder = log_->folder() / checkpoint.folder;
  RETURN_IF_ERROR(base::MakeFolders(folder));
  std::map<TableId, table::TableCut> cuts;
  std::shared_ptr<TablesWriter> writer;
  {
    base::MutexLock saving(saving_);
    // The marks of a save that has not ended are its own: later.
    if (!must && (HasSave() || writing_stopped_)) return false;
    const Deadline deadline = Deadline::After(kTimeToFinish);
    while (HasSave() && save_->writer != nullptr) {
      if (save_ended_.WaitUntil(saving_, deadline)) continue;
      return DeadlineExceeded("worker ", save_->worker, " saves to ",
                              save_->folder,
                              ", and a checkpoint waits for its end");
    }
    base::MutexLock whole(whole_tables_);
    // Sums that wait for the end of a step are only in the log.
    const uint64_t since = sums_since_;
    if (since != 0) checkpoint.segment = std::min(checkpoint.segment, since);
    {
      base::MutexLock rounds(rounds_mutex_);
      checkpoint.rounds = rounds_;
    }
    {
      base::MutexLock inner(mutex_);
      checkpoint.rates = rates_;
    }
    for (const auto& [id, table] : TablesById()) {
      Checkpoint::Table begun;
      begun.id = id;
      begun.spec = table->spec;
      begun.saved = table->dense == nullptr || table->dense->initialized();
      checkpoint.tables.push_back(std::move(begun));
    }
    table::SaveId id;
    id.number = 1;
    id.server = static_cast<uint32_t>(options_.rank);
    id.num_servers = options_.num_servers;
    ASSIGN_OR_RETURN(writer, BeginWriting(folder, id, false, &cuts));
    checkpoint_writer_ = writer;
    checkpoint_must_ = must;
  }
  // From here on requests go on, and those that change what is not written yet
  // have turns that the cuts do not have.
  Status written;
  for (Checkpoint::Table& table : checkpoint.tables) {
    // A disk has no deadline.
    Result<table::WrittenTable> rows =
        writer->Wait(table.id, Deadline::Infinite());
    written = rows.status();
    if (!written.ok()) break;
    table.list = std::move(rows->list);
    table.cut = std::move(cuts[table.id]);
    table.cut.candidates = std::move(rows->candidates);
  }
  if (added != nullptr) {
    for (auto& [id, table] : *added) {
      if (!written.ok()) break;
      base::MutexLock saving(saving_);
      Result<Checkpoint::Table> one = WriteTable(folder, id, table);
      written = one.status();
      if (one.ok()) checkpoint.tables.push_back(std::move(one).value());
    }
  }
  // What the tables have that were written, the log has before they count: who
  // did it is asked only there whether it is done.
  if (written.ok()) {
    written = log_->file().Settle(Deadline::After(kTimeToFinish));
  }
  if (written.ok()) {
    written = base::AtomicWriteFile(log_->folder() / kCheckpointFile,
                                    Encode(checkpoint));
  }
  const std::string folder_name = checkpoint.folder;
  if (written.ok()) checkpoint.folder.clear();  // it stays
  {
    base::MutexLock saving(saving_);
    // A save that began has ended it, or came when it counted; or the server is
    // ending.
    if (checkpoint_writer_ != writer && !written.ok() && !must) return false;
    if (checkpoint_writer_ == writer) {
      EndSaves(false);
      checkpoint_writer_.reset();
      save_ended_.NotifyAll();
    }
  }
  RETURN_IF_ERROR(written);
  SayWritten("a checkpoint", *writer);
  // What is left of older ones is not needed any more.
  RETURN_IF_ERROR(RemoveBases(log_->folder(), folder_name));
  RETURN_IF_ERROR(log_->file().RemoveBefore(checkpoint.segment));
  return true;
}

Result<Checkpoint::Table> PsServer::WriteTable(const base::Path& folder,
                                               TableId id, Table& table) {
  table::SaveId save;
  save.number = 1;
  save.server = static_cast<uint32_t>(options_.rank);
  save.num_servers = options_.num_servers;
  Checkpoint::Table written;
  written.id = id;
  written.spec = table.spec;
  if (table.sparse != nullptr) {
    table::SaveOptions options{save};
    options.cut = &written.cut;
    Result<table::WrittenTable> rows = table.sparse->WriteSave(folder, options);
    table.sparse->EndSave(false);
    RETURN_IF_ERROR(rows.status());
    written.list = std::move(rows->list);
    written.cut.candidates = std::move(rows->candidates);
    written.saved = true;
    return written;
  }
  ASSIGN_OR_RETURN(table::WrittenTable values,
                   table.dense->WriteSave(folder, save, &written.cut.turns));
  written.list = std::move(values.list);
  written.saved = table.dense->initialized();
  return written;
}

Status PsServer::RemoveLog() {
  if (log_ == nullptr) return OkStatus();
  // The last good-bye is answered first: a worker that has no answer would ask
  // a server that is started again, which knew nothing of it without the log.
  WaitUntilIdle(Deadline::After(kTimeToAnswer));
  // Requests that still come write to files without a name.
  const base::Path folder = log_->folder();
  // At once: half of a log would be a damaged one.
  base::Path ended = folder;
  ended += ".ended";
  std::error_code error;
  std::filesystem::remove_all(ended, error);
  if (!error) std::filesystem::rename(folder, ended, error);
  if (!error) std::filesystem::remove_all(ended, error);
  if (!error) return OkStatus();
  return ErrnoStatus(error.value(), "remove " + folder.string());
}

}  // namespace fleet::ps
