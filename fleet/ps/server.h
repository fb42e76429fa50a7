// SPDX-License-Identifier: Apache-2.0

// A parameter server: tables behind connections.
//
//   PsServer server({.rank = 0, .num_servers = 2, .num_workers = 4});
//   server.AddSparse(TableId{0}, std::move(table));
//   RETURN_IF_ERROR(server.Listen(address));
//   return server.WaitUntilStopped(Deadline::Infinite());

#ifndef FLEET_PS_SERVER_H_
#define FLEET_PS_SERVER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/ps/gathering.h"
#include "fleet/ps/heartbeats.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/roster.h"
#include "fleet/ps/table_spec.h"
#include "fleet/ps/tables_writer.h"
#include "fleet/ps/wire.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

// A save that counts, or a model that was loaded.
struct LastSave {
  std::string folder;
  // See table::SaveManifest; 0: of the time before manifests.
  uint64_t number = 0;
  std::string job;
};

struct PsServerOptions {
  int32_t rank = 0;
  // Higher each time that this server is started within a job. 0: as Serving
  // finds it, or 1.
  uint64_t epoch = 0;
  uint32_t num_servers = 1;
  int num_workers = 1;
  channel::Trust trust;
  channel::Carrier carrier = channel::Carrier::kTcp;
  // Workers and servers on this host, which decides whether waits spin
  // (channel::SharedMemoryOptions).
  int processes_on_host = 0;
  // Workers of this host come by shared memory.
  bool shared_memory = true;
  std::chrono::milliseconds worker_grace = std::chrono::seconds(1);
  bool go_on_without_lost_workers = false;
  // A worker that gives no sign of life is named in the log after two seconds
  // (WatchWorkers). After this its connections are ended. Zero: never.
  std::chrono::milliseconds heartbeat_timeout{0};
  // Tables that workers describe (PsClient::CreateTables) begin with what this
  // save holds of them; where it is null, with the newest save in the folder
  // that is whole. Empty: they begin new.
  std::shared_ptr<const table::SavedModel> load_model;
  std::string load_folder;
  // The names of those that do; empty: all.
  std::vector<std::string> load_only;
  // Asked for the first values of a table that the folder has no save of; one
  // of the two is null. It may leave them as they are.
  std::function<Status(table::SparseTable* sparse, table::DenseTable* dense)>
      load_otherwise;
  // Told of every save that counts, and of models that were loaded.
  std::function<void(const LastSave& saved)> on_saved;
  // Told, before a worker's good-bye is answered, what RestoreGoodbyes takes.
  std::function<void(const std::string& goodbyes)> on_goodbye;
  // The job's name in saves: that of server 0 counts.
  std::string job;
  // Sparse tables that workers describe without a limit or a disk have this
  // one. Zero: none.
  uint64_t max_table_byte_size = 0;
  // Told about a worker when it comes, and by which way: "shared memory",
  // "tcp". Runs on its connection's thread.
  std::function<void(int worker, const char* way)> on_arrival;
  // What survives of acknowledged updates, and where it is written down; see
  // OpenLog.
  Durability durability = Durability::kNone;
  std::string log_folder;
  // Added to the folders of tables on disk.
  std::string disk_suffix;
  // The log is cut when it is larger; 0: than 128 MB, and than twice the
  // tables. What is in it is done again when the server is started again.
  uint64_t checkpoint_byte_size = 0;
  // Room of the disk that is taken for the log at a time. Tests, which begin
  // many logs, take less.
  uint64_t log_segment_byte_size = uint64_t{64} << 20;
  // Saves and checkpoints begin to be written so much later. For tests of slow
  // disks.
  std::chrono::milliseconds write_delay{0};
};

struct PsServerCounters {
  uint64_t num_requests = 0;
  uint64_t num_pulled_keys = 0;
  uint64_t num_pushed_keys = 0;
  uint64_t num_repeated = 0;  // pushes that had been applied before
};

// What the tables of a server hold.
struct PsServerHoldings {
  int num_tables = 0;
  uint64_t num_rows = 0;  // of sparse tables
  uint64_t byte_size = 0;
  uint64_t num_nonfinite = 0;   // see table::SparseTableStats
  uint64_t num_expired = 0;     // the same
  uint64_t save_byte_size = 0;  // beside byte_size, while a save is written
};

