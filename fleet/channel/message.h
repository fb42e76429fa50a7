// SPDX-License-Identifier: Apache-2.0

// Numbers and texts in messages: numbers as base/bytes.h writes them, texts as
// their size in four bytes and then their bytes. The messages themselves are in
// docs/wire.md.

#ifndef FLEET_CHANNEL_MESSAGE_H_
#define FLEET_CHANNEL_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/bytes.h"
#include "fleet/base/status.h"

namespace fleet::channel {

// What the store and the launcher take for one message at most: they are for
// short texts.
inline constexpr uint64_t kMaxMessageByteSize = 64 << 20;

class MessageWriter final {
 public:
  MessageWriter& U8(uint8_t value) { return Number(value); }
  MessageWriter& U32(uint32_t value) { return Number(value); }
  MessageWriter& U64(uint64_t value) { return Number(value); }
  MessageWriter& Text(std::string_view text);
  MessageWriter& OptionalText(std::optional<std::string_view> text);
  MessageWriter& Texts(const std::vector<std::string>& texts);
  MessageWriter& Failure(const Status& status);  // may be ok
  // As it is: what another writer wrote.
  MessageWriter& Raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  std::string Take() { return std::move(bytes_); }

 private:
  template <typename T>
  MessageWriter& Number(T value) {
    base::Append(bytes_, value);
    return *this;
  }

  std::string bytes_;
};

// Reads in the order in which it was written. What is not there reads as zero
// or empty, and Finish() says so: one check at the end is enough.
class MessageReader final {
 public:
  explicit MessageReader(std::string_view bytes) : in_(bytes) {}

  uint8_t U8() { return in_.Take<uint8_t>(); }
  uint32_t U32() { return in_.Take<uint32_t>(); }
  uint64_t U64() { return in_.Take<uint64_t>(); }
  std::string Text();
  std::optional<std::string> OptionalText();
  std::vector<std::string> Texts();
  Status Failure();
  std::string_view rest() const { return base::TextOf(in_.rest()); }
  // Nothing was missing so far.
  bool whole() const { return in_.whole(); }

  // DataLoss when something was missing, or is left over.
  Status Finish() const;

 private:
  base::ByteReader in_;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_MESSAGE_H_
