// SPDX-License-Identifier: Apache-2.0

// A worker's end: tables on servers, as if they were here.
//
//   ASSIGN_OR_RETURN(auto client, PsClient::Connect(addresses, options,
//   deadline)); RETURN_IF_ERROR(client->Pull(TableId{0}, keys, rows, {},
//   deadline));
//
// Keys are sent once each, to the server that has them, in parts that follow
// each other without waiting; rows come straight into the caller's memory where
// no key occurs twice and one server has them all.
//
// A failure names worker, call, table, number of keys, server and its address:
//   worker 3: pull emb (4096 keys) from server 1 at 10.0.0.7:9000: ...
// Unavailable: a server is gone; DeadlineExceeded: it is late. A call that
// failed may have been done in part. Else the codes are the table's.

#ifndef FLEET_PS_CLIENT_H_
#define FLEET_PS_CLIENT_H_

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
#include "fleet/ps/key_split.h"
#include "fleet/ps/table_spec.h"
#include "fleet/ps/wire.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

using base::Deadline;

struct PsClientOptions {
  int32_t worker = 0;
  std::string secret;  // see channel::MeetOptions
  // When the connection to a server ends inside a call: for how long to try to
  // get it back, and then go on where the call stood. Zero: fail at once.
  std::chrono::milliseconds reconnect_for{0};
  // Parts of a call that may be under way to one server.
  size_t max_inflight = 4;
  // Servers of this host are reached by shared memory.
  bool shared_memory = true;
  base::InterruptCheck interrupt;
};

// How to get a connection to server `server`; called again when one is lost.
using OpenConnection = std::function<Result<std::unique_ptr<channel::Channel>>(
    uint32_t server, Deadline deadline)>;

// Thread-safe: each call has connections of its own while it runs, and as many
// are made as calls run at a time.
class PsClient final {
 public:
  // Waits until every server is there. FailedPrecondition when they do not fit
  // together: another rank or number of servers, other tables.
  static Result<std::unique_ptr<PsClient>> Connect(
      const std::vector<channel::Address>& servers,
      const PsClientOptions& options, Deadline deadline);
  // The same with connections from elsewhere, say PsServer::ConnectInProcess.
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
  Status Push(TableId table, std::span<const Key> keys,
              std::span<const float> gradients, Deadline deadline);
  // With the shows and clicks of each place.
  Status PushShown(TableId table, std::span<const Key> keys,
                   std::span<const float> gradients,
                   std::span<const float> shows, std::span<const float> clicks,
                   Deadline deadline);
  Status Accumulate(TableId table, std::span<const Key> keys,
                    std::span<const float> gradients, Deadline deadline);
  Status Add(TableId table, std::span<const Key> keys,
             std::span<const float> deltas, Deadline deadline);
  Status Assign(TableId table, std::span<const Key> keys,
                std::span<const float> rows, Deadline deadline);
  // Keys that other workers added to since the last call.
  Result<std::vector<Key>> TakeChanges(TableId table, Deadline deadline);

  // Dense tables: the whole parameter.
  Status PullDense(TableId table, std::span<float> values, Deadline deadline);
  Status PushDense(TableId table, std::span<const float> gradient,
                   Deadline deadline);
  Status AccumulateDense(TableId table, std::span<const float> gradient,
                         Deadline deadline);
  Status AddDense(TableId table, std::span<const float> delta,
                  Deadline deadline);
  Status AssignDense(TableId table, std::span<const float> values,
                     Deadline deadline);
  // The same, but a server that has values, assigned or loaded, keeps them.
  Status InitializeDense(TableId table, std::span<const float> values,
                         Deadline deadline);

  // Makes tables on all servers. Any worker may say it, also several with the
  // same specs; FailedPrecondition when a server has other ones. A server that
  // comes back (reconnect_for) is told them again.
  Status CreateTables(const std::vector<TableSpec>& specs, Deadline deadline);

  // One step of this table is over.
  Status EndStep(TableId table, Deadline deadline);
  // Synchronous training, called by all workers: when the last is there, every
  // server applies the mean of what was accumulated, and all return.
  Status FinishStep(Deadline deadline);
  // All workers wait for each other, at server 0. DeadlineExceeded and
  // Unavailable name who is missing.
  Status Barrier(const std::string& name, Deadline deadline);

  // Every server writes its part of every table; when all have, older saves of
  // them are removed if `remove_older`. Folders are the servers'.
  struct SaveOptions {
    uint64_t number = 0;
    table::SaveKind kind = table::SaveKind::kBase;
    bool text = false;
    bool remove_older = true;
  };
  Status Save(const std::string& folder, const SaveOptions& options,
              Deadline deadline);
  Status Load(const std::string& folder, Deadline deadline);
  Result<uint64_t> Shrink(TableId table, uint32_t max_unseen_days,
                          Deadline deadline);
  // Summed over servers; `step` is server 0's.
  Result<table::SparseTableStats> Stats(TableId table, Deadline deadline);

