// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan_memory.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace fleet::exec {
namespace {

constexpr int64_t kAlign = 64;  // a cache line, and a vector of AVX-512

int64_t Rounded(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

MemoryLayout LayOut(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lifetimes[a].byte_size > lifetimes[b].byte_size;
  });
  MemoryLayout layout;
  layout.offsets.resize(lifetimes.size());
  std::vector<size_t> placed;  // by offset
  for (size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const int64_t size = Rounded(life.byte_size);
    int64_t best = -1;
    int64_t best_gap = std::numeric_limits<int64_t>::max();
    int64_t end = 0;  // of what lies before
    for (size_t other : placed) {
      const Lifetime& that = lifetimes[other];
      if (that.last < life.first || life.last < that.first) continue;
      const int64_t gap = layout.offsets[other] - end;
      if (gap >= size && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, layout.offsets[other] + Rounded(that.byte_size));
    }
    layout.offsets[i] = best >= 0 ? best : end;
    layout.byte_size = std::max(layout.byte_size, layout.offsets[i] + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) {
                                     return layout.offsets[a] <
                                            layout.offsets[b];
                                   }),
                  i);
  }
  return layout;
}

}  // namespace fleet::exec
