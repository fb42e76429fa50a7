// SPDX-License-Identifier: Apache-2.0

// A worker's end: tables on servers, as if they were here.
//
//   ASSIGN_OR_RETURN(auto client,
//                    PsClient::Connect(addresses, options, deadline));
//   RETURN_IF_ERROR(client->Pull(TableId{0}, keys, rows, {}, deadline));
//
// Keys are sent once each, to the server that has them, in parts that follow
// each other without waiting; rows come straight into the caller's memory where
// no key occurs twice and one server has them all.
//
// A failure names worker, call, table, number of keys, server and its address:
//   worker 3: pull emb (4096 keys) from server 1 at 10.0.0.7:9000: ...
// Unavailable: a server is gone; DeadlineExceeded: it is late. A call that
// failed may have been done in part. DataLoss: a server was started again and
// lacks updates that it had acknowledged; the message says how many of which
// tables, and no call does anything from then on (PsClientOptions). Else the
// codes are the table's.

#ifndef FLEET_PS_CLIENT_H_
#define FLEET_PS_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/ps/connect.h"
#include "fleet/ps/key_stream.h"
#include "fleet/ps/lanes.h"
#include "fleet/ps/roster.h"
#include "fleet/ps/sum_stream.h"
#include "fleet/ps/table_spec.h"
#include "fleet/ps/wire.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

struct PsClientOptions {
  int32_t worker = 0;
  channel::Trust trust;
  channel::Carrier carrier = channel::Carrier::kTcp;
  // When the connection to a server ends inside a call: for how long to try to
  // get it back, and then go on where the call stood. Zero: fail at once.
  std::chrono::milliseconds reconnect_for{0};
  // Parts of a call that may be under way to one server.
  size_t max_inflight = 4;
  // Servers of this host are reached by shared memory.
  bool shared_memory = true;
  base::InterruptCheck interrupt;
  // When a server that was started again lacks updates that it acknowledged.
  OnDataLoss on_data_loss = OnDataLoss::kFail;
  // A server that gives no sign of life is named in the log after two seconds.
  // After this it counts as lost, as if its connections had ended. Zero: never.
  std::chrono::milliseconds heartbeat_timeout{0};
};

// Values of a dense table: a gradient on its way there, and where values go.
struct DenseGradient {
  TableId table{};
  std::span<const float> values;
};
struct DenseValues {
  TableId table{};
  std::span<float> values;
};

// Thread-safe: each call has connections of its own while it runs, and as many
// are made as calls run at a time.
class PsClient final {
 public:
  // Waits until every server is there. FailedPrecondition when they do not fit
  // together: another rank or number of servers, other tables.
  static Result<std::unique_ptr<PsClient>> Connect(
      const std::vector<channel::Address>& servers,
      const PsClientOptions& options, Deadline deadline);
  // Connects by connections from elsewhere, say PsServer::ConnectInProcess.
  static Result<std::unique_ptr<PsClient>> Connect(
      uint32_t num_servers, OpenConnection open, const PsClientOptions& options,
      Deadline deadline);

  PsClient(const PsClient&) = delete;
  PsClient& operator=(const PsClient&) = delete;
  // Without Stop, the servers count this worker as lost.
  ~PsClient();

