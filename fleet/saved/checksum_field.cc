// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/checksum_field.h"

#include <cstdint>
#include <span>

#include "fleet/base/bytes.h"

namespace fleet::saved {
namespace {

// Field 7001 with four bytes.
constexpr std::string_view kTag = "\xCD\xB5\x03";
constexpr size_t kSize = kTag.size() + sizeof(uint32_t);

}  // namespace

std::string ChecksumField(uint32_t checksum) {
  std::string bytes(kTag);
  base::Append(bytes, checksum);
  return bytes;
}

CheckedMessage SplitChecksum(std::string_view message) {
  CheckedMessage result{.body = message};
  if (message.size() < kSize) return result;
  const std::string_view field = message.substr(message.size() - kSize);
  if (!field.starts_with(kTag)) return result;
  result.body = message.substr(0, message.size() - kSize);
  result.has_checksum = true;
  result.checksum =
      base::LoadAt<uint32_t>(std::as_bytes(std::span(field)), kTag.size());
  return result;
}

}  // namespace fleet::saved
