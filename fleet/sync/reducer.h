// SPDX-License-Identifier: Apache-2.0

// Eager data parallel training: every rank has the whole model and a part of
// the batch, and after backward every rank has the mean of all gradients.
//
//   ASSIGN_OR_RETURN(auto reducer,
//                    Reducer::Make(communicator, parameters, buffers, {}));
//   loss.backward();    // returns when the gradients are those of all ranks
//   optimizer.step();   // hence does the same on all ranks
//
// Gradients lie in a few flat buckets of the communicator's memory, in the
// reverse order of the parameters, which is about the order in which backward
// reaches them. A bucket is exchanged when all its gradients are there, while
// backward goes on. Afterwards a parameter's grad is a view of the bucket: what
// somebody keeps of it is overwritten by the next backward.
//
// Every backward that reaches one of the parameters is such a round, and all
// ranks must make the same number of rounds. A parameter that backward does not
// reach on this rank takes part with the gradient it has, or zeros; when no
// rank reached it, its grad stays as it was, or none.

#ifndef FLEET_SYNC_REDUCER_H_
#define FLEET_SYNC_REDUCER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/sync/overlap.h"
#include "fleet/sync/state.h"

namespace fleet::sync {

struct ReducerOptions {
  // A bucket is closed when it holds so much. Larger ones cost fewer rounds
  // between the ranks, smaller ones leave earlier. Without overlap no more than
  // 12 MB, which caches hold until the exchange.
  size_t bucket_bytes = size_t{25} << 20;
  // The bucket that is ready last, when no computation is left to hide it.
  size_t last_bucket_bytes = size_t{1} << 20;
  using Overlap = sync::Overlap;
  Overlap overlap = Overlap::kAuto;
  // Ranks on this host; 0 when all ranks are.
  int ranks_on_host = 0;
  // How long one exchange waits for late ranks. Unset: half an hour; a
  // DistributedModel then has its job's.
  std::optional<std::chrono::milliseconds> timeout;
  // Asked while backward waits for a thread of the communicator, so that ^C
  // ends it.
  base::InterruptCheck interrupt;
  // A rank that is alone has nothing to exchange, and its gradients stay where
  // they are. True: it goes the way of many, for tests.
  bool even_alone = false;
};

// What backward throws when an exchange failed. The gradients are then those of
// no particular step, and the communicator is broken.
class ExchangeError final : public std::runtime_error {
 public:
  explicit ExchangeError(Status status);
  const Status& status() const { return status_; }

 private:
  Status status_;
};

// Averages the gradients of one rank with those of the others. It uses the
// communicator in every backward and in the calls below, so that whoever else
// uses it does so in the same order on all ranks. One backward at a time. A
// parameter that gets a second Reducer belongs to that.
class Reducer final {
 public:
  // Makes all parameters and buffers equal to those of rank 0, in place.
  // FailedPrecondition, on every rank, names the first one whose name, shape or
  // type is not the same on all. Parameters must be leaves of floating point
  // on one device, where the communicator works; one that asks for no gradient
  // now must not do so later. `communicator` outlives the Reducer.
  static Result<std::unique_ptr<Reducer>> Make(
      comm::Communicator& communicator, std::vector<NamedTensor> parameters,
      std::vector<NamedTensor> buffers, ReducerOptions options);

  // Parameters keep their gradients.
  ~Reducer();

  // While false (no_sync), backward adds to this rank's own gradients; the next
  // backward with true exchanges the sums.
  void set_sync(bool sync);
  bool sync() const;

  // Before a step: where backward left gradients on this rank (no_sync) and no
  // other one exchanged them since, they are exchanged now. For the Reducers of
  // all these parameters; one that has none is left out. Called on all ranks.
  // FailedPrecondition inside of a backward.
  static Status JoinGradients(std::span<const at::Tensor> parameters);

  // Uneven numbers of batches. Called by every rank that has no batch left,
  // also by the last one: until all have called it, this rank takes part in the
  // others' rounds with zeros. The mean is still over all ranks, as in torch's
  // Join. Then parameters and buffers become those of a rank that was among the
  // last to call. Other collectives of the ranks that still train, such as
  // those of SyncBatchNorm, find no partner here and fail.
  Status Join();

  // Makes parameters and buffers equal to those of rank `root`, in place.
  Status SynchronizeState(int root);

  // What has been done so far, for logs and tests.
  struct Stats {
    int num_buckets = 0;
    uint64_t rounds = 0;
    // Gradients that had to be copied into their bucket, and those that were
    // computed there.
    uint64_t copied = 0;
    uint64_t in_place = 0;
  };
  Stats stats() const;

 private:
  class Impl;
  explicit Reducer(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_REDUCER_H_