  // Sparse tables; see table::SparseTable. A key that occurs several times is
  // pulled once; its gradients are summed and pushed once.
  struct PullOptions {
    bool training = true;
    bool count = false;  // tell how often each key occurs, for entry rules
  };
  Status Pull(TableId table, std::span<const Key> keys, std::span<float> rows,
              const PullOptions& options, Deadline deadline);
  // After the push so many steps of the table are over, on every server.
  Status Push(TableId table, std::span<const Key> keys,
              std::span<const float> gradients, Deadline deadline,
              uint32_t end_steps = 0);
  // With the shows and clicks of each place.
  Status PushShown(TableId table, std::span<const Key> keys,
                   std::span<const float> gradients,
                   std::span<const float> shows, std::span<const float> clicks,
                   Deadline deadline, uint32_t end_steps = 0);
  Status Accumulate(TableId table, std::span<const Key> keys,
                    std::span<const float> gradients, Deadline deadline);
  Status AccumulateShown(TableId table, std::span<const Key> keys,
                         std::span<const float> gradients,
                         std::span<const float> shows,
                         std::span<const float> clicks, Deadline deadline);
  // Calls for keys and rows that lie in several places, as the slots of one
  // look-up do: one request for all of them.
  Status PullParts(TableId table, std::span<const RowsOfKeys> parts,
                   const PullOptions& options, Deadline deadline);
  Status PushParts(TableId table, std::span<const ValuesOfKeys> parts,
                   Deadline deadline, uint32_t end_steps = 0);
  Status AccumulateParts(TableId table, std::span<const ValuesOfKeys> parts,
                         Deadline deadline);
  // An Add that failed goes on by GoOn, if it was given an Unfinished: what was
  // not acknowledged is sent again, once. Keys and values stay until then.
  class Unfinished final {
   public:
    explicit operator bool() const { return state_ != nullptr; }
    // Nothing is sent again.
    void Drop() { state_.reset(); }

   private:
    friend class PsClient;
    struct State {
      explicit State(Lanes& lanes) : lane(lanes) {}
      Lanes::Lease lane;
      ValuesOfKeys rows;
      std::string name;
      std::shared_ptr<const std::vector<ServerInfo>> servers;
      std::unique_ptr<Call> call;
    };
    std::unique_ptr<State> state_;
  };
  Status GoOn(Unfinished& unfinished, Deadline deadline);
  Status Add(TableId table, std::span<const Key> keys,
             std::span<const float> deltas, Deadline deadline,
             Unfinished* unfinished = nullptr);
  // Keys that other workers added to since the last call.
  Result<std::vector<Key>> TakeChanges(TableId table, Deadline deadline);

  // Dense tables: the whole parameter.
  Status PullDense(TableId table, std::span<float> values, Deadline deadline);
  Status AssignDense(TableId table, std::span<const float> values,
                     Deadline deadline);
  // AssignDense where a server has no values yet; values that were assigned or
  // loaded stay.
  Status InitializeDense(TableId table, std::span<const float> values,
                         Deadline deadline);

  // Several dense tables in one round trip; small ones share messages.
  Status PullDenseMany(std::span<const DenseValues> values, Deadline deadline);
  Status PushDenseMany(std::span<const DenseGradient> gradients,
                       Deadline deadline, uint32_t end_steps = 0);
  Status AccumulateDenseMany(std::span<const DenseGradient> gradients,
                             Deadline deadline);
  Status AddDenseMany(std::span<const DenseGradient> deltas, Deadline deadline,
                      Unfinished* unfinished = nullptr);
  // PushDenseMany, then PullDenseMany, in one round trip.
  Status ExchangeDense(std::span<const DenseGradient> gradients,
                       std::span<const DenseValues> values, Deadline deadline,
                       uint32_t end_steps = 0);

  // Makes tables on all servers. Any worker may say it, also several with the
  // same specs; FailedPrecondition when a server has other ones. A server that
  // comes back (reconnect_for) is told them again.
  Status CreateTables(const std::vector<TableSpec>& specs, Deadline deadline);

  // Synchronous training, called by all workers. Accumulates `gradients`; when
  // the last worker is there, every server applies the mean of what was
  // accumulated, and `values` are what came of it. One round trip.
  Status FinishStep(std::span<const DenseGradient> gradients,
                    std::span<const DenseValues> values, Deadline deadline);
  // FinishStep of a worker that has no gradients: the mean is that of the
  // others'. True when none of them had any, and nothing was applied.
  Result<bool> IdleStep(Deadline deadline);
  // All workers wait for each other, at server 0. DeadlineExceeded and
  // Unavailable name who is missing.
  Status Barrier(const std::string& name, Deadline deadline);
  // A barrier for what workers do when they begin. A worker that was started
  // again does not wait where the others have been: Barrier takes it to where
  // they are.
  Status StartBarrier(const std::string& name, Deadline deadline);
  // A barrier to which each worker brings bytes, of any size; all workers get
  // all of them, by worker.
  Result<std::vector<std::string>> AllGather(const std::string& name,
                                             std::string_view bytes,
                                             Deadline deadline);

