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

// Tells most of the keys that occur once in a request from those that may occur
// again, by a bit for each: much faster than DistinctKeys, which then need not
// look at them. Memory is used again by the next Reset.
class RepeatFilter final {
 public:
  // Empty. For up to `max_keys`, of which one in twenty or so is then taken for
  // one that occurs again.
  void Reset(size_t max_keys) {
    const size_t num_bits = std::bit_ceil(16 * max_keys + 64);
    shift_ = 64 - std::countr_zero(num_bits);
    words_.assign(num_bits / 64, {});
    num_again_ = 0;
  }

  void Mark(Key key) {
    const size_t at = Place(key);
    Word& word = words_[at / 64];
    const uint64_t bit = uint64_t{1} << (at % 64);
    num_again_ += word.once >> (at % 64) & 1;
    word.twice |= word.once & bit;
    word.once |= bit;
  }
  // How many were marked that may have been marked before. MayRepeat is true
  // for twice as many of those that were marked at most.
  size_t num_again() const { return num_again_; }
  // After all were marked: false for a key that was marked once at most.
  bool MayRepeat(Key key) const {
    const size_t at = Place(key);
    return (words_[at / 64].twice >> (at % 64) & 1) != 0;
  }

 private:
  struct Word {
    uint64_t once = 0;
    uint64_t twice = 0;
  };
  size_t Place(Key key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }

  std::vector<Word> words_;
  size_t num_again_ = 0;
  int shift_ = 0;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_DISTINCT_KEYS_H_
