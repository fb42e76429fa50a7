// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/value.h"

namespace fleet::saved {

// Here and not in the class: inlined into its callers, the move of a variant
// makes GCC 12 warn of members that it believes to be uninitialized.
Value::Value() = default;
Value::Value(Held held) : held(std::move(held)) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

const Value* Dict::Find(const std::string& key) const {
  for (const auto& [name, value] : items) {
    if (const auto* text = std::get_if<std::string>(&name.held);
        text != nullptr && *text == key) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace fleet::saved