  // Updates that belong together, as those of one step to several tables, are
  // inside of a turn: a save has all of them or none. BeginTurn waits while
  // there is a cut, and returns the turn, which EndTurn ends when all of its
  // updates are acknowledged. Several turns of one worker must not overlap.
  Result<uint64_t> BeginTurn(Deadline deadline);
  Status EndTurn(uint64_t turn, Deadline deadline);
  // Whether BeginCut of some worker waits for turns to end, as the last reply
  // of a server said it.
  bool cut_wanted() const { return lanes_.cut_wanted(); }

  // From BeginCut to EndCut the tables stand still, but for updates outside of
  // turns: what is saved and pulled meanwhile is one state of all of them.
  // BeginCut waits until all turns have ended, of this worker too;
  // DeadlineExceeded names workers whose have not.
  // EndCut waits half a minute at most: the others wait for it.
  Result<uint64_t> BeginCut(Deadline deadline);
  Status EndCut(uint64_t cut);

  // Every server writes its part of every table into `folder`, which is the
  // servers' and one for all of them; when all have, server 0 writes the
  // manifest (table::SaveManifest), and the save counts. Until then, and on
  // failure, the saves before it do. Its number is one more than the highest in
  // the folder. It is one cut: turns end for a moment, in which every server
  // notes what it has, and go on while that is written.
  // Where a server is started again meanwhile it is made anew, with another
  // cut; FailedPrecondition when that happens time and again.
  struct SaveOptions {
    // A delta is what changed since the last save that counts or was loaded. It
    // is a base all the same where that is in another folder, or where deltas
    // have become too many (table::WantsNewBase).
    table::SaveKind kind = table::SaveKind::kBase;
    bool text = false;
    // After a base: what is older than the save before it is removed.
    bool remove_older = true;
  };
  Status Save(const std::string& folder, const SaveOptions& options,
              Deadline deadline);
  // Save in two calls: BeginSave inside of the caller's cut, of which the save
  // is, and FinishSave, which waits until it is written and makes it count,
  // when the cut has ended: the tables are written beside what workers send.
  // FailedPrecondition when a server was started again meanwhile.
  struct BegunSave {
    uint64_t token = 0;
    std::string folder;
    SaveOptions options;
    table::SaveManifest manifest;
  };
  Result<BegunSave> BeginSave(const std::string& folder,
                              const SaveOptions& options, Deadline deadline);
  Status FinishSave(BegunSave save, Deadline deadline);
  // All tables become those of the newest save in `folder` that is whole. A cut
  // as well. Servers read it beside the tables that serve, and take it when all
  // have read it: on failure these are as they were.
  Status Load(const std::string& folder, Deadline deadline);
  Result<uint64_t> Shrink(TableId table, uint32_t max_unseen_days,
                          Deadline deadline);
  // The rate of all tables in which it is told by that name (table::ToldRate),
  // from here on. A server that comes back is told it again.
  Status SetRate(const std::string& name, double rate, Deadline deadline);
  // Summed over servers; `step` is server 0's.
  Result<table::SparseTableStats> Stats(TableId table, Deadline deadline);

  // Asks the servers again for their tables.
  Status Refresh(Deadline deadline);
  // Says good-bye. No other call may follow.
  Status Stop(Deadline deadline);

  // Acknowledged updates that servers lost, by table, where OnDataLoss goes on:
  // requests of rows, gradients of dense tables.
  UpdateCounts lost_updates() const { return lanes_.lost(); }
  uint64_t num_lost_updates() const;
  // How often a server has answered that was started again. What it does not
  // know any more fails then, a save say, and may be done anew.
  uint64_t num_server_restarts() const { return lanes_.num_server_restarts(); }

  uint32_t num_servers() const { return lanes_.num_servers(); }
  uint32_t num_workers() const;
  // As server 0 told them.
  std::vector<TableInfo> tables() const;

 private:
  class PullCall;
  class UpdateCall;
  class DenseCall;

  PsClient(uint32_t num_servers, OpenConnection open,
           const PsClientOptions& options);

  // What the servers told when they were last asked; never changes.
  using Servers = std::vector<ServerInfo>;
  std::shared_ptr<const Servers> servers() const;

