// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/op_role.h"

#include <cstdint>
#include <variant>

namespace fleet::program {

std::string GradName(std::string_view variable) {
  return std::string(variable) + std::string(kGradSuffix);
}

OpRole RoleOf(const Operation& op) {
  const AttrValue* role = op.attr(kOpRole);
  const auto* number =
      role == nullptr ? nullptr : std::get_if<int64_t>(&role->value);
  return number == nullptr ? OpRole::kForward : static_cast<OpRole>(*number);
}

void SetRole(Operation& op, OpRole role) {
  op.attrs.insert_or_assign(
      std::string(kOpRole),
      AttrValue{AttrKind::kInt, static_cast<int64_t>(role)});
}

}  // namespace fleet::program
