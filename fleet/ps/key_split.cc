// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/key_split.h"

#include <algorithm>
#include <cstring>

namespace fleet::ps {
namespace {

// Keys that are looked at together: their places in the hash table are asked
// for ahead.
constexpr size_t kBlock = 64;

template <size_t kDim>
void AddRow(float* __restrict to, const float* __restrict from, size_t dim) {
  const size_t n = kDim == 0 ? dim : kDim;
  for (size_t k = 0; k < n; ++k) to[k] += from[k];
}

// Adds `count` rows to those of their slots; the first of a slot is copied.
template <size_t kDim>
void SumRows(const uint32_t* slots, size_t count, const float* from, size_t dim,
             uint8_t* begun, float* to) {
  const size_t n = kDim == 0 ? dim : kDim;
  for (size_t i = 0; i < count; ++i) {
    const size_t slot = slots[i];
    if (begun[slot] != 0) {
      AddRow<kDim>(to + slot * n, from + i * n, n);
    } else {
      std::memcpy(to + slot * n, from + i * n, n * sizeof(float));
      begun[slot] = 1;
    }
  }
}

}  // namespace

void KeySplit::Assign(std::span<const ValuesOfKeys> parts,
                      uint32_t num_servers) {
  size_t num_places = 0;
  for (const ValuesOfKeys& part : parts) num_places += part.keys.size();
  distinct_.Reset(num_places);
  slots_.resize(num_places);
  last_places_.clear();
  // From the last place to the first: numbers are in the order of last places,
  // the last first.
  size_t place = num_places;
  for (size_t p = parts.size(); p-- > 0;) {
    const std::span<const Key> keys = parts[p].keys;
    for (size_t end = keys.size(); end > 0;) {
      const size_t begin = end - std::min(kBlock, end);
      for (size_t i = begin; i < end; ++i) distinct_.Prefetch(keys[i]);
      for (size_t i = end; i-- > begin;) {
        const uint32_t number = distinct_.Add(keys[i]);
        slots_[--place] = number;
        if (number == last_places_.size()) {
          last_places_.push_back(static_cast<uint32_t>(place));
        }
      }
      end = begin;
    }
  }
  // Turned around.
  const std::span<const Key> found = distinct_.keys();
  keys_.assign(found.rbegin(), found.rend());
  std::reverse(last_places_.begin(), last_places_.end());
  const auto last = static_cast<uint32_t>(keys_.size()) - 1;
  for (uint32_t& slot : slots_) slot = last - slot;
  identity_ = keys_.size() == num_places;

  begin_.assign(num_servers + 1, 0);
  begin_[num_servers] = keys_.size();
  if (num_servers > 1) SortByServer(num_servers);
  merged_part_ = 0;
  merged_in_part_ = 0;
  merged_ = 0;
  begun_.assign(keys_.size(), 0);
}

void KeySplit::SortByServer(uint32_t num_servers) {
  begin_.assign(num_servers + 1, 0);
  moved_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    moved_[i] = table::ServerOfKey(keys_[i], num_servers);
    ++begin_[moved_[i] + 1];
  }
  for (uint32_t s = 0; s < num_servers; ++s) begin_[s + 1] += begin_[s];
  std::vector<size_t> next(begin_.begin(), begin_.end() - 1);
  unsorted_keys_.swap(keys_);
  unsorted_places_.swap(last_places_);
  keys_.resize(unsorted_keys_.size());
  last_places_.resize(unsorted_keys_.size());
  for (size_t i = 0; i < unsorted_keys_.size(); ++i) {
    const size_t to = next[moved_[i]]++;
    keys_[to] = unsorted_keys_[i];
    last_places_[to] = unsorted_places_[i];
    moved_[i] = static_cast<uint32_t>(to);
    identity_ = identity_ && to == i;
  }
  for (uint32_t& slot : slots_) slot = moved_[slot];
}

void KeySplit::MergeUpTo(size_t end, std::span<const ValuesOfKeys> parts,
                         size_t dim, Merge merge, std::vector<float>& values) {
  if (values.size() < keys_.size() * dim) values.resize(keys_.size() * dim);
  const size_t upto = end == 0 ? 0 : size_t{last_places_[end - 1]} + 1;
  while (merged_ < upto) {
    const ValuesOfKeys& part = parts[merged_part_];
    const size_t count =
        std::min(part.keys.size() - merged_in_part_, upto - merged_);
    const uint32_t* slots = slots_.data() + merged_;
    const float* from = part.values.data() + merged_in_part_ * dim;
    if (merge == Merge::kTakeLast) {
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(values.data() + size_t{slots[i]} * dim, from + i * dim,
                    dim * sizeof(float));
      }
    } else if (dim == 16) {
      SumRows<16>(slots, count, from, dim, begun_.data(), values.data());
    } else {
      SumRows<0>(slots, count, from, dim, begun_.data(), values.data());
    }
    merged_ += count;
    merged_in_part_ += count;
    if (merged_in_part_ == part.keys.size()) {
      ++merged_part_;
      merged_in_part_ = 0;
    }
  }
}

std::vector<float> KeySplit::SumOfEach(std::span<const float> by_place) const {
  std::vector<float> sums(keys_.size(), 0.0f);
  for (size_t i = 0; i < slots_.size(); ++i) sums[slots_[i]] += by_place[i];
  return sums;
}

}  // namespace fleet::ps