  // After a connection was opened: a server that was started anew has no
  // tables. It makes them again, from its last save; FailedPrecondition when
  // that has no values for a dense one, which nobody could make up for.
  Status RestoreTables(channel::Channel& channel, Deadline deadline);
  Status RestoreRates(channel::Channel& channel, Deadline deadline);
  // Sends one request to every server.
  Status RunOnAll(
      const CallName& name, const RequestHead& head, const std::string& body,
      Deadline deadline,
      const std::function<Status(uint32_t server, std::span<const std::byte>)>&
          take = {});
  // The table as server 0 told it. InvalidArgument where sizes do not fit.
  Result<const TableInfo*> SparseInfo(const Servers& servers, TableId table,
                                      size_t num_keys, size_t num_values,
                                      const char* what) const;
  Status UpdateShown(Op op, TableId table, std::span<const Key> keys,
                     std::span<const float> gradients,
                     std::span<const float> shows,
                     std::span<const float> clicks, uint32_t end_steps,
                     Deadline deadline);
  Status Update(Op op, const char* what, TableId table,
                std::span<const ValuesOfKeys> parts,
                std::span<const float> shows, std::span<const float> clicks,
                uint32_t end_steps, Deadline deadline);
  Status UpdateDense(Op op, const char* what,
                     std::span<const DenseGradient> gradients,
                     Deadline deadline, uint32_t end_steps = 0,
                     uint32_t flags = 0);
  // Runs `begun`, which goes to `unfinished` where it fails.
  Status RunAdd(std::unique_ptr<Unfinished::State> begun,
                Unfinished* unfinished, Deadline deadline);
  std::string TableName(TableId table) const;
  std::string NameOf(std::span<const DenseGradient> gradients) const;
  // One of the requests about turns and cuts, to server 0.
  Status AskFirst(const char* what, Op op, uint64_t number, Deadline deadline);
  // Where a save goes to and what it builds on; then, inside of a cut, what is
  // in it.
  Status SaveOnce(const std::string& folder, const SaveOptions& options,
                  Deadline deadline);
  Result<BegunSave> PrepareSave(const std::string& folder,
                                const SaveOptions& options, Deadline deadline);
  Status CutSave(BegunSave& save, Deadline deadline);
  void GiveUpSave(const BegunSave& save);
  Status WriteTables(BegunSave& save, Deadline deadline);
  Status CommitSave(uint64_t token, const table::SaveManifest& manifest,
                    bool remove_older, Deadline deadline);
  Status EndSave(uint64_t token, const table::SaveManifest& manifest,
                 bool counts, Deadline deadline);
  Status LoadTables(const std::string& folder, Deadline deadline);
  Status ReadTables(uint64_t token, const std::string& folder,
                    Deadline deadline);
  // Sends one request to the first server.
  Status RunOnFirst(
      const CallName& name, const RequestHead& head, const std::string& body,
      Deadline deadline,
      const std::function<Status(uint32_t server, std::span<const std::byte>)>&
          take = {});
  // That of the others, where this worker does not know it.
  uint64_t NextRound(const std::string& barrier) const;
  void NoteEnded(const std::string& barrier, uint64_t round);
  // Takes part in the others' steps, which are the same on all servers, from
  // the next one on.
  Status JoinSteps(Deadline deadline);
  Status RunBarrier(const std::string& name, uint64_t round, uint64_t* ended,
                    Deadline deadline);
  // One part of AllGather: what each worker sent.
  Result<std::vector<std::string>> GatherPart(const std::string& name,
                                              std::string_view part,
                                              Deadline deadline);

  const PsClientOptions options_;
  Lanes lanes_;

  mutable base::Mutex mutex_;
  std::shared_ptr<const Servers> servers_ GUARDED_BY(mutex_);
  std::map<TableId, std::string> specs_ GUARDED_BY(mutex_);  // encoded
  std::map<std::string, double> rates_ GUARDED_BY(mutex_);   // told
  std::map<std::string, uint64_t> rounds_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> num_turns_ = 0;
  std::atomic<uint64_t> num_cuts_ = 0;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_CLIENT_H_