  // Asks the servers again for their tables.
  Status Refresh(Deadline deadline);
  // Says good-bye. No other call may follow.
  Status Stop(Deadline deadline);

  uint32_t num_servers() const { return num_servers_; }
  uint32_t num_workers() const;
  // As server 0 told them.
  std::vector<TableInfo> tables() const;
  Result<TableId> FindTable(const std::string& name) const;

 private:
  // A connection to one server. Belongs to one call at a time.
  struct Connection {
    std::unique_ptr<channel::Channel> channel;  // null: to be opened
    uint64_t next_sequence = 1;
  };
  // One to each server, and memory that calls use again.
  struct Lane {
    uint32_t number = 0;
    std::vector<Connection> connections;
    KeySplit split;
    std::vector<float> rows;
    std::vector<std::byte> small;
  };
  class Lease;

  // A call, for its errors: "pull emb (4096 keys)". Put together only for
  // them: it would take as long as a pull of one key.
  struct CallName {
    const char* verb = "";
    std::string_view table;
    size_t count = 0;
    const char* unit = nullptr;  // null: no count

    std::string ToString() const;
  };

  // What a call asks of each server: so many requests, in order.
  struct Call {
    CallName name;
    std::vector<size_t> num_requests;
    // Fills the head and says which pieces follow it.
    std::function<void(uint32_t server, size_t request, RequestHead& head,
                       std::vector<channel::ConstBytes>& parts)>
        ask;
    // Where the answer's bytes go: exactly so many are expected.
    std::function<std::span<std::byte>(uint32_t server, size_t request)> into;
    // Or, where their number is not known before.
    std::function<Status(uint32_t server, size_t request,
                         std::span<const std::byte> answer)>
        take;
  };

  PsClient(uint32_t num_servers, OpenConnection open,
           const PsClientOptions& options);

  Result<std::unique_ptr<Lane>> Borrow();
  void GiveBack(std::unique_ptr<Lane> lane);
  Status Run(Lane& lane, const Call& call, Deadline deadline);
  Status Open(Lane& lane, uint32_t server, Deadline deadline);
  // One request on a connection that nobody else uses, and its answer.
  Result<std::string> Ask(channel::Channel& channel, const RequestHead& head,
                          const std::string& body, Deadline deadline);
  // After Open: a server that was started anew has no tables. It makes them
  // again, from its last save; FailedPrecondition when that has no values for a
  // dense one, which nobody could make up for.
  Status RestoreTables(Lane& lane, uint32_t server, Deadline deadline);
  Status SendRequest(Lane& lane, const Call& call, uint32_t server,
                     size_t request, uint64_t sequence, Deadline deadline);
  Status TakeReply(Lane& lane, const Call& call, uint32_t server,
                   size_t request, uint64_t sequence, Deadline deadline,
                   Status* outcome);
  Status Named(const Status& status, const CallName& name,
               uint32_t server) const;
  // The same request to every server.
  Status RunOnAll(
      const CallName& name, const RequestHead& head, const std::string& body,
      Deadline deadline,
      const std::function<Status(uint32_t server, std::span<const std::byte>)>&
          take = {});
  Result<TableInfo> SparseInfo(TableId table, size_t num_keys,
                               size_t num_values, const char* what) const;
  // What each server has of a dense table.
  Result<std::vector<TableInfo>> DenseInfo(TableId table, size_t num_values,
                                           const char* what) const;
  Status Update(Op op, const char* what, TableId table,
                std::span<const Key> keys, std::span<const float> values,
                std::span<const float> shows, std::span<const float> clicks,
                Deadline deadline);
  Status UpdateDense(Op op, const char* what, TableId table,
                     std::span<const float> values, Deadline deadline,
                     uint32_t flags = 0);
  std::string TableName(TableId table) const;
  uint64_t NextRound(const std::string& barrier);
  // The round failed: it is still open, and comes again.
  void RepeatRound(const std::string& barrier);
  // Opens the connection by which the server sees that this worker lives.
  Status OpenLife(uint32_t server, Deadline deadline);

  const uint32_t num_servers_;
  const OpenConnection open_;
  const PsClientOptions options_;
  const uint64_t incarnation_;

  mutable base::Mutex mutex_;
  std::vector<ServerInfo> servers_ GUARDED_BY(mutex_);
  std::map<TableId, std::string> specs_ GUARDED_BY(mutex_);  // encoded
  std::vector<std::unique_ptr<Lane>> idle_ GUARDED_BY(mutex_);
  uint32_t num_lanes_ GUARDED_BY(mutex_) = 0;
  // Carries nothing after its hello: lanes come and go, it stays.
  Lane life_ GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> rounds_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ps

#endif  // FLEET_PS_CLIENT_H_
