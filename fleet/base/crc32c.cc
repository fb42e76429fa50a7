// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/crc32c.h"

#include <array>
#include <cstring>

namespace fleet::base {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with bits reversed

// kTables[0][b] is the checksum of byte b; kTables[k][b] that of b followed by
// k zero bytes. With eight of them eight bytes are folded in one step.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

// What so many zero bytes behind a message do to its checksum (as it is inside
// the computation) is a linear map of its 32 bits: column i is what becomes of
// bit i.
using LinearMap = std::array<uint32_t, 32>;

constexpr uint32_t Apply(const LinearMap& map, uint32_t x) {
  uint32_t result = 0;
  for (size_t i = 0; x != 0; ++i, x >>= 1) {
    if ((x & 1) != 0) result ^= map[i];
  }
  return result;
}

// kZeros[k] is the map of 2^k zero bytes.
constexpr std::array<LinearMap, 48> MakeZeros() {
  std::array<LinearMap, 48> zeros{};
  for (size_t i = 0; i < 32; ++i) {
    uint32_t crc = uint32_t{1} << i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    zeros[0][i] = crc;
  }
  for (size_t k = 1; k < zeros.size(); ++k) {
    for (size_t i = 0; i < 32; ++i) {
      zeros[k][i] = Apply(zeros[k - 1], zeros[k - 1][i]);
    }
  }
  return zeros;
}

constexpr std::array<LinearMap, 48> kZeros = MakeZeros();

uint32_t ShiftedByZeros(uint32_t crc, uint64_t count) {
  for (size_t k = 0; count != 0 && k < kZeros.size(); ++k, count >>= 1) {
    if ((count & 1) != 0) crc = Apply(kZeros[k], crc);
  }
  return crc;
}

// Little-endian on every machine; compilers make it one load.
uint32_t Load32(const std::byte* p) {
  return std::to_integer<uint32_t>(p[0]) |
         std::to_integer<uint32_t>(p[1]) << 8 |
         std::to_integer<uint32_t>(p[2]) << 16 |
         std::to_integer<uint32_t>(p[3]) << 24;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t
Crc32cByInstruction(std::span<const std::byte> bytes, uint32_t before) {
  const std::byte* p = bytes.data();
  const std::byte* const end = p + bytes.size();
  uint64_t crc = ~before;
  // The instruction takes three cycles and can begin in each: three pieces at
  // a time. Joining them costs about as much as 200 bytes.
  constexpr ptrdiff_t kPiece = 4096;
  for (; end - p >= 3 * kPiece; p += 3 * kPiece) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (ptrdiff_t i = 0; i < kPiece; i += 8) {
      uint64_t words[3];
      std::memcpy(&words[0], p + i, 8);
      std::memcpy(&words[1], p + kPiece + i, 8);
      std::memcpy(&words[2], p + 2 * kPiece + i, 8);
      crc = __builtin_ia32_crc32di(crc, words[0]);
      second = __builtin_ia32_crc32di(second, words[1]);
      third = __builtin_ia32_crc32di(third, words[2]);
    }
    const uint32_t two = ShiftedByZeros(static_cast<uint32_t>(crc), kPiece) ^
                         static_cast<uint32_t>(second);
    crc = ShiftedByZeros(two, kPiece) ^ static_cast<uint32_t>(third);
  }
  for (; end - p >= 8; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t crc32 = static_cast<uint32_t>(crc);
  for (; p != end; ++p) {
    crc32 = __builtin_ia32_crc32qi(crc32, std::to_integer<uint8_t>(*p));
  }
  return ~crc32;
}

bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
uint32_t Crc32cByInstruction(std::span<const std::byte> bytes,
                             uint32_t before) {
  return Crc32cByTable(bytes, before);
}

bool HasInstruction() { return false; }
#endif

}  // namespace

uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t before) {
  const std::byte* p = bytes.data();
  const std::byte* const end = p + bytes.size();
  uint32_t crc = ~before;
  for (; end - p >= 8; p += 8) {
    const uint32_t low = crc ^ Load32(p);
    const uint32_t high = Load32(p + 4);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^
          kTables[5][(low >> 16) & 0xff] ^ kTables[4][low >> 24] ^
          kTables[3][high & 0xff] ^ kTables[2][(high >> 8) & 0xff] ^
          kTables[1][(high >> 16) & 0xff] ^ kTables[0][high >> 24];
  }
  for (; p != end; ++p) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*p)) & 0xff];
  }
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const bool has_instruction = HasInstruction();
  return has_instruction ? Crc32cByInstruction(bytes, before)
                         : Crc32cByTable(bytes, before);
}

uint32_t JoinCrc32c(uint32_t first, uint32_t second,
                    uint64_t second_byte_size) {
  return ShiftedByZeros(first, second_byte_size) ^ second;
}

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
  return Crc32c(std::as_bytes(std::span(bytes)), before);
}

}  // namespace fleet::base
