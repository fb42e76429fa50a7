// SPDX-License-Identifier: Apache-2.0

// Numbers made of names, for addresses at which ranks meet.

#ifndef FLEET_CLUSTER_NAME_HASH_H_
#define FLEET_CLUSTER_NAME_HASH_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace fleet::cluster {

// FNV-1a, with its last bits mixed: all ranks must come to the same number,
// whatever library they were built with.
inline uint64_t NameHash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return (hash ^ hash >> 31) * 0x9e3779b97f4a7c15 >> 16;
}

// The hash as sixteen digits.
inline std::string NameDigits(std::string_view text) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(NameHash(text)));
  return digits;
}

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_NAME_HASH_H_
