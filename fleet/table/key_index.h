// SPDX-License-Identifier: Apache-2.0

// From keys to 32-bit values: where the row of a key is. Open addressing in
// flat memory, twelve bytes an entry.
//
// Invariants:
//  1. An entry's home is its hash scaled to the capacity, so homes are in the
//     order of hashes whatever the capacity, and growing reads and writes
//     memory from front to back.
//  2. Between an entry and its home, going up and around the end, there is no
//     empty place.
//  3. At most kMaxLoad of the places are taken.

#ifndef FLEET_TABLE_KEY_INDEX_H_
#define FLEET_TABLE_KEY_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "fleet/base/status.h"
#include "fleet/table/key.h"
#include "fleet/table/page_memory.h"

namespace fleet::table {

// One thread at a time. A pointer to a value is good until the next Reserve or
// Erase.
class KeyIndex final {
 public:
  // The value that no key may have.
  static constexpr uint32_t kNone = 0xffffffff;

  KeyIndex() = default;
  KeyIndex(KeyIndex&& other) noexcept { *this = std::move(other); }
  KeyIndex& operator=(KeyIndex&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(entries_, other.entries_);
    std::swap(capacity_, other.capacity_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Makes room: so many keys can then be inserted without moving anything.
  // Call it before the first Insert. Unavailable when there is no memory; all
  // stays as it was.
  Status Reserve(size_t additional) {
    if (size_ + additional <= limit_of(capacity_)) return OkStatus();
    return Grow(additional);
  }

  // The first place at which a key with this hash may be. Changes with
  // Reserve.
  size_t Home(uint64_t hash) const { return ScaleHash(hash, capacity_); }
  void Prefetch(size_t home) const { __builtin_prefetch(entries_ + home); }

  // The value of `key`, or null. `home` is its Home.
  uint32_t* Find(Key key, size_t home) const {
    if (capacity_ == 0) return nullptr;
    for (size_t at = home;;) {
      Entry& entry = entries_[at];
      if (entry.value == kNone) return nullptr;
      if (entry.key() == key) return &entry.value;
      if (++at == capacity_) at = 0;
    }
  }
  uint32_t* Find(Key key) const { return Find(key, Home(HashKey(key))); }

  // The value of `key`. A key that was not there is put there with kNone, which
  // the caller replaces at once; room for it was reserved.
  uint32_t* FindOrInsert(Key key, size_t home) {
    for (size_t at = home;;) {
      Entry& entry = entries_[at];
      if (entry.value == kNone) {
        entry.set_key(key);
        ++size_;
        return &entry.value;
      }
      if (entry.key() == key) return &entry.value;
      if (++at == capacity_) at = 0;
    }
  }

  // Takes `key` out; false when it was not there.
  bool Erase(Key key);

  // Takes all out and gives the memory back.
  void Clear() { *this = KeyIndex(); }
  // Takes all out and keeps the memory, unless it is far more than was used.
  void Reset() {
    if (capacity_ > 16 * size_ + 4096) return Clear();
    for (size_t at = 0; at < capacity_; ++at) entries_[at].value = kNone;
    size_ = 0;
  }

  // Calls visit(key, value&) for each, in the order of their hashes or nearly.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t at = 0; at < capacity_; ++at) {
      if (entries_[at].value != kNone) {
        visit(entries_[at].key(), entries_[at].value);
      }
    }
  }

  // Visits keys with hashes in [first, last]. Between two calls keys may
  // come and go and the index may grow: what is there is found by its hash.
  template <typename Visit>
  void ForEachOfHashes(uint64_t first, uint64_t last, Visit visit) const {
    const size_t begin = Home(first);
    const size_t end = Home(last);
    // They lie from the first home on, up to the first empty place that is not
    // before the last home.
    for (size_t step = 0; step < capacity_; ++step) {
      const size_t at =
          begin + step < capacity_ ? begin + step : begin + step - capacity_;
      const Entry& entry = entries_[at];
      if (entry.value == kNone) {
        if (begin + step >= end) return;
        continue;
      }
      const uint64_t hash = HashKey(entry.key());
      if (first <= hash && hash <= last) visit(entry.key(), entry.value);
    }
  }

  size_t size() const { return size_; }
  // How many places for entries there are; never shrinks but by Clear.
  size_t capacity() const { return capacity_; }
  size_t byte_size() const { return memory_.byte_size(); }

 private:
  // Two halves, so that an entry needs no padding.
  struct Entry {
    uint32_t low;
    uint32_t high;
    uint32_t value;

    Key key() const { return uint64_t{high} << 32 | low; }
    void set_key(Key key) {
      low = static_cast<uint32_t>(key);
      high = static_cast<uint32_t>(key >> 32);
    }
  };
  static_assert(sizeof(Entry) == 12);

  static size_t limit_of(size_t capacity) { return capacity / 5 * 4; }

  Status Grow(size_t additional);

  PageMemory memory_;
  Entry* entries_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_KEY_INDEX_H_
