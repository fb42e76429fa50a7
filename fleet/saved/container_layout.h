// SPDX-License-Identifier: Apache-2.0

// Where the parts of a container lie: what its writer and its reader share.

#ifndef FLEET_SAVED_CONTAINER_LAYOUT_H_
#define FLEET_SAVED_CONTAINER_LAYOUT_H_

#include <cstdint>

#include "fleet/saved/container.h"

namespace fleet::saved {

inline constexpr uint32_t kContainerVersion = 1;
inline constexpr uint64_t kBlobAlignment = 64;
// Magic, version, zeros.
inline constexpr uint64_t kPreambleSize = 64;
// Position, size and checksum of the header, size of the file, zeros; then the
// checksum of these fields, and the magic.
inline constexpr uint64_t kTrailerFields = 52;
inline constexpr uint64_t kTrailerSize = 64;
static_assert(kTrailerFields + sizeof(uint32_t) + kContainerMagic.size() ==
              kTrailerSize);

// Dimensions of an array or tensor.
inline constexpr size_t kMaxRank = 64;
// Tuples in tuples, in a key.
inline constexpr int kMaxKeyDepth = 2;

}  // namespace fleet::saved

#endif  // FLEET_SAVED_CONTAINER_LAYOUT_H_