// A thread for each connection; what it asks for is done on that thread, with
// the locks of the shards. A request that is wrong gets an error as its reply
// and harms nobody else.
//
// A push is applied once, and a shrink ages rows once: a worker numbers what it
// sends on a lane, and what comes again after a connection was lost is answered
// and left out.
class PsServer final {
 public:
  explicit PsServer(const PsServerOptions& options);
  PsServer(const PsServer&) = delete;
  PsServer& operator=(const PsServer&) = delete;
  // Answers what is being worked on, within a second, then ends all
  // connections and joins the threads.
  ~PsServer();

  // InvalidArgument for an id that is taken.
  Status AddSparse(TableId id, std::unique_ptr<table::SparseTable> table);
  Status AddDense(TableId id, std::unique_ptr<table::DenseTable> table);
  // Makes the tables, and loads them from load_folder: all of them, or none.
  // Ok for those that were made from the same spec before; FailedPrecondition
  // when an id has another one.
  Status Create(std::span<const TableSpec> specs);
  Status Create(const TableSpec& spec) { return Create({&spec, 1}); }

  // Unless the durability is none: has the tables again that the log in
  // log_folder tells of, or its part of those that the logs of another number
  // of servers beside it tell of, and writes down what comes from here on.
  // Before the server listens.
  Status OpenLog();
  // Whether a log was left in the folder, and nothing is missing there because
  // it was being taken over.
  static bool LogIsWhole(const base::Path& folder);
  // Writes the tables beside the log, and cuts it, where it has become large.
  // Returns when that is done or given up. Serving asks ten times a second, by
  // a thread of its own.
  Status CheckpointIfDue();
  // Gives up saves and checkpoints that are being written, and begins no
  // other. Returns when they are written no further, which takes as long as
  // the disk for one block or the end of a file.
  void StopWriting();
  // The job has ended well: nobody needs the log any more.
  Status RemoveLog();

  // Takes the address and serves who comes there; "ip:0" is any free port.
  Status Listen(const channel::Address& address);
  // Serves who comes to a bound socket that was inherited, which becomes the
  // server's.
  Status ListenOn(int fd);
  const channel::Address& address() const { return address_; }

  // A connection inside this process. The identity is said by kHello, as on
  // any other.
  std::unique_ptr<channel::Channel> ConnectInProcess(const std::string& name);

  // Erases rows whose time to live is over (table::SparseTable::Expire), in the
  // tables that were last looked at an ExpiryPeriod before `now` or earlier.
  // Time begins for a table with the first call that sees it. During a save
  // nothing happens: call again. Returns how many were erased; of several
  // failures the first. Serving calls it every second.
  Result<uint64_t> ExpireRows(Deadline::TimePoint now);

  // Names workers that give no sign of life in the log, and those that are
  // back. To be called every kBeatInterval; Serving::Run does.
  void WatchWorkers(Deadline::TimePoint now);

  // See Roster::WaitUntilStopped: all workers said good-bye, or some are lost.
  Status WaitUntilStopped(Deadline deadline);
  Status WaitUntilAlone(Deadline deadline) {
    return roster_.WaitUntilAlone(deadline);
  }
  // Who was never here. Empty when all were.
  std::string NotSeenWorkers() const { return roster_.NotSeen(); }

  // Ends everything: waiters get `why`, connections end.
  void Abort(const Status& why);

  // What this server has of each worker's updates in its tables, sums of a step
  // that has not ended left out. For a save, and for a server that begins from
  // it within the same job, which takes it before it listens.
  std::string EncodeLedger(bool for_save = true);
  Status RestoreLedger(std::string_view bytes);
  // What workers had been acknowledged when they said good-bye, as on_goodbye
  // was told; after RestoreLedger. What is not in the ledger is lost. Nobody
  // waits for these workers.
  Status RestoreGoodbyes(std::string_view bytes);
  // "12 updates of emb of worker 1", which had said good-bye before this server
  // was started again without them. Empty: nothing.
  std::string lost_of_gone() const;

