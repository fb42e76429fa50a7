// SPDX-License-Identifier: Apache-2.0

// For benchmarks: requests of keys.

#ifndef FLEET_TESTING_BENCHMARK_KEYS_H_
#define FLEET_TESTING_BENCHMARK_KEYS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "fleet/table/key.h"

namespace fleet::table {

// Several, so that no request finds its keys in the cache.
using Requests = std::vector<std::vector<Key>>;

inline Requests UniformRequests(size_t count, size_t num_keys,
                                uint64_t num_rows) {
  std::mt19937_64 random(1);
  Requests requests(count, std::vector<Key>(num_keys));
  for (auto& request : requests) {
    for (Key& key : request) key = random() % num_rows;
  }
  return requests;
}

// Key i occurs with a probability like (i + 1)^-1.05.
inline Requests ZipfRequests(size_t count, size_t num_keys, uint64_t num_rows) {
  std::vector<double> sums(num_rows);
  double sum = 0;
  for (uint64_t i = 0; i < num_rows; ++i) {
    sum += std::pow(static_cast<double>(i + 1), -1.05);
    sums[i] = sum;
  }
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> unit(0.0, sum);
  Requests requests(count, std::vector<Key>(num_keys));
  for (auto& request : requests) {
    for (Key& key : request) {
      key = static_cast<Key>(
          std::lower_bound(sums.begin(), sums.end(), unit(random)) -
          sums.begin());
    }
  }
  return requests;
}

}  // namespace fleet::table

#endif  // FLEET_TESTING_BENCHMARK_KEYS_H_
