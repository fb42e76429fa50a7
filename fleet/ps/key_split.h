// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_KEY_SPLIT_H_
#define FLEET_PS_KEY_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/ps/distinct_keys.h"
#include "fleet/table/key.h"

namespace fleet::ps {

// Keys and what belongs to them: values[i * dim] to keys[i].
struct ValuesOfKeys {
  std::span<const Key> keys;
  std::span<const float> values;
};

// The keys of a push, each once, by server. Every different key has a slot; the
// slots of a server are neighbours, in the order of their keys' last places. So
// the sums of the first slots are complete, and can be sent, while those behind
// them are still summed. Memory is used again by the next Assign.
class KeySplit final {
 public:
  void Assign(std::span<const ValuesOfKeys> parts, uint32_t num_servers);

  // Different keys.
  size_t size() const { return keys_.size(); }
  // Of server s: the slots [begin(s), begin(s + 1)).
  size_t begin(uint32_t server) const { return begin_[server]; }
  // By slot.
  std::span<const Key> keys() const { return keys_; }
  // By place, counted over all parts.
  std::span<const uint32_t> slots() const { return slots_; }
  // The last place of each key, by slot.
  std::span<const uint32_t> last_places() const { return last_places_; }
  // Whether place i is slot i.
  bool is_identity() const { return identity_; }

  // How gradients of one key become one.
  enum class Merge { kSum, kTakeLast };
  // Goes on merging the parts' values, of which each key has `dim`, into
  // values[slot * dim] until those of all slots below `end` of its server are
  // complete. The first call after Assign begins; all have the same arguments.
  void MergeUpTo(size_t end, std::span<const ValuesOfKeys> parts, size_t dim,
                 Merge merge, std::vector<float>& values);
  // All at once, for one value each: result[slot].
  std::vector<float> SumOfEach(std::span<const float> by_place) const;

 private:
  void SortByServer(uint32_t num_servers);

  DistinctKeys distinct_;
  std::vector<Key> keys_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> last_places_;
  std::vector<size_t> begin_;
  bool identity_ = true;
  // How far MergeUpTo is.
  size_t merged_part_ = 0;
  size_t merged_in_part_ = 0;
  size_t merged_ = 0;           // places
  std::vector<uint8_t> begun_;  // by slot

  std::vector<Key> unsorted_keys_;
  std::vector<uint32_t> unsorted_places_;
  std::vector<uint32_t> moved_;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_KEY_SPLIT_H_
