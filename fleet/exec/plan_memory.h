// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_EXEC_PLAN_MEMORY_H_
#define FLEET_EXEC_PLAN_MEMORY_H_

#include <cstdint>
#include <span>
#include <vector>

namespace fleet::exec {

// Memory that is needed from step `first` to step `last`, both included.
struct Lifetime {
  int64_t byte_size = 0;
  int first = 0;
  int last = 0;
};

struct MemoryLayout {
  std::vector<int64_t> offsets;  // in the order of the lifetimes
  int64_t byte_size = 0;         // of the whole
};

// Gives every lifetime a place in one piece of memory, so that two that overlap
// in time do not overlap in space. Offsets are multiples of 64. The larger ones
// are placed first, each in the smallest gap that takes it, which comes within
// a few percent of the largest sum of what lives at one time.
MemoryLayout LayOut(std::span<const Lifetime> lifetimes);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_PLAN_MEMORY_H_
