// SPDX-License-Identifier: Apache-2.0

// A parameter server: tables behind connections.
//
//   PsServer server({.rank = 0, .num_servers = 2, .num_workers = 4});
//   server.AddSparse(TableId{0}, std::move(table));
//   RETURN_IF_ERROR(server.Listen(address));
//   return server.WaitUntilStopped(Deadline::Infinite());

#ifndef FLEET_PS_SERVER_H_
#define FLEET_PS_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/ps/durability.h"
#include "fleet/ps/table_spec.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

using base::Deadline;

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
  const channel::Address& address() const;

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
  // Ok when no worker has a connection. DeadlineExceeded names those that have.
  Status WaitUntilAlone(Deadline deadline);
  // Who was never here. Empty when all were.
  std::string NotSeenWorkers() const;

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

  int32_t rank() const;
  uint32_t num_servers() const;
  PsServerCounters counters() const;
  PsServerHoldings holdings();
  // Null when there is none.
  table::SparseTable* sparse(TableId id);
  table::DenseTable* dense(TableId id);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SERVER_H_
