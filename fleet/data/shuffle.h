// SPDX-License-Identifier: Apache-2.0

// Orders by a seed: the same on every machine and with every library.

#ifndef FLEET_DATA_SHUFFLE_H_
#define FLEET_DATA_SHUFFLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace fleet::data {

// SplitMix64: a counter through a mixing function of 64 bits.
class Random final {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Below `bound`: the high half of a product. Its bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

template <typename T>
void Shuffle(std::span<T> items, Random& random) {
  for (size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[random.Below(left)]);
  }
}

}  // namespace fleet::data

#endif  // FLEET_DATA_SHUFFLE_H_