  int32_t rank() const { return options_.rank; }
  uint32_t num_servers() const { return options_.num_servers; }
  PsServerCounters counters() const;
  PsServerHoldings holdings();
  // Null when there is none.
  table::SparseTable* sparse(TableId id);
  table::DenseTable* dense(TableId id);

 private:
  static constexpr TableId kNoTable{~uint32_t{0}};

  struct Table {
    std::unique_ptr<table::SparseTable> sparse;
    std::unique_ptr<table::DenseTable> dense;
    std::string spec;  // what it was made from, if workers described it
    // What a delta of it would build on; nothing before its first save or load.
    // Written with saving_ held.
    std::optional<LastSave> saved;
  };

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
    std::map<TableId, Table> tables;
  };

  // Numbered requests of one incarnation of a worker. Outlives a connection, so
  // that a push that comes again is known.
  struct Lane {
    explicit Lane(uint64_t of) : incarnation(of) {}

    const uint64_t incarnation;
    base::Mutex mutex;  // held while a push is applied
    // A newer incarnation is here: nothing more is done for this one. Set under
    // the mutex, so that what is being applied is applied whole.
    std::atomic<bool> fenced = false;
    uint64_t last_sequence GUARDED_BY(mutex) = 0;
    // How the last numbered requests ended, each at its number's remainder.
    static constexpr size_t kNumOutcomes = 16;
    std::array<std::pair<uint64_t, Status>, kNumOutcomes> outcomes
        GUARDED_BY(mutex);
    // The values so far of a dense gradient that comes in parts.
    std::vector<float> gathered GUARDED_BY(mutex);
    // Whose gradient that is, and how many values of it are here.
    TableId parts_of GUARDED_BY(mutex) = kNoTable;
    uint64_t num_gathered GUARDED_BY(mutex) = 0;
    // The last request after which no part was missing.
    uint64_t whole_sequence GUARDED_BY(mutex) = 0;
    UpdateCounts applied GUARDED_BY(mutex);
    // Those of `applied` that wait as sums for the end of the step
    // `waiting_step`, and the last request before them.
    UpdateCounts waiting GUARDED_BY(mutex);
    uint64_t waiting_step GUARDED_BY(mutex) = 0;
    uint64_t before_waiting GUARDED_BY(mutex) = 0;
    // Room in the log for the requests of an update that follow; and why there
    // was none for one of them, so that those behind it are refused, too.
    base::LogFile::Hold held GUARDED_BY(mutex);
    Status no_room GUARDED_BY(mutex);
    // What the last request answered, if it took changes.
    std::vector<table::Key> taken GUARDED_BY(mutex);
    // The last pull that was counted.
    uint64_t last_pull GUARDED_BY(mutex) = 0;
    // What the last shrink answered.
    uint64_t num_erased GUARDED_BY(mutex) = 0;
  };

  struct Connection;

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
    std::shared_ptr<Lane> lane;
    uint32_t lane_number = 0;
    // The table of the last pull or update: most are of the same one.
    TableId table_id{};
    Table* table = nullptr;
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

  Status ListenLocally(const channel::MeetOptions& options);
  channel::MeetOptions HowToMeet() const;
  Status AcceptFrom(Result<std::unique_ptr<channel::Listener>> listener);
  void AcceptLoop(channel::Listener& listener);
  Status AcceptOne(channel::Listener& listener);
  void Adopt(std::unique_ptr<channel::Channel> channel, const char* way,
             const std::optional<channel::Identity>& peer);
  void Serve(Connection& connection);
  // The connection of kLifeLane has ended, which is how a worker whose
  // host vanished is known: the kernel goes on for a quarter of an hour with
  // those on which something is under way. They end here, unless the worker has
  // another one of that lane.
  void EndConnectionsOf(const Connection& life);
  // Waits until no request is being worked on.
  void WaitUntilIdle(Deadline deadline);
  Status ServeOne(Session& session);
  Status Reply(Session& session, uint64_t sequence, const Status& outcome,
               std::span<const std::byte> payload);

  // What to send back, or why not. The payload lies in the session.
  Result<std::span<const std::byte>> Handle(Session& session,
                                            const Request& request);
  Result<std::span<const std::byte>> HandleHello(Session& session,
                                                 const Request& request);
  // Refuses what lanes of older incarnations of the worker bring from here on,
  // and forgets them.
  void FenceOlder(int worker, uint64_t incarnation);
  // FailedPrecondition when the session's worker was started again.
  Status CheckFence(const Session& session) const;
  Result<std::span<const std::byte>> HandlePull(Session& session,
                                                const Request& request);
  // A pull that changes rows, or counts keys for an entry rule.
  Status PullCounted(Session& session, const Request& request,
                     std::span<const table::Key> keys,
                     table::PullOptions options, table::SparseTable& table);
  Result<std::span<const std::byte>> PullDense(Session& session,
                                               const Request& request);
  Status HandleUpdate(Session& session, const Request& request);
  // Whether a numbered request was done before, and then how it ended.
  static bool WasDone(const Lane& lane, uint64_t sequence, Status* outcome)
      REQUIRES(lane.mutex);
  static void NoteDone(Lane& lane, uint64_t sequence, const Status& outcome)
      REQUIRES(lane.mutex);
  void CountUpdate(int worker, Op op, TableId table, Lane& lane)
      REQUIRES(lane.mutex);
  // What it has of a lane, as a connection that is new hears it, or as a save
  // has it.
  LaneRecord RecordOf(int worker, uint32_t number, const Lane& lane,
                      bool for_save) REQUIRES(lane.mutex);
  std::vector<std::pair<std::pair<int, uint32_t>, std::shared_ptr<Lane>>>
  AllLanes() const;
  // With a log, what they did is left in `logged`; null: there is none.
  Status UpdateSparse(Session& session, const Request& request, Lane& lane,
                      Logged* logged) REQUIRES(lane.mutex);
  Status UpdateDense(int worker, const Request& request, Lane& lane,
                     Logged* logged) REQUIRES(lane.mutex);
  Status UpdateSection(int worker, Op op, const DenseSection& section,
                       std::span<const float> values, Lane& lane,
                       table::DenseTable& table, Logged* logged)
      REQUIRES(lane.mutex);
  Result<std::span<const std::byte>> HandleTakeChanges(Session& session,
                                                       const Request& request);
  Result<std::span<const std::byte>> HandleFinishStep(Session& session,
                                                      const Request& request);
  Result<Roster::Ended> HandleBarrier(const Session& session,
                                      const Request& request,
                                      const Roster::Complete& complete);
  Status HandleTurn(const Session& session, const RequestHead& head);
  void HandleGoodbye(const Session& session);
  Result<std::span<const std::byte>> HandleGather(Session& session,
                                                  const Request& request);
  // Applies the sums of the workers that came, of whom `num_active` had
  // gradients.
  Status FinishStep(const Roster::Came& came, int num_active,
                    const Request& request);
  // What waits of the worker for the end of its step is left out.
  void DropSums(int worker);
  void DropSums(int worker, Logged* logged) REQUIRES(whole_tables_);
  Result<std::span<const std::byte>> HandleBeginSave(Session& session,
                                                     const Request& request);
  // For the manifest: the ledger of this server, and the view.
  std::string DescribeCut();
  Result<std::span<const std::byte>> HandleCutSave(Session& session,
                                                   const Request& request);
  Result<std::span<const std::byte>> HandleSave(Session& session,
                                                const Request& request);
  Status HandleCommitSave(const Request& request);
  Status HandleEndSave(const Request& request);
  Result<std::span<const std::byte>> HandleBeginLoad(Session& session,
                                                     const Request& request);
  Status HandleLoad(const Request& request);
  Status HandleEndLoad(const Request& request);
  Status EndLoad(const Request& request);
  Status CheckSave(uint64_t token) const REQUIRES(saving_);
  void EndSaves(bool counts) REQUIRES(saving_);
  // The save that there is does not count, and is written no further.
  void DropSave() REQUIRES(saving_);
  // Waits for a save of another worker, which may end it and lives. One that
  // has no cut yet is dropped.
  Status WaitForOtherSave(uint64_t token, const Session& session,
                          Deadline deadline) REQUIRES(saving_);
  // Ends a checkpoint that is being written; waits for one that must be.
  Status EndCheckpoint(Deadline deadline) REQUIRES(saving_);
  // All tables as they are at this moment go to `folder`: a sparse one fills
  // its cut in `cuts`, where they are wanted.
  Result<std::shared_ptr<TablesWriter>> BeginWriting(
      const base::Path& folder, const table::SaveId& id, bool text,
      std::map<TableId, table::TableCut>* cuts) REQUIRES(saving_);
  Status TakeCuts(const base::Path& folder, const table::SaveId& id, bool text,
                  std::map<TableId, table::TableCut>* cuts,
                  std::vector<TablesWriter::Table>& tables) REQUIRES(saving_);
  // Whether a save is on its way. One of a worker that is gone is dropped.
  bool HasSave() REQUIRES(saving_);
  // Whether tables are being written.
  bool IsWriting();
  Status WaitUntilWritten(Deadline deadline);
  void SayWritten(const std::string& what, const TablesWriter& writer) const;
  Status CheckLoad(uint64_t token) const REQUIRES(saving_);
  // The save in `folder` on which a delta of all tables can build; 0: none, or
  // a new base is due.
  uint64_t BuildsOn(const std::string& folder) REQUIRES(saving_);
  // What a table begins with; null: nothing was saved.
  Result<const table::SavedModel*> ModelToBeginWith() REQUIRES(creating_);
  Result<std::span<const std::byte>> HandleShrink(Session& session,
                                                  const Request& request);
  Status HandleSetRate(const Request& request);
  Result<std::span<const std::byte>> HandleBeat(Session& session,
                                                const Request& request);
  Result<std::span<const std::byte>> HandleStats(Session& session,
                                                 const Request& request);
  Status TellRate(const std::string& name, double rate, Logged* logged);

  // See server_log.cc. Room for what an update may log, and what of its call
  // follows.
  Result<base::LogFile::Room> ReserveLog(const Request& request, Lane& lane)
      REQUIRES(lane.mutex);
  // Gives back the room for requests that do not follow.
  void ReleaseRoom(Lane& lane);
  // Room for a turn at every part of all tables, and for the end of a step.
  Result<base::LogFile::Room> ReserveForAll(uint64_t body);
  Status AppendLog(const Session& session, const RequestHead& head,
                   base::LogFile::Room room, const Logged& logged);
  // Two servers with one log would write over each other's records. Kept open,
  // the lock ends with the process; several may read a log that nobody writes.
  static Result<base::Descriptor> LockLog(const base::Path& folder, bool alone);
  // Has the tables that the log in the folder tells of, and changes nothing
  // there. Returns the number of the next segment.
  Result<uint64_t> Recover(const base::Path& folder);
  // See server_take_over.cc. Of how many servers, another number than this job
  // has, whole logs are beside this one's; 0: there are none.
  Result<uint32_t> FindOtherLogs() const;
  Status TakeOver(uint32_t num_others);
  // With the new log: from here on it is whole.
  Status FinishTakeOver();
  // When all servers have taken over what is theirs.
  Status RemoveOtherLogs() const;
  Status RestoreRounds(const std::map<std::string, LoggedRounds>& before,
                       std::span<const LoggedRequest> requests);
  static void AddToLedger(const LoggedRequest& request, Ledger& ledger);
  // `steps`: by sparse table, those that are over.
  Status RedoTurn(const LoggedRequest& request, const LoggedTurn& turn,
                  std::map<TableId, uint64_t>& steps);
  static Status RedoDense(const LoggedRequest& request, const LoggedTurn& turn,
                          table::DenseTable& table);
  Result<uint64_t> Expire(TableId id, table::SparseTable& table)
      REQUIRES(whole_tables_);
  bool CheckpointDue();
  // False, and none, while a save is being written, or when one begins; but not
  // where there must be a checkpoint. With tables that nobody sees yet.
  using NewTables = std::map<TableId, Table>;
  Result<bool> WriteCheckpoint(bool must, NewTables* added = nullptr);
  Result<bool> WriteCheckpoint(bool must, NewTables* added,
                               Checkpoint& checkpoint) REQUIRES(checkpointing_);
  Result<Checkpoint::Table> WriteTable(const base::Path& folder, TableId id,
                                       Table& table) REQUIRES(saving_);
  // Writes down that a round is over, before anyone is answered.
  Status LogRounds(LoggedRounds rounds);
  void NoteRounds(const LoggedRounds& rounds);
  // Sums that wait for the end of a step are in this segment of the log.
  void NoteSums(uint64_t segment);

  ServerInfo Describe() const;
  Result<Table*> Find(TableId id);
  // The table for a connection, which asks no other one's lock where it had the
  // table before.
  Result<Table*> Find(Session& session, TableId id);
  Result<table::DenseTable*> FindDense(TableId id);
  // An empty table.
  Result<Table> Make(const TableSpec& spec) const;
  // One that begins with what was saved, or with what load_otherwise gives it.
  // `has_values`: the spec alone does not tell what is in it.
  Result<Table> MakeAndLoad(const TableSpec& spec, bool* has_values)
      REQUIRES(creating_);
  // Whether there is one that was made from this spec.
  Result<bool> IsThere(const TableSpec& spec);
  Status AddTable(TableId id, Table table);
  // Tables are never removed.
  std::vector<Table*> AllTables();
  std::vector<std::pair<TableId, Table*>> TablesById();

  const PsServerOptions options_;
  const uint64_t epoch_;
  Roster roster_;
  Gathering gathering_{roster_};
  Heartbeats heartbeats_;
  channel::Address address_;
  std::string local_name_;

  std::vector<std::unique_ptr<channel::Listener>> listeners_;
  std::vector<std::jthread> acceptors_;

  base::Mutex creating_;  // held while a table is made and loaded
  std::shared_ptr<const table::SavedModel> load_model_ GUARDED_BY(creating_);
  // No request is larger: a part, or one row where rows are larger than that.
  std::atomic<uint64_t> max_request_ = 0;

  base::Descriptor log_lock_;
  std::unique_ptr<RequestLog> log_;  // null: nothing is logged
  base::Mutex checkpointing_;
  uint64_t num_checkpoints_ GUARDED_BY(checkpointing_) = 0;  // that were begun
  // After one that failed.
  Deadline next_checkpoint_ GUARDED_BY(checkpointing_) =
      Deadline::At(Deadline::TimePoint{});
  // Held by who changes all rows of a table, and while a checkpoint is cut.
  // Taken last: after saving_, a lane's and the roster's.
  base::Mutex whole_tables_;
  // The first segment with sums that may wait for the end of a step; 0: none.
  std::atomic<uint64_t> sums_since_ = 0;
  base::Mutex rounds_mutex_;
  std::map<std::string, LoggedRounds> rounds_ GUARDED_BY(rounds_mutex_);

  mutable base::Mutex mutex_;
  std::map<TableId, Table> tables_ GUARDED_BY(mutex_);
  std::map<std::string, double> rates_ GUARDED_BY(mutex_);  // that were told
  bool aborted_ GUARDED_BY(mutex_) = false;
  base::CondVar aborting_;
  std::list<Connection> connections_ GUARDED_BY(mutex_);
  // By worker and number, of the newest incarnation of each.
  std::map<std::pair<int, uint32_t>, std::shared_ptr<Lane>> lanes_
      GUARDED_BY(mutex_);
  std::map<int, uint64_t> newest_ GUARDED_BY(mutex_);  // incarnations
  std::vector<Goodbye> goodbyes_ GUARDED_BY(mutex_);
  std::string lost_of_gone_ GUARDED_BY(mutex_);

  // Workers without gradients in the step that is being finished, and whether
  // the step before had only such.
  base::Mutex idle_mutex_;
  std::set<int> idle_workers_ GUARDED_BY(idle_mutex_);
  bool all_idle_ GUARDED_BY(idle_mutex_) = false;

  // When ExpireRows looked at a table.
  base::Mutex expiring_;
  std::map<const Table*, Deadline::TimePoint> looked_at_ GUARDED_BY(expiring_);

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

  // By worker: steps of it that began. See Lane::waiting_step.
  std::vector<std::atomic<uint64_t>> num_steps_;

  std::atomic<uint64_t> num_requests_ = 0;
  std::atomic<uint64_t> num_pulled_keys_ = 0;
  std::atomic<uint64_t> num_pushed_keys_ = 0;
  std::atomic<uint64_t> num_repeated_ = 0;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SERVER_H_
