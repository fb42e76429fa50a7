// SPDX-License-Identifier: Apache-2.0

// Bytes that somebody damaged or crafted: what tests of readers feed them.

#ifndef FLEET_TESTING_MUTATIONS_H_
#define FLEET_TESTING_MUTATIONS_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <sys/resource.h>

namespace fleet::testing {

using Draw = std::mt19937_64;

inline size_t Below(Draw& draw, size_t bound) { return draw() % bound; }

// `bytes` with one to four changes: a byte, a piece that is missing or there
// twice, a number of the kind that breaks programs, the end cut off.
inline std::string Mutated(std::string bytes, Draw& draw) {
  constexpr std::array<uint64_t, 10> kNumbers = {
      0,       1,       0x7fffffff, 0x80000000,       0xffffffff,
      1 << 20, 1 << 28, ~0ull / 8,  0x7fffffffffffff, ~0ull};
  for (size_t i = 1 + Below(draw, 4); i > 0; --i) {
    if (bytes.empty()) return bytes;
    const size_t at = Below(draw, bytes.size());
    switch (Below(draw, 8)) {
      case 0:
        bytes.erase(at, 1 + Below(draw, 16));
        break;
      case 1:
        bytes.insert(at, bytes.substr(at, 1 + Below(draw, 32)));
        break;
      case 2:
      case 3: {
        const uint64_t number = kNumbers[Below(draw, kNumbers.size())];
        const size_t size = Below(draw, 2) == 0 ? 4 : 8;
        if (at + size <= bytes.size()) {
          std::memcpy(bytes.data() + at, &number, size);
        }
        break;
      }
      case 4:
        if (Below(draw, 4) == 0) bytes.resize(at);
        break;
      case 5:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(draw, 8)));
        break;
      default:
        bytes[at] = static_cast<char>(Below(draw, 256));
    }
  }
  return bytes;
}

// The most memory that this process ever had, in bytes: a reader that takes
// what a forged size asks for shows here. AddressSanitizer keeps what was
// freed, so that it shows nothing there.
inline uint64_t PeakMemory() {
#if defined(__SANITIZE_ADDRESS__)
  return 0;
#else
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace fleet::testing

#endif  // FLEET_TESTING_MUTATIONS_H_
