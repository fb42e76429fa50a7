// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/message.h"

#include <algorithm>

namespace fleet::channel {

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

std::string MessageReader::Text() {
  return std::string(base::TextOf(in_.TakeBytes(U32())));
}

std::optional<std::string> MessageReader::OptionalText() {
  if (U8() == 0) return std::nullopt;
  return Text();
}

std::vector<std::string> MessageReader::Texts() {
  const uint32_t count = U32();
  std::vector<std::string> texts;
  // Each takes at least its size, so that a wrong count allocates nothing.
  texts.reserve(std::min<size_t>(count, in_.rest().size() / 4));
  for (uint32_t i = 0; i < count && whole(); ++i) texts.push_back(Text());
  return texts;
}

Status MessageReader::Failure() {
  const uint8_t code = U8();
  std::string message = Text();
  if (code == 0) return OkStatus();
  if (code > static_cast<uint8_t>(StatusCode::kInternal)) {
    in_.Spoil();
    return Internal(message);
  }
  return Status(static_cast<StatusCode>(code), std::move(message));
}

Status MessageReader::Finish() const {
  if (in_.finished()) return OkStatus();
  return DataLoss("a message of the job is damaged");
}

}  // namespace fleet::channel
