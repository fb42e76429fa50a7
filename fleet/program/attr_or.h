// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_ATTR_OR_H_
#define FLEET_PROGRAM_ATTR_OR_H_

#include <string_view>
#include <variant>

#include "fleet/program/program.h"

namespace fleet::program {

// The value of an attribute; `otherwise` when it is absent or of another kind.
template <class T>
T AttrOr(const Operation& op, std::string_view name, T otherwise = {}) {
  const AttrValue* const attr = op.attr(name);
  const T* const value =
      attr == nullptr ? nullptr : std::get_if<T>(&attr->value);
  return value == nullptr ? otherwise : *value;
}

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_ATTR_OR_H_
