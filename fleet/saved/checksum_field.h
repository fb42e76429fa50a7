// SPDX-License-Identifier: Apache-2.0

// A checksum inside a protobuf message that Paddle reads too: its last field,
// in a number that Paddle's messages do not use and its readers skip.

#ifndef FLEET_SAVED_CHECKSUM_FIELD_H_
#define FLEET_SAVED_CHECKSUM_FIELD_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace fleet::saved {

// The field, to be put behind a message.
std::string ChecksumField(uint32_t checksum);

// The message without that field and the checksum in it; no checksum when the
// message does not end in such a field.
struct CheckedMessage {
  std::string_view body;
  bool has_checksum = false;
  uint32_t checksum = 0;
};
CheckedMessage SplitChecksum(std::string_view message);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_CHECKSUM_FIELD_H_
