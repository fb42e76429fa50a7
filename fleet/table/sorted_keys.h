// SPDX-License-Identifier: Apache-2.0

// Keys of a shard with the numbers of their rows, in the order of keys. Private
// to table/.

#ifndef FLEET_TABLE_SORTED_KEYS_H_
#define FLEET_TABLE_SORTED_KEYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/key.h"
#include "fleet/table/page_memory.h"

namespace fleet::table {

struct KeyAndRow {
  Key key;
  uint32_t row;
};

// Sorts in two steps: into buckets by the upper bits in which keys differ, then
// each bucket when its turn comes. So the first rows can be written while the
// others are still to be sorted, and a bucket is sorted in the cache. One
// thread at a time.
class SortedKeys final {
 public:
  SortedKeys() = default;
  // Room for `count` pairs. Unavailable when there is no memory.
  static Result<SortedKeys> Make(size_t count);

  void Add(Key key, uint32_t row) { given()[size_++] = {key, row}; }
  // All were added. Unavailable when there is no memory.
  Status Bucket();

  static constexpr size_t num_buckets() { return kBuckets; }
  // Sorts it.
  std::span<const KeyAndRow> bucket(size_t i);

  size_t size() const { return size_; }
  // Resident at most.
  size_t byte_size() const { return 2 * size_ * sizeof(KeyAndRow); }

 private:
  static constexpr int kBits = 11;
  static constexpr size_t kBuckets = size_t{1} << kBits;

  KeyAndRow* given() { return reinterpret_cast<KeyAndRow*>(given_.data()); }
  KeyAndRow* bucketed() {
    return reinterpret_cast<KeyAndRow*>(bucketed_.data());
  }
  size_t BucketOf(Key key) const { return key >> shift_ & (kBuckets - 1); }
  void SortInCache(std::span<KeyAndRow> pairs);

  PageMemory given_;
  PageMemory bucketed_;
  size_t size_ = 0;
  int shift_ = 0;
  std::array<size_t, kBuckets> ends_{};
  std::vector<KeyAndRow> spare_;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_SORTED_KEYS_H_
