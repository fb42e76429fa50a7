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

// Little-endian on every machine; compilers make it one load.
uint32_t Load32(const std::byte* p) {
  return std::to_integer<uint32_t>(p[0]) |
         std::to_integer<uint32_t>(p[1]) << 8 |
         std::to_integer<uint32_t>(p[2]) << 16 |
         std::to_integer<uint32_t>(p[3]) << 24;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cByInstruction(
    std::span<const std::byte> bytes, uint32_t before) {
  const std::byte* p = bytes.data();
  const std::byte* const end = p + bytes.size();
  uint64_t crc = ~before;
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

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
  return Crc32c(std::as_bytes(std::span(bytes)), before);
}

}  // namespace fleet::base
