// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/message.h"

#include <algorithm>

namespace fleet::cluster {

MessageWriter& MessageWriter::Number(uint64_t value, int byte_size) {
  for (int i = 0; i < byte_size; ++i) {
    bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return *this;
}

MessageWriter& MessageWriter::Text(std::string_view text) {
  U32(static_cast<uint32_t>(text.size()));
  return Raw(text);
}

MessageWriter& MessageWriter::OptionalText(
    std::optional<std::string_view> text) {
  U8(text.has_value());
  return text ? Text(*text) : *this;
}

MessageWriter& MessageWriter::Texts(const std::vector<std::string>& texts) {
  U32(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) Text(text);
  return *this;
}

MessageWriter& MessageWriter::Failure(const Status& status) {
  U8(static_cast<uint8_t>(status.code()));
  return Text(status.message());
}

uint64_t MessageReader::Number(size_t byte_size) {
  if (rest_.size() < byte_size) {
    damaged_ = true;
    rest_ = {};
    return 0;
  }
  uint64_t value = 0;
  for (size_t i = 0; i < byte_size; ++i) {
    value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(byte_size);
  return value;
}

std::string MessageReader::Text() {
  const size_t byte_size = U32();
  if (rest_.size() < byte_size) {
    damaged_ = true;
    rest_ = {};
    return {};
  }
  std::string text(rest_.substr(0, byte_size));
  rest_.remove_prefix(byte_size);
  return text;
}

std::optional<std::string> MessageReader::OptionalText() {
  if (U8() == 0) return std::nullopt;
  return Text();
}

std::vector<std::string> MessageReader::Texts() {
  const uint32_t count = U32();
  std::vector<std::string> texts;
  // Each takes at least its size, so that a wrong count allocates nothing.
  texts.reserve(std::min<size_t>(count, rest_.size() / 4));
  for (uint32_t i = 0; i < count && !damaged_; ++i) texts.push_back(Text());
  return texts;
}

Status MessageReader::Failure() {
  const uint8_t code = U8();
  std::string message = Text();
  if (code == 0) return OkStatus();
  if (code > static_cast<uint8_t>(StatusCode::kInternal)) {
    damaged_ = true;
    return Internal(message);
  }
  return Status(static_cast<StatusCode>(code), std::move(message));
}

Status MessageReader::Finish() const {
  if (!damaged_ && rest_.empty()) return OkStatus();
  return DataLoss("a message of the job is damaged");
}

}  // namespace fleet::cluster
