// SPDX-License-Identifier: Apache-2.0

// For tests of channels: messages.

#ifndef FLEET_TESTING_CHANNEL_FIXTURES_H_
#define FLEET_TESTING_CHANNEL_FIXTURES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "fleet/base/deadline.h"
#include "fleet/testing/deadlines.h"

namespace fleet::channel {

using base::Deadline;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Soon;
using Message = std::vector<std::byte>;

inline Deadline Now() { return Deadline::After(0s); }
inline constexpr uint64_t kAnySize = uint64_t{1} << 40;

// `byte_size` bytes that differ from place to place and from seed to seed.
inline Message Pattern(size_t byte_size, uint32_t seed = 0) {
  Message message(byte_size);
  uint32_t state = seed * 2654435761u + 12345;
  for (std::byte& b : message) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return message;
}

inline Message Text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Message(bytes.begin(), bytes.end());
}

}  // namespace fleet::channel

#endif  // FLEET_TESTING_CHANNEL_FIXTURES_H_
