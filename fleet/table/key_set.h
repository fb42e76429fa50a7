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
  // The number of `key`, which is added when it is new. Unavailable when there
  // is no memory.
  Result<uint32_t> Add(Key key) {
    RETURN_IF_ERROR(index_.Reserve(1));
    uint32_t* number = index_.FindOrInsert(key, index_.Home(HashKey(key)));
    if (*number == KeyIndex::kNone) {
      *number = static_cast<uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    return *number;
  }

  const std::vector<Key>& keys() const { return keys_; }
  size_t size() const { return keys_.size(); }
  size_t byte_size() const {
    return index_.byte_size() + keys_.capacity() * sizeof(Key);
  }
  void Clear() {
    index_.Clear();
    keys_ = {};
  }
  // All keys; the set is empty after that.
  std::vector<Key> Take() {
    index_.Clear();
    return std::exchange(keys_, {});
  }

 private:
  KeyIndex index_;
  std::vector<Key> keys_;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_KEY_SET_H_
