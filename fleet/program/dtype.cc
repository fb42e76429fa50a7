// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/dtype.h"

#include <array>
#include <utility>

namespace fleet::program {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 13> kNames = {{
    {DType::kNone, "none"},
    {DType::kBool, "bool"},
    {DType::kInt16, "int16"},
    {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},
    {DType::kFloat16, "float16"},
    {DType::kFloat32, "float32"},
    {DType::kFloat64, "float64"},
    {DType::kUint8, "uint8"},
    {DType::kInt8, "int8"},
    {DType::kBfloat16, "bfloat16"},
    {DType::kComplex64, "complex64"},
    {DType::kComplex128, "complex128"},
}};

}  // namespace

std::string_view Name(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "unknown";
}

std::optional<DType> ParseDType(std::string_view name) {
  if (name == "float") return DType::kFloat32;
  if (name == "double") return DType::kFloat64;
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64 || dtype == DType::kBfloat16 ||
         dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

}  // namespace fleet::program
