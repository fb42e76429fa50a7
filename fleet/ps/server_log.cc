// SPDX-License-Identifier: Apache-2.0

// What a server logs of its requests, and the checkpoints beside the log.

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <utility>

#include "fleet/base/file_name.h"
#include "fleet/ps/server_impl.h"

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

}  // namespace

Result<base::LogFile::Room> PsServer::Impl::ReserveLog(const Request& request,
                                                       WorkerLane& lane) {
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
    ASSIGN_OR_RETURN(const ServerTable* const table, tables_.Find(head.table));
    if (table->sparse == nullptr) return InvalidArgument("no sparse table");
    num_turns = most_turns = table->sparse->num_shards() + 1;
  } else {
    // A gradient that comes in parts is logged with the last, as one.
    body = 0;
    for (const DenseSection& section :
         base::ByteReader(request.body).TakeSpan<DenseSection>(head.count)) {
      if ((section.flags & kFlagLast) == 0) continue;
      ASSIGN_OR_RETURN(table::DenseTable* const table,
                       tables_.FindDense(section.table));
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

Result<base::LogFile::Room> PsServer::Impl::ReserveForAll(uint64_t body) {
  size_t num_turns = 0;
  for (const ServerTable* table : tables_.All()) {
    num_turns += table->sparse != nullptr ? table->sparse->num_shards() + 1 : 2;
  }
  return log_->Reserve(num_turns, body);
}

Status PsServer::Impl::AppendLog(const Session& session,
                                 const RequestHead& head,
                                 base::LogFile::Room room,
                                 const Logged& logged) {
  LoggedHead of;
  of.epoch = epoch_;
  of.incarnation = session.incarnation;
  of.worker = static_cast<uint32_t>(session.worker);
  of.lane = session.lane_number;
  return log_->Append(std::move(room), of, head, logged.turns, logged.body);
}

void PsServer::Impl::NoteRounds(const LoggedRounds& rounds) {
  base::MutexLock lock(rounds_mutex_);
  rounds_[rounds.name] = rounds;
}

Status PsServer::Impl::LogRounds(const LoggedRounds& rounds) {
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

void PsServer::Impl::NoteSums(uint64_t segment) {
  uint64_t since = sums_since_;
  while ((since == 0 || segment < since) &&
         !sums_since_.compare_exchange_weak(since, segment)) {
  }
}

Result<base::Descriptor> PsServer::Impl::LockLog(const base::Path& folder,
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

Status PsServer::Impl::OpenLog() {
  if (options_.durability == Durability::kNone) return OkStatus();
  const base::Path folder = options_.log_folder;
  RETURN_IF_ERROR(base::MakeFolders(folder));
  ASSIGN_OR_RETURN(log_lock_, LockLog(folder, true));
  uint32_t num_others = 0;
  uint64_t next = 1;
  if (PsServer::LogIsWhole(folder)) {
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

Status PsServer::Impl::RemoveLog() {
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

bool PsServer::Impl::CheckpointDue() {
  if (log_ == nullptr || log_->file().byte_size() == 0) return false;
  const uint64_t byte_size = log_->file().disk_size();
  const uint64_t limit = options_.checkpoint_byte_size;
  if (limit != 0) return byte_size > limit;
  // Asks all shards.
  return byte_size > kCheckpointByteSize &&
         byte_size > 2 * tables_.holdings().byte_size;
}

Status PsServer::Impl::CheckpointIfDue() {
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

Result<bool> PsServer::Impl::WriteCheckpoint(bool must, NewTables* added) {
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

Result<bool> PsServer::Impl::WriteCheckpoint(bool must, NewTables* added,
                                             Checkpoint& checkpoint) {
  // From here on: requests of older segments are done, and their lanes and
  // tables have them. Of newer ones the turns tell.
  ASSIGN_OR_RETURN(checkpoint.segment,
                   log_->file().Rotate(Deadline::After(kTimeToFinish)));
  checkpoint.folder = base::Concat("base.", epoch_, ".", ++num_checkpoints_);
  checkpoint.ledger = EncodeLedger(false);
  checkpoint.answers = lanes_.Answers();
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
    checkpoint.rates = tables_.rates();
    for (const auto& [id, table] : tables_.ById()) {
      Checkpoint::Table begun;
      begun.id = id;
      begun.spec = table->spec;
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
      tables_.EndSaves(false);
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

Result<Checkpoint::Table> PsServer::Impl::WriteTable(const base::Path& folder,
                                                     TableId id,
                                                     ServerTable& table) {
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
    return written;
  }
  ASSIGN_OR_RETURN(table::WrittenTable values,
                   table.dense->WriteSave(folder, save, &written.cut));
  written.list = std::move(values.list);
  return written;
}

}  // namespace fleet::ps
