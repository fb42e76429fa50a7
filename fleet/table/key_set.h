// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_TABLE_KEY_SET_H_
#define FLEET_TABLE_KEY_SET_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/key.h"
#include "fleet/table/key_index.h"

namespace fleet::table {

// Keys, each once, numbered in the order in which they came. One thread at a
// time.
class KeySet final {
 public:
  // Makes room for so many more. Unavailable when there is no memory.
  Status Reserve(size_t additional) { return index_.Reserve(additional); }

  // Where to look for `key`, until the next Reserve; ask for it ahead.
  size_t Home(Key key) const { return index_.Home(HashKey(key)); }
  void Prefetch(size_t home) const { index_.Prefetch(home); }

  // The number of `key`, which is added when it is new; room was reserved.
  uint32_t Add(Key key, size_t home) {
    uint32_t* number = index_.FindOrInsert(key, home);
    if (*number == KeyIndex::kNone) {
      *number = static_cast<uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    return *number;
  }

  bool Contains(Key key) const { return index_.Find(key) != nullptr; }

  const std::vector<Key>& keys() const { return keys_; }
  size_t size() const { return keys_.size(); }
  size_t byte_size() const {
    return index_.byte_size() + keys_.capacity() * sizeof(Key);
  }
  void Clear() {
    index_.Clear();
    keys_ = {};
  }
  // Empty, with memory for as many again.
  void Reset() {
    index_.Reset();
    keys_.clear();
  }
  // Takes out up to `max` keys, the last that came.
  std::vector<Key> Take(size_t max) {
    if (keys_.size() <= max) {
      index_.Clear();
      return std::exchange(keys_, {});
    }
    const std::vector<Key> taken(keys_.end() - static_cast<ptrdiff_t>(max),
                                 keys_.end());
    keys_.resize(keys_.size() - max);
    for (Key key : taken) index_.Erase(key);
    return taken;
  }

 private:
  KeyIndex index_;
  std::vector<Key> keys_;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_KEY_SET_H_
