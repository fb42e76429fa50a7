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
  std::unique_ptr<SparseShard> rows GUARDED_BY(mutex);
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

 private:
  const std::vector<LockedShard>& shards_;
};

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
