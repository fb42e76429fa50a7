// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/key_split.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fleet::ps {
namespace {

// A size that is known makes a copy of a row a few instructions.
template <size_t kDim>
void ExpandRows(const uint32_t* slots, size_t count, const float* unique,
                float* rows) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(rows + i * kDim, unique + size_t{slots[i]} * kDim,
                kDim * sizeof(float));
  }
}

}  // namespace

void KeySplit::Assign(std::span<const Key> keys, uint32_t num_servers) {
  const size_t capacity = std::bit_ceil(2 * keys.size() + 2);
  const int shift = 64 - std::countr_zero(capacity);
  table_.assign(capacity, 0);
  keys_.clear();
  slots_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key key = keys[i];
    size_t at = (key * 0x9e3779b97f4a7c15u) >> shift;
    while (true) {
      uint32_t& entry = table_[at];
      if (entry == 0) {
        keys_.push_back(key);
        entry = static_cast<uint32_t>(keys_.size());
      }
      if (keys_[entry - 1] == key) {
        slots_[i] = entry - 1;
        break;
      }
      at = (at + 1) & (capacity - 1);
    }
  }
  identity_ = keys_.size() == keys.size();
  begin_.assign(num_servers + 1, 0);
  begin_[num_servers] = keys_.size();
  if (num_servers > 1) Sort(num_servers);
}

void KeySplit::Sort(uint32_t num_servers) {
  begin_.assign(num_servers + 1, 0);
  moved_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    moved_[i] = table::ServerOfKey(keys_[i], num_servers);
    ++begin_[moved_[i] + 1];
  }
  for (uint32_t s = 0; s < num_servers; ++s) begin_[s + 1] += begin_[s];
  std::vector<size_t> next(begin_.begin(), begin_.end() - 1);
  unsorted_.swap(keys_);
  keys_.resize(unsorted_.size());
  for (size_t i = 0; i < unsorted_.size(); ++i) {
    const size_t to = next[moved_[i]]++;
    keys_[to] = unsorted_[i];
    moved_[i] = static_cast<uint32_t>(to);
    identity_ = identity_ && to == i;
  }
  for (uint32_t& slot : slots_) slot = moved_[slot];
}

std::vector<uint32_t> KeySplit::Counts() const {
  std::vector<uint32_t> counts(keys_.size(), 0);
  for (uint32_t slot : slots_) ++counts[slot];
  return counts;
}

void KeySplit::Expand(std::span<const float> unique, size_t dim,
                      std::span<float> rows) const {
  const uint32_t* slots = slots_.data();
  const size_t count = slots_.size();
  switch (dim) {
    case 8:
      return ExpandRows<8>(slots, count, unique.data(), rows.data());
    case 16:
      return ExpandRows<16>(slots, count, unique.data(), rows.data());
    case 32:
      return ExpandRows<32>(slots, count, unique.data(), rows.data());
    case 64:
      return ExpandRows<64>(slots, count, unique.data(), rows.data());
    default:
      break;
  }
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&rows[i * dim], &unique[size_t{slots[i]} * dim],
                dim * sizeof(float));
  }
}

void KeySplit::Sum(std::span<const float> rows, size_t dim,
                   std::vector<float>& unique) const {
  unique.assign(keys_.size() * dim, 0.0f);
  for (size_t i = 0; i < slots_.size(); ++i) {
    float* __restrict to = unique.data() + size_t{slots_[i]} * dim;
    const float* __restrict from = rows.data() + i * dim;
    for (size_t k = 0; k < dim; ++k) to[k] += from[k];
  }
}

}  // namespace fleet::ps
