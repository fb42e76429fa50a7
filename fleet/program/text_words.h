// SPDX-License-Identifier: Apache-2.0

// Words of a program's text (text.h) and what they stand for.

#ifndef FLEET_PROGRAM_TEXT_WORDS_H_
#define FLEET_PROGRAM_TEXT_WORDS_H_

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "fleet/program/program.h"

namespace fleet::program {

inline constexpr std::array<std::pair<VariableKind, std::string_view>, 8>
    kKinds = {{
        {VariableKind::kTensor, "LOD_TENSOR"},
        {VariableKind::kSelectedRows, "SELECTED_ROWS"},
        {VariableKind::kFeedList, "FEED_MINIBATCH"},
        {VariableKind::kFetchList, "FETCH_LIST"},
        {VariableKind::kStepScopes, "STEP_SCOPES"},
        {VariableKind::kTensorArray, "LOD_TENSOR_ARRAY"},
        {VariableKind::kReader, "READER"},
        {VariableKind::kRaw, "RAW"},
    }};

inline std::string_view KindName(VariableKind kind) {
  for (const auto& [value, name] : kKinds) {
    if (value == kind) return name;
  }
  return "RAW";
}

// The kinds that a value does not show by itself.
inline constexpr std::array<std::pair<AttrKind, std::string_view>, 6>
    kSaidKinds = {{
        {AttrKind::kLong, "long"},
        {AttrKind::kFloat64, "float64"},
        {AttrKind::kLongs, "longs"},
        {AttrKind::kFloat64s, "float64s"},
        {AttrKind::kBlock, "block"},
        {AttrKind::kBlocks, "blocks"},
    }};
// Lists whose elements show the kind, if there are any.
inline constexpr std::array<std::pair<AttrKind, std::string_view>, 4>
    kListKinds = {{
        {AttrKind::kInts, "ints"},
        {AttrKind::kFloats, "floats"},
        {AttrKind::kStrings, "strings"},
        {AttrKind::kBools, "bools"},
    }};

template <class Table>
std::string_view NameIn(const Table& table, AttrKind kind) {
  for (const auto& [value, name] : table) {
    if (value == kind) return name;
  }
  return "";
}

template <class Table>
std::optional<AttrKind> KindIn(const Table& table, std::string_view word) {
  for (const auto& [value, name] : table) {
    if (name == word) return value;
  }
  return std::nullopt;
}

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_TEXT_WORDS_H_
