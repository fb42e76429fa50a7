// SPDX-License-Identifier: Apache-2.0

// What a server writes down of its requests, so that a server that is started
// again does them once more and has the same tables, to the bit. A request is
// logged when it is done, with the turns that it had at the parts of tables
// (table/turn.h), and before it is answered. docs/table_format.md has the
// bytes.
//
//   ASSIGN_OR_RETURN(auto room, log.Reserve(...));   // the disk has room for
//   it
//   ... do it, with turns ...
//   RETURN_IF_ERROR(log.Append(std::move(room), request));

#ifndef FLEET_PS_REQUEST_LOG_H_
#define FLEET_PS_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fleet/base/log_file.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/ps/durability.h"
#include "fleet/ps/roster.h"
#include "fleet/ps/wire.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/turn.h"

namespace fleet::ps {

// A turn of a request at a part of a table.
struct LoggedTurn {
  TableId table{};
  uint32_t part = 0;
  // What of the request it was: a section of dense tables, the end of steps
  // (kStepEnds); 0 elsewhere.
  uint32_t section = 0;
  // Shards of the table; 0: it is dense.
  uint32_t num_shards = 0;
  uint64_t number = 0;
  uint64_t step = 0;
};
static_assert(sizeof(LoggedTurn) == 32 && base::Plain<LoggedTurn>);
inline constexpr uint32_t kStepEnds = ~uint32_t{0};

// Where a barrier is, in records of rounds that are over and in checkpoints.
struct LoggedRounds {
  std::string name;
  Roster::Rounds rounds;
  bool idle = false;  // of steps: nobody had gradients in the last
  std::vector<std::string> gathered;  // what the last round gave, if it did
};
std::string Encode(const LoggedRounds& rounds);
Result<LoggedRounds> DecodeLoggedRounds(std::string_view bytes);

// What the record of a step's end holds.
struct LoggedStep {
  LoggedRounds rounds;  // of the barrier
  uint32_t num_active = 1;
  std::vector<int> later;    // workers whose sums stay
  std::vector<int> dropped;  // workers whose sums are left out
};
std::string Encode(const LoggedStep& step);
Result<LoggedStep> DecodeLoggedStep(std::span<const std::byte> body);

struct LoggedHead {
  uint64_t epoch = 0;  // of the server
  uint64_t incarnation = 0;
  uint32_t worker = 0;
  uint32_t lane = 0;
  uint64_t num_turns = 0;
};
static_assert(sizeof(LoggedHead) == 32 && base::Plain<LoggedHead>);

struct LoggedRequest {
  LoggedHead head;
  RequestHead request;
  std::span<const LoggedTurn> turns;
  std::span<const std::byte> body;
};
// DataLoss when the bytes are no request.
Result<LoggedRequest> DecodeLogged(std::span<const std::byte> record);

// The turns that a table gave, as turns of a request.
void AddTurns(TableId table, uint32_t num_shards, uint32_t section,
              const table::Turns& from, std::vector<LoggedTurn>& to);

// Calls `redo` for the turns of all requests in an order that gives the tables
// that the server had: epoch by epoch, and at each part in the order of its
// turns. Turns up to those of `done`, by table and part, which are of epoch
// `done_epoch`, are left out, and so are those of earlier epochs, but for sums
// of a step that had not ended. A request
// with keys is done turn by turn; one without keys that had a turn at every
// shard of a sparse table once, with its first turn there, when the turns
// before are done. A turn that is missing is that of a request which was not
// logged when the server died, and so not acknowledged, or which failed.
using PartOfTable = std::pair<TableId, uint32_t>;
Status Redo(
    std::span<const LoggedRequest> requests, uint64_t done_epoch,
    const std::map<PartOfTable, uint64_t>& done,
    const std::function<Status(const LoggedRequest&, const LoggedTurn&)>& redo);

// What a lane may be asked again by a worker that has no answer yet.
struct LaneAnswers {
  uint32_t worker = 0;
  uint32_t lane = 0;
  uint64_t incarnation = 0;
  // Of the last request: what it took, or how many rows it erased.
  uint64_t sequence = 0;
  std::vector<table::Key> taken;
  uint64_t num_erased = 0;
  // The last pull that was counted.
  uint64_t last_pull = 0;
  // Updates that failed, by their sequence.
  std::map<uint64_t, Status> failed;
};
// The answers that the requests of a log add to those of a checkpoint.
Result<std::vector<LaneAnswers>> AddAnswers(
    std::vector<LaneAnswers> answers, std::span<const LoggedRequest> requests);

// Where a server begins again: its tables as files, and from which segment of
// the log on requests may be missing in them.
struct Checkpoint {
  struct Table {
    TableId id{};
    std::string spec;
    table::SaveList list;
    table::TableCut cut;
  };
  uint64_t epoch = 0;
  uint64_t segment = 1;
  std::string folder;  // of the files, in that of the log
  std::string ledger;
  std::vector<LaneAnswers> answers;
  std::map<std::string, double> rates;         // that were told
  std::map<std::string, LoggedRounds> rounds;  // by barrier
  std::vector<Table> tables;
};
inline constexpr char kCheckpointFile[] = "checkpoint";
std::string Encode(const Checkpoint& checkpoint);
Result<Checkpoint> DecodeCheckpoint(std::string_view bytes);
// That of a log's folder; an empty one where there is none.
Result<Checkpoint> ReadCheckpoint(const base::Path& folder);

// The folder of a server's log, among those of the others: "server.0-of-2".
std::string LogFolderName(uint32_t rank, uint32_t num_servers);
// Whether a server has left something in its log's folder.
bool LogHolds(const base::Path& folder);

// Thread-safe.
class RequestLog final {
 public:
  // Goes on behind what is in the folder. `on_failure` is told, once and by a
  // thread of the log, when bytes cannot be written or brought to the disk:
  // what is there is not known any more, so the server has to end.
  static Result<std::unique_ptr<RequestLog>> Open(
      const base::LogOptions& options, Durability durability,
      std::function<void(const Status&)> on_failure);
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;
  ~RequestLog();

