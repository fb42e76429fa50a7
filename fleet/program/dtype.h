// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_DTYPE_H_
#define FLEET_PROGRAM_DTYPE_H_

#include <optional>
#include <string_view>

namespace fleet::program {

// Element types. The numbers are those of Paddle's wire form.
enum class DType : int {
  kNone = -1,  // not said: the op decides
  kBool = 0,
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kFloat32 = 5,
  kFloat64 = 6,
  kUint8 = 20,
  kInt8 = 21,
  kBfloat16 = 22,
  kComplex64 = 23,
  kComplex128 = 24,
};

// "float32" and so on; "none" for kNone.
std::string_view Name(DType dtype);

// The inverse of Name(). Also knows "float" and "double".
std::optional<DType> ParseDType(std::string_view name);

bool IsFloating(DType dtype);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_DTYPE_H_
