// SPDX-License-Identifier: Apache-2.0

// CRC-32C (Castagnoli), the checksum of every file and message we write. It
// finds every burst of up to 32 damaged bits; it is no protection against
// somebody who wants to deceive.

#ifndef FLEET_BASE_CRC32C_H_
#define FLEET_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fleet::base {

// The checksum of `bytes`. With the checksum of what came before as `before`,
// the checksum of both together. Uses the processor's instruction where there
// is one. Thread-safe.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);

// The checksum of two pieces, one after the other, from the checksum of each
// and the size of the second: neither is read again.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_byte_size);

// Crc32c by tables, for machines without the instruction.
uint32_t Crc32cByTable(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace fleet::base

#endif  // FLEET_BASE_CRC32C_H_