  // Unavailable, naming the file, when the disk is full, which it is not for
  // what `hold` has.
  Result<base::LogFile::Room> Reserve(size_t num_turns, uint64_t body,
                                      base::LogFile::Hold* hold = nullptr);
  // How many bytes a request without turns may have in it.
  static uint64_t BodyOf(const base::LogFile::Room& room);
  // Room for so many requests that follow.
  Result<base::LogFile::Hold> HoldRoom(uint64_t num_requests, size_t num_turns,
                                       uint64_t body);
  // `body` is the bytes of all of its parts.
  Status Append(base::LogFile::Room room, LoggedHead head,
                const RequestHead& request, std::span<const LoggedTurn> turns,
                std::span<const std::span<const std::byte>> body);
  // Returns when what was appended is as safe as the durability promises.
  Status Commit();

  // Append or Commit has failed, or a write in the background.
  bool has_failed() const { return has_failed_ || file_->has_failed(); }

  base::LogFile& file() { return *file_; }
  const base::Path& folder() const { return folder_; }

 private:
  RequestLog(const base::Path& folder, Durability durability)
      : folder_(folder), durability_(durability) {}

  // Has the thread tell of a failure.
  Status Noted(const Status& outcome);
  void Watch(const std::function<void(const Status&)>& on_failure);

  const base::Path folder_;
  const Durability durability_;
  std::unique_ptr<base::LogFile> file_;
  base::Mutex mutex_;
  base::CondVar ending_;
  bool ends_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
  std::atomic<bool> has_failed_ = false;
  std::jthread watching_;  // last: it uses all of the above
};

}  // namespace fleet::ps

#endif  // FLEET_PS_REQUEST_LOG_H_
