// SPDX-License-Identifier: Apache-2.0

// The shards of a sparse table and their locks. Private to table/.

#ifndef FLEET_TABLE_LOCKED_SHARDS_H_
#define FLEET_TABLE_LOCKED_SHARDS_H_

#include <atomic>
#include <memory>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/table/options.h"
#include "fleet/table/row_layout.h"
#include "fleet/table/sparse_shard.h"

namespace fleet::table {

// In a cache line of its own: each is another thread's.
struct alignas(64) LockedShard {
  mutable base::Mutex mutex;
  // Somebody is inside. Only a hint: who has other work may do that first.
  std::atomic<bool> busy = false;
  // Requests that wait for the mutex. A hint as well: a save lets them go
  // first.
  std::atomic<int> num_waiting = 0;
  // Requests that came so far. Written under the mutex.
  std::atomic<uint64_t> num_requests = 0;
  // As many rows are kept for a save as may be: requests that change rows wait
  // for `room`. Written under the mutex.
  std::atomic<bool> full = false;
  base::CondVar room;
  std::unique_ptr<SparseShard> rows GUARDED_BY(mutex);
  uint64_t num_turns GUARDED_BY(mutex) = 0;  // that were asked for
};

// Holds the locks of all shards, taken in their order.
class AllLocked final {
 public:
  explicit AllLocked(const std::vector<LockedShard>& shards)
      FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis)
      : shards_(shards) {
    for (const LockedShard& shard : shards_) shard.mutex.Lock();
  }
  AllLocked(const AllLocked&) = delete;
  AllLocked& operator=(const AllLocked&) = delete;
  ~AllLocked() FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    for (const LockedShard& shard : shards_) shard.mutex.Unlock();
  }

  SparseShard& operator[](size_t i) const
      FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return *shards_[i].rows;
  }
  uint64_t& num_turns(size_t i) const
      FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return const_cast<LockedShard&>(shards_[i]).num_turns;
  }

 private:
  const std::vector<LockedShard>& shards_;
};

// After something was done with the cut of a shard: requests wait while it is
// full.
inline void TellWhetherFull(LockedShard& shard) REQUIRES(shard.mutex) {
  const ShardCut* const cut = shard.rows->cut();
  const bool full = cut != nullptr && cut->full();
  if (full == shard.full.load(std::memory_order_relaxed)) return;
  shard.full = full;
  if (!full) shard.room.NotifyAll();
}

// What a row is worth, where rows know their shows and clicks.
inline double Score(const ShowClickOptions& options, const RowLayout& layout,
                    const float* row) {
  const double show = row[layout.show];
  const double click = row[layout.click];
  return (show - click) * options.nonclick_coefficient +
         click * options.click_coefficient;
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_LOCKED_SHARDS_H_
