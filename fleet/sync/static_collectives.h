// SPDX-License-Identifier: Apache-2.0

// What the collective operations of a program do when an executor runs them.
//
//   auto collectives = std::make_shared<StaticCollectives>(
//       [&](int64_t ring) -> Result<CollectiveGroup> {
//         return CollectiveGroup{.communicator = &communicator};
//       });
//   collectives->AddTo(executor);
//
// The operations are those that plan/ inserts (c_allreduce_start,
// c_allreduce_wait, c_broadcast_state, sync_batch_norm) and Paddle's
// (c_allreduce_sum and so on, c_broadcast, c_allgather, c_reducescatter,
// c_sync_...). All ranks run the same programs in the same order.
//
// A bucket lies in memory of the communicator, one gradient behind the other,
// each at a cache line, and the executor has gradients computed there if it
// can. Brief buckets take turns in the same memory, which so stays in the
// cache. A bucket is made when the executor meets it for the first time; then
// the ranks compare the names, types and shapes of its gradients, and how they
// are used: FailedPrecondition shows what differs. Other failures are those of
// the communicator, which name the ranks.

#ifndef FLEET_SYNC_STATIC_COLLECTIVES_H_
#define FLEET_SYNC_STATIC_COLLECTIVES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/extension.h"
#include "fleet/sync/overlap.h"

namespace fleet::sync {

// Over whom and how.
struct CollectiveGroup {
  // Outlives the StaticCollectives, which knows it by its address.
  comm::Communicator* communicator = nullptr;
  Overlap overlap = Overlap::kAuto;
  // Ranks on this host; 0 when all ranks are.
  int ranks_on_host = 0;
  // How long one exchange waits for late ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Asked while a program waits for a thread of the communicator, so that ^C
  // ends it.
  base::InterruptCheck interrupt;
};

// One for all executors of a process: they share buckets, so that a program
// that is compiled for several shapes of its feeds has its buckets once.
// Thread-safe, but programs with collectives run one at a time.
class StaticCollectives final
    : public exec::Extension,
      public std::enable_shared_from_this<StaticCollectives> {
 public:
  // Asked when a program is compiled; `ring` is the attribute ring_id, and 0
  // the group of all ranks.
  using GroupSource = std::function<Result<CollectiveGroup>(int64_t ring)>;

  explicit StaticCollectives(GroupSource source);
  ~StaticCollectives() override;

  // For every type of operation that this carries out.
  void AddTo(exec::Executor& executor);
  static const std::vector<std::string>& Types();

  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override;

  class Bucket;

 private:
  std::shared_ptr<Bucket> BucketOf(const CollectiveGroup& group,
                                   const program::Operation& op);

  const GroupSource source_;
  base::Mutex mutex_;
  // By communicator and names.
  std::map<std::pair<comm::Communicator*, std::string>, std::shared_ptr<Bucket>>
      buckets_ GUARDED_BY(mutex_);
  // The memory that buckets share which are needed one at a time.
  std::map<comm::Communicator*, std::shared_ptr<at::Tensor>> common_
      GUARDED_BY(mutex_);
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_STATIC_COLLECTIVES_H_
