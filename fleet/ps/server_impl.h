// SPDX-License-Identifier: Apache-2.0

// What a server consists of. Private to ps/: server.h is the contract. Its
// tables (server_tables.h), the lanes of its workers (worker_lanes.h), who is
// here (roster.h), its log (request_log.h) and what is being written
// (tables_writer.h) have state of their own; here is what joins them, and
// server_*.cc have the functions, in the order in which they stand here.

#ifndef FLEET_PS_SERVER_IMPL_H_
#define FLEET_PS_SERVER_IMPL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/log_file.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/ps/gathering.h"
#include "fleet/ps/heartbeats.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/roster.h"
#include "fleet/ps/server.h"
#include "fleet/ps/server_tables.h"
#include "fleet/ps/table_spec.h"
#include "fleet/ps/tables_writer.h"
#include "fleet/ps/wire.h"
#include "fleet/ps/worker_lanes.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

// Mutexes are taken in this order: creating_, checkpointing_, saving_, one of a
// lane, the roster's, whole_tables_, mutex_ and those of the parts.
class PsServer::Impl final {
 public:
  explicit Impl(const PsServerOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

 private:
  friend class PsServer;

  // A save that a worker has begun and not ended. A server that is started
  // again has forgotten it, and refuses to go on with it.
  struct Saving {
    uint64_t token = 0;
    int worker = -1;  // whose it is
    uint64_t incarnation = 0;
    std::string folder;
    // Null before the cut.
    std::shared_ptr<TablesWriter> writer;
    std::string cut_answer;
    std::string manifest;  // at server 0, as far as it came
    bool counts = false;   // it is written
  };
  // A load under way: tables that are filled beside those that serve.
  struct Loading {
    uint64_t token = 0;
    table::SavedModel model;
    std::map<TableId, ServerTable> tables;
  };

  struct Connection {
    std::unique_ptr<channel::Channel> channel;
    const char* way = "";  // see PsServerOptions::on_arrival
    // Who is at the other end, where a hello has shown it.
    std::optional<channel::Identity> peer;
    std::atomic<bool> ended = false;
    // As kHello said it; written under mutex_.
    int worker = -1;
    uint64_t incarnation = 0;
    bool is_life = false;  // see kLifeLane
    std::jthread thread;   // last: it uses all of the above
  };

  // What goes into the log of a request that is being done.
  struct Logged {
    std::vector<LoggedTurn> turns;
    std::vector<DenseSection> sections;  // that are whole
    std::vector<std::span<const std::byte>> body;
    // Gradients that came in parts.
    std::list<std::vector<float>> gathered;
    table::Turns of_table;  // of the call that runs

    void Clear() {
      turns.clear();
      sections.clear();
      body.clear();
      gathered.clear();
    }
    // Where a call adds its turns; then Take.
    table::Turns* Begin() {
      of_table.clear();
      return &of_table;
    }
    void Take(TableId table, uint32_t num_shards, uint32_t section) {
      AddTurns(table, num_shards, section, of_table, turns);
    }
  };

  // One connection, as its thread sees it.
  struct Session {
    Connection* connection = nullptr;
    channel::Channel* channel = nullptr;
    int worker = -1;  // -1 before kHello
    uint64_t incarnation = 0;
    std::shared_ptr<WorkerLane> lane;
    uint32_t lane_number = 0;
    // The table of the last pull or update: most are of the same one.
    TableId table_id{};
    ServerTable* table = nullptr;
    std::vector<std::byte> request;
    std::vector<float> rows;
    std::string text;
    Logged logged;
  };
  // A request and where its parts are.
  struct Request {
    RequestHead head;
    std::span<const std::byte> body;
  };
  // What to send back, or why not. The bytes lie in the session.
  using Answer = Result<std::span<const std::byte>>;

  // server.cc: connections.
  channel::MeetOptions HowToMeet() const;
  Status Listen(const channel::Address& address);
  Status ListenOn(int fd);
  Status ListenLocally(const channel::MeetOptions& options);
  Status AcceptFrom(Result<std::unique_ptr<channel::Listener>> listener);
  void AcceptLoop(channel::Listener& listener);
  Status AcceptOne(channel::Listener& listener);
  std::unique_ptr<channel::Channel> ConnectInProcess(const std::string& name);
  void Adopt(std::unique_ptr<channel::Channel> channel, const char* way,
             const std::optional<channel::Identity>& peer);
  void Abort(const Status& why);
  Status WaitUntilStopped(Deadline deadline);
  PsServerCounters counters() const;
  void Serve(Connection& connection);
  // The connection of kLifeLane has ended, which is how a worker whose
  // host vanished is known: the kernel goes on for a quarter of an hour with
  // those on which something is under way. They end here, unless the worker has
  // another one of that lane.
  void EndConnectionsOf(const Connection& life);
  void WatchWorkers(Deadline::TimePoint now);
  Status ServeOne(Session& session);
  // Waits until no request is being worked on.
  void WaitUntilIdle(Deadline deadline);
  Status Reply(Session& session, uint64_t sequence, const Status& outcome,
               std::span<const std::byte> payload);
  ServerInfo Describe() const;

  // server_create.cc: tables begin, and their rows end.
  using NewTables = std::map<TableId, ServerTable>;
  Status Create(std::span<const TableSpec> specs);
  // One that begins with what was saved, or with what load_otherwise gives it.
  // `has_values`: the spec alone does not tell what is in it.
  Result<ServerTable> MakeAndLoad(const TableSpec& spec, bool* has_values)
      REQUIRES(creating_);
  // An empty table.
  Result<ServerTable> Make(const TableSpec& spec) const;
  // What a table begins with; null: nothing was saved.
  Result<const table::SavedModel*> ModelToBeginWith() REQUIRES(creating_);
  Result<uint64_t> ExpireRows(Deadline::TimePoint now);
  Result<uint64_t> Expire(TableId id, table::SparseTable& table)
      REQUIRES(whole_tables_);

  // server_requests.cc: who a request comes from, and those that change no
  // rows.
  // The table for a connection, which asks no other one's lock where it had the
  // table before.
  Result<ServerTable*> Find(Session& session, TableId id);
  Answer Handle(Session& session, const Request& request);
  // FailedPrecondition when the session's worker was started again.
  Status CheckFence(const Session& session) const;
  // Refuses what lanes of older incarnations of the worker bring from here on,
  // and forgets them and their sums. What DropSums returns.
  Status FenceOlder(int worker, uint64_t incarnation);
  Answer HandleHello(Session& session, const Request& request);
  Result<Roster::Ended> HandleBarrier(const Session& session,
                                      const Request& request,
                                      const Roster::Complete& complete);
  Status HandleTurn(const Session& session, const RequestHead& head);
  void HandleGoodbye(const Session& session);
  Answer HandleGather(Session& session, const Request& request);
  Status HandleSetRate(const Request& request);
  Status TellRate(const std::string& name, double rate, Logged* logged);
  Answer HandleBeat(Session& session, const Request& request);
  Answer HandleStats(Session& session, const Request& request);
  std::string EncodeLedger(bool for_save = true);
  Status RestoreLedger(std::string_view bytes);
  Status RestoreGoodbyes(std::string_view bytes);

  // server_updates.cc: rows and values. With a log, what an update did is left
  // in `logged`; null: there is none.
  Answer HandlePull(Session& session, const Request& request);
  // A pull that changes rows, or counts keys for an entry rule.
  Status PullCounted(Session& session, const Request& request,
                     std::span<const table::Key> keys,
                     table::PullOptions options, table::SparseTable& table);
  Answer PullDense(Session& session, const Request& request);
  Status HandleUpdate(Session& session, const Request& request);
  // Writes down that an update has failed, and why, in its room.
  Status LogFailure(const Session& session, const Request& request,
                    const Status& outcome, base::LogFile::Room room);
  Status UpdateSparse(Session& session, const Request& request,
                      WorkerLane& lane, Logged* logged) REQUIRES(lane.mutex);
  Status UpdateDense(int worker, const Request& request, WorkerLane& lane,
                     Logged* logged) REQUIRES(lane.mutex);
  Status UpdateSection(int worker, Op op, const DenseSection& section,
                       std::span<const float> values, WorkerLane& lane,
                       table::DenseTable& table, Logged* logged)
      REQUIRES(lane.mutex);
  Answer HandleTakeChanges(Session& session, const Request& request);
  Answer HandleFinishStep(Session& session, const Request& request);
  // Applies the sums of the workers that came, of whom `num_active` had
  // gradients.
  Status FinishStep(const Roster::Came& came, int num_active,
                    const Request& request);
  // What waits of the worker for the end of its step is left out, also where
  // the log cannot tell of it: then why not.
  Status DropSums(int worker);
  void DropSums(int worker, Logged* logged) REQUIRES(whole_tables_);
  Answer HandleShrink(Session& session, const Request& request);

  // server_saves.cc: saves and loads of all tables.
  // The save in `folder` on which a delta of all tables can build; 0: none, or
  // a new base is due.
  uint64_t BuildsOn(const std::string& folder) REQUIRES(saving_);
  // The save that there is does not count, and is written no further.
  void DropSave() REQUIRES(saving_);
  // Waits for a save of another worker, which may end it and lives. One that
  // has no cut yet is dropped.
  Status WaitForOtherSave(uint64_t token, const Session& session,
                          Deadline deadline) REQUIRES(saving_);
  // Ends a checkpoint that is being written; waits for one that must be.
  Status EndCheckpoint(Deadline deadline) REQUIRES(saving_);
  void StopWriting();
  // Whether a save is on its way. One of a worker that is gone is dropped.
  bool HasSave() REQUIRES(saving_);
  // Whether tables are being written.
  bool IsWriting();
  Status WaitUntilWritten(Deadline deadline);
  // All tables as they are at this moment go to `folder`. Each fills its cut in
  // `cuts`, where they are wanted.
  Result<std::shared_ptr<TablesWriter>> BeginWriting(
      const base::Path& folder, const table::SaveId& id, bool text,
      std::map<TableId, table::TableCut>* cuts) REQUIRES(saving_);
  Status TakeCuts(const base::Path& folder, const table::SaveId& id, bool text,
                  std::map<TableId, table::TableCut>* cuts,
                  std::vector<TablesWriter::Table>& tables) REQUIRES(saving_);
  void SayWritten(const std::string& what, const TablesWriter& writer) const;
  Answer HandleBeginSave(Session& session, const Request& request);
  Status CheckSave(uint64_t token) const REQUIRES(saving_);
  // For the manifest: the ledger of this server, and the view.
  std::string DescribeCut();
  Answer HandleCutSave(Session& session, const Request& request);
  Answer HandleSave(Session& session, const Request& request);
  Status HandleCommitSave(const Request& request);
  Status HandleEndSave(const Request& request);
  Answer HandleBeginLoad(Session& session, const Request& request);
  Status CheckLoad(uint64_t token) const REQUIRES(saving_);
  Status HandleLoad(const Request& request);
  Status HandleEndLoad(const Request& request);
  Status EndLoad(const Request& request);

  // server_log.cc: what is written down.
  // Room for what an update may log, and what of its call follows.
  Result<base::LogFile::Room> ReserveLog(const Request& request,
                                         WorkerLane& lane) REQUIRES(lane.mutex);
  // Room for a turn at every part of all tables, and for the end of a step.
  Result<base::LogFile::Room> ReserveForAll(uint64_t body);
  Status AppendLog(const Session& session, const RequestHead& head,
                   base::LogFile::Room room, const Logged& logged);
  void NoteRounds(const LoggedRounds& rounds);
  // Writes down that a round is over, before anyone is answered.
  Status LogRounds(const LoggedRounds& rounds);
  // Sums that wait for the end of a step are in this segment of the log.
  void NoteSums(uint64_t segment);
  // Two servers with one log would write over each other's records. Kept open,
  // the lock ends with the process; several may read a log that nobody writes.
  static Result<base::Descriptor> LockLog(const base::Path& folder, bool alone);
  Status OpenLog();
  Status RemoveLog();
  bool CheckpointDue();
  Status CheckpointIfDue();
  // False, and none, while a save is being written, or when one begins; but not
  // where there must be a checkpoint. With tables that nobody sees yet.
  Result<bool> WriteCheckpoint(bool must, NewTables* added = nullptr);
  Result<bool> WriteCheckpoint(bool must, NewTables* added,
                               Checkpoint& checkpoint) REQUIRES(checkpointing_);
  Result<Checkpoint::Table> WriteTable(const base::Path& folder, TableId id,
                                       ServerTable& table) REQUIRES(saving_);

  // server_recovery.cc: what was written down is done again.
  // Has the tables that the log in the folder tells of, and changes nothing
  // there. Returns the number of the next segment.
  Result<uint64_t> Recover(const base::Path& folder);
  Status RestoreRounds(const std::map<std::string, LoggedRounds>& before,
                       std::span<const LoggedRequest> requests);
  static void AddToLedger(const LoggedRequest& request, Ledger& ledger);
  // `steps`: by sparse table, those that are over.
  Status RedoTurn(const LoggedRequest& request, const LoggedTurn& turn,
                  std::map<TableId, uint64_t>& steps);
  static Status RedoDense(const LoggedRequest& request, const LoggedTurn& turn,
                          table::DenseTable& table);

  // server_take_over.cc: logs of another number of servers.
  // The number of servers, another one than this job's, whose whole logs lie
  // beside this server's; 0: there are none.
  Result<uint32_t> FindOtherLogs() const;
  // When all servers have taken over what is theirs.
  Status RemoveOtherLogs() const;
  Status TakeOver(uint32_t num_others);
  // With the new log: from here on it is whole.
  Status FinishTakeOver();

  const PsServerOptions options_;
  const uint64_t epoch_;
  ServerTables tables_;
  WorkerLanes lanes_;
  Roster roster_;
  Gathering gathering_{roster_};
  Heartbeats heartbeats_;
  channel::Address address_;
  std::string local_name_;

  std::vector<std::unique_ptr<channel::Listener>> listeners_;
  std::vector<std::jthread> acceptors_;

  base::Mutex creating_;  // held while tables are made and loaded
  std::shared_ptr<const table::SavedModel> load_model_ GUARDED_BY(creating_);

  base::Descriptor log_lock_;
  std::unique_ptr<RequestLog> log_;  // null: nothing is logged
  base::Mutex checkpointing_;
  uint64_t num_checkpoints_ GUARDED_BY(checkpointing_) = 0;  // that were begun
  // After one that failed.
  Deadline next_checkpoint_ GUARDED_BY(checkpointing_) =
      Deadline::At(Deadline::TimePoint{});
  // Held by who changes all rows of a table, and while a checkpoint is cut.
  base::Mutex whole_tables_;
  // The first segment with sums that may wait for the end of a step; 0: none.
  std::atomic<uint64_t> sums_since_ = 0;
  base::Mutex rounds_mutex_;
  std::map<std::string, LoggedRounds> rounds_ GUARDED_BY(rounds_mutex_);

  mutable base::Mutex mutex_;
  bool aborted_ GUARDED_BY(mutex_) = false;
  base::CondVar aborting_;
  std::list<Connection> connections_ GUARDED_BY(mutex_);

  // Workers without gradients in the step that is being finished, and whether
  // the step before had only such.
  base::Mutex idle_mutex_;
  std::set<int> idle_workers_ GUARDED_BY(idle_mutex_);
  bool all_idle_ GUARDED_BY(idle_mutex_) = false;

  // When ExpireRows looked at a table.
  base::Mutex expiring_;
  std::map<const ServerTable*, Deadline::TimePoint> looked_at_
      GUARDED_BY(expiring_);

  base::Mutex saving_;  // held while a table is read
  base::CondVar save_ended_;
  std::optional<Saving> save_ GUARDED_BY(saving_);
  // The writer of a checkpoint while there is one, and whether it must be.
  std::shared_ptr<TablesWriter> checkpoint_writer_ GUARDED_BY(saving_);
  bool checkpoint_must_ GUARDED_BY(saving_) = false;
  bool writing_stopped_ GUARDED_BY(saving_) = false;
  std::optional<Loading> load_ GUARDED_BY(saving_);
  // The last that ended: its answer may have been lost.
  uint64_t ended_save_ GUARDED_BY(saving_) = 0;
  uint64_t ended_load_ GUARDED_BY(saving_) = 0;

  // Requests whose reply is not sent yet. Who counts down while the server is
  // ending notifies idle_.
  std::atomic<int> num_busy_ = 0;
  std::atomic<bool> ending_ = false;
  base::CondVar idle_;

  std::atomic<uint64_t> num_requests_ = 0;
  std::atomic<uint64_t> num_pulled_keys_ = 0;
  std::atomic<uint64_t> num_pushed_keys_ = 0;
  std::atomic<uint64_t> num_repeated_ = 0;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SERVER_IMPL_H_
