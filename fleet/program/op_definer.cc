// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/op_definer.h"

#include <utility>

#include "fleet/base/check.h"

namespace fleet::program {

OpDefiner& OpDefiner::Define(std::string_view schema, ShapeRule shape,
                             std::string_view grad) {
  ops_.Define(schema, std::move(shape), grad);
  last_ = schema.substr(0, schema.find('('));
  return *this;
}

OpDefiner& OpDefiner::DefineExternal(std::string_view schema, ShapeRule shape,
                                     std::string_view grad) {
  ops_.DefineExternal(schema, std::move(shape), grad);
  last_ = schema.substr(0, schema.find('('));
  return *this;
}

OpDefiner& OpDefiner::Python(std::string_view names, std::string_view help) {
  FLEET_CHECK(!last_.empty(), "no op was defined before ", names);
  if (faces_ != nullptr) {
    faces_->push_back({last_, std::string(names), std::string(help)});
  }
  return *this;
}

}  // namespace fleet::program
