// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/heap.h"

#include <cstdlib>
#include <limits>
#include <string_view>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace fleet::base {

#if defined(__GLIBC__)
namespace {

// The size of blocks that are taken from the kernel and given back one by one.
// Larger ones do not come from a heap: a hole that large is seldom filled
// again. Before 2.35 glibc takes no more than the second.
constexpr int kAloneByteSize = 256 << 20;
constexpr int kAloneByteSizeBefore = 32 << 20;

bool EnvironmentDecides() {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
                           "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string_view(tunables).find(
                                    "glibc.malloc.") != std::string_view::npos;
}

}  // namespace

bool KeepFreedMemory() {
  if (EnvironmentDecides()) return false;
  // Each of the two ends glibc's own adjusting, so there is no use for one
  // without the other.
  return (mallopt(M_MMAP_THRESHOLD, kAloneByteSize) != 0 ||
          mallopt(M_MMAP_THRESHOLD, kAloneByteSizeBefore) != 0) &&
         mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) != 0;
}
#else
bool KeepFreedMemory() { return false; }
#endif

}  // namespace fleet::base
