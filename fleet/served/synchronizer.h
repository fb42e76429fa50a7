// SPDX-License-Identifier: Apache-2.0

// When gradients leave a worker, and when parameters come back: the modes of
// training with servers.
//
//   ASSIGN_OR_RETURN(auto sync, Synchronizer::Make(client, tables, options));
//   RETURN_IF_ERROR(sync->Fetch(table, lookups, {}));    // rows of ids
//   ... forward and backward ...
//   RETURN_IF_ERROR(sync->Offer(table, gradients, {}));  // gradients of rows
//   RETURN_IF_ERROR(sync->OfferDense(dense_gradients));
//   RETURN_IF_ERROR(sync->EndStep(dense_values));        // the new parameters
//
//   mode        a gradient leaves          a step ends when
//   sync        at EndStep                 all workers' gradients are applied,
//                                          as their mean, and the result is
//                                          here
//   half-async  at EndStep, the mean of    the servers have applied it, and the
//               this worker's threads      result is here
//   async       when a thread of its own   there is room in the queue
//               gets to it, several as a
//               sum
//   geo         never: parameters change   in every k-th step, the changes of
//               here, and what changed     the other workers are here
//               leaves every k-th step
//
// No LibTorch: gradients and values are floats where the caller has them.

#ifndef FLEET_SERVED_SYNCHRONIZER_H_
#define FLEET_SERVED_SYNCHRONIZER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/ps/client.h"

namespace fleet::served {

using plan::PsMode;
using plan::ServedTable;
using ps::DenseGradient;
using ps::DenseValues;
using ps::TableId;

struct SynchronizerOptions {
  PsMode mode = PsMode::kAsync;
  int worker = 0;
  int num_workers = 1;

  // Geo: steps between two exchanges.
  uint64_t geo_steps = 100;

  // Async: how many steps' gradients of a table are sent as their sum. Larger
  // needs fewer messages; for rules other than SGD, a sum of gradients is one
  // update where there would have been several.
  uint32_t max_merge = 20;
  // Async: steps whose gradients of a table may wait for the servers. Beyond it
  // Offer waits, so staleness is bounded by queue_size + max_merge.
  uint32_t queue_size = 20;
  // Async: threads that send. A table's gradients leave in order.
  int send_threads = 2;
  // Async: a table rests so long after a send, unless max_merge steps wait: so
  // a worker with steps of some microseconds sends several of them at once, and
  // leaves the cores to those who compute.
  std::chrono::microseconds send_pause{200};

  // How long one exchange may take, waits for other workers included.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Asked while a call waits, so that ^C ends it.
  base::InterruptCheck interrupt;
};

// What happened so far, for logs and tests. Staleness is in steps of this
// worker: how many have ended whose gradients are not in the dense parameters
// that it computes with.
struct SynchronizerStats {
  uint64_t steps = 0;
  uint64_t staleness = 0;
  uint64_t max_staleness = 0;
  uint64_t queued = 0;  // gradients that wait now, of the fullest table
  uint64_t max_queued = 0;
  uint64_t waits = 0;  // calls that found the queue full
  double waited_seconds = 0;
  uint64_t pushes = 0;     // calls that gave gradients to the servers,
  uint64_t pushed = 0;     // and the gradients of steps in them
  uint64_t pulls = 0;      // of dense parameters
  uint64_t exchanges = 0;  // geo
  // Updates that servers had acknowledged and lost, where the job goes on
  // (ps::OnDataLoss).
  uint64_t lost_updates = 0;
  // How often a server that was started again has answered.
  uint64_t server_restarts = 0;
};

// Ids and the memory of their rows, one behind the other.
struct RowsOfIds {
  std::span<const int64_t> ids;
  std::span<float> rows;
};
struct GradientsOfIds {
  std::span<const int64_t> ids;
  std::span<const float> gradients;
  // For a table that counts how often a key was shown and clicked: one number
  // for each id, or both empty.
  std::span<const float> shows = {};
  std::span<const float> clicks = {};
};

struct LookupOptions {
  // Otherwise nothing changes on the servers: no rows are made, none counted.
  bool training = true;
  // The row of this id is zero, and never learns. -1: no such id.
  int64_t padding = -1;
};

// Which values of dense parameters some memory holds. Whoever owns the memory
// keeps this as long, and has another one for other memory: an address may come
// again after its owner is gone.
struct HeldValues {
  uint64_t version = 0;  // the synchronizer's; 0: none of its values
};

// One worker has one; thread-safe. Errors name table and server. Once a
// background thread has failed, every call returns its error.
//
// Trainer threads share one Synchronizer: see BeginThreads.
class Synchronizer {
 public:
  // `client` has the tables, and outlives this.
  static Result<std::unique_ptr<Synchronizer>> Make(
      ps::PsClient& client, std::vector<ServedTable> tables,
      const SynchronizerOptions& options);

  virtual ~Synchronizer() = default;

  // More tables, which the servers have.
  virtual Status AddTables(std::vector<ServedTable> tables) = 0;

  // Dense parameters begin as worker 0 has them, unless the servers have
  // values, loaded or from before; then as these. Called by all workers, who
  // wait for each other.
  virtual Status Initialize(std::span<const DenseValues> values) = 0;

  // Fills the rows. InvalidArgument names an id that is not in a bounded
  // table; nothing has been sent then.
  virtual Status Fetch(TableId table, std::span<const RowsOfIds> lookups,
                       const LookupOptions& options) = 0;

  // Takes the gradients of this step; the memory is the caller's again on
  // return. In async mode waits while the queue is full.
  virtual Status Offer(TableId table, std::span<const GradientsOfIds> gradients,
                       const LookupOptions& options) = 0;
  virtual Status OfferDense(std::span<const DenseGradient> gradients) = 0;

  // Ends a step, with the newest parameters in `values`. In geo mode `values`
  // holds what the local optimizer made of them. `held` is of the memory of
  // `values`, and of no other call's tables: what it holds already need not be
  // written again. Null: nothing is known of it.
  virtual Status EndStep(std::span<const DenseValues> values,
                         HeldValues* held) = 0;
  Status EndStep(std::span<const DenseValues> values) {
    return EndStep(values, nullptr);
  }

  // Newest values, without a step.
  virtual Status PullDense(std::span<const DenseValues> values) = 0;

  // Until this worker's gradients are applied on the servers; in geo mode an
  // exchange. `values` are those of EndStep.
  virtual Status Flush(std::span<const DenseValues> values) = 0;
  // Flush; in geo mode all workers wait for each other then. `values` are the
  // servers' on return, and background threads have ended. No other call may
  // follow. Does not say good-bye: PsClient::Stop does.
  virtual Status Stop(std::span<const DenseValues> values) = 0;

  // From now on `count` threads take steps together: in sync and half-async
  // mode EndStep waits for all of them, and the mean of their gradients counts.
  // Each says EndThread when it has no batch left. Without both, one thread.
  virtual void BeginThreads(int count) = 0;
  virtual void EndThread() = 0;

  // This worker has no batch left in this pass over the data, and called by
  // all workers: in sync mode it takes part in the others' steps, without
  // gradients, until nobody has a batch. Dense parameters have moved then:
  // PullDense. In other modes it returns at once.
  virtual Status EndPass() { return OkStatus(); }

  virtual SynchronizerStats stats() const = 0;
  virtual const SynchronizerOptions& options() const = 0;
  // Null when there is none.
  virtual const ServedTable* table(TableId id) const = 0;
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_SYNCHRONIZER_H_
