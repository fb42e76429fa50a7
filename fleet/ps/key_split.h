// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_KEY_SPLIT_H_
#define FLEET_PS_KEY_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/table/key.h"

namespace fleet::ps {

using table::Key;

// The keys of a request, each once, by server. Every different key has a slot;
// the slots of a server's keys are neighbours. Its memory is used again by the
// next Assign.
class KeySplit final {
 public:
  void Assign(std::span<const Key> keys, uint32_t num_servers);

  // Different keys.
  size_t size() const { return keys_.size(); }
  // Whether place i of the request is slot i.
  bool is_identity() const { return identity_; }

  // Of server s: the slots [begin(s), begin(s + 1)).
  size_t begin(uint32_t server) const { return begin_[server]; }
  // By slot.
  const std::vector<Key>& keys() const { return keys_; }
  // By place in the request.
  const std::vector<uint32_t>& slots() const { return slots_; }
  // How often each key occurs, by slot.
  std::vector<uint32_t> Counts() const;

  // rows[i] = unique[slot of i], for rows of `dim` values.
  void Expand(std::span<const float> unique, size_t dim,
              std::span<float> rows) const;
  // unique[slot] = the sum of rows[i] over its places, in their order.
  void Sum(std::span<const float> rows, size_t dim,
           std::vector<float>& unique) const;

 private:
  void Sort(uint32_t num_servers);

  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;
  std::vector<size_t> begin_;
  bool identity_ = true;
  // Open addressing: slot + 1, or 0.
  std::vector<uint32_t> table_;
  std::vector<Key> unsorted_;
  std::vector<uint32_t> moved_;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_KEY_SPLIT_H_
