// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_DISTINCT_KEYS_H_
#define FLEET_PS_DISTINCT_KEYS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/table/key.h"

namespace fleet::ps {

using table::Key;

// The different keys of a request, numbered in the order in which they come.
// Memory is used again by the next Reset.
class DistinctKeys final {
 public:
  // Empty, with room for `max_keys`.
  void Reset(size_t max_keys) {
    const size_t capacity = std::bit_ceil(2 * max_keys + 2);
    shift_ = 64 - std::countr_zero(capacity);
    mask_ = capacity - 1;
    table_.assign(capacity, 0);
    if (keys_.size() < max_keys) keys_.resize(max_keys);
    size_ = 0;
  }

  // Brings near what Add will look at.
  void Prefetch(Key key) const { __builtin_prefetch(&table_[Home(key)], 1); }

  // The number of `key`: size() as it was before, when the key is new.
  uint32_t Add(Key key) {
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      const uint32_t entry = table_[at];
      if (entry == 0) {
        keys_[size_] = key;
        table_[at] = ++size_;
        return size_ - 1;
      }
      if (keys_[entry - 1] == key) return entry - 1;
    }
  }

  size_t size() const { return size_; }
  std::span<const Key> keys() const { return {keys_.data(), size_}; }

 private:
  size_t Home(Key key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }

  // Open addressing: number + 1, or 0. At most half full.
  std::vector<uint32_t> table_;
  std::vector<Key> keys_;
  uint32_t size_ = 0;
  int shift_ = 0;
  size_t mask_ = 0;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_DISTINCT_KEYS_H_
