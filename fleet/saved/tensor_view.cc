// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/tensor_view.h"

namespace fleet::saved {

using program::DType;

size_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    case DType::kNone:
      break;
  }
  // Also for a number out of a file that is none of ours.
  return 0;
}

std::optional<uint64_t> ByteSize(const program::TensorType& type) {
  uint64_t size = ElementSize(type.dtype);
  for (int64_t dim : type.dims) {
    if (dim < 0 ||
        __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) {
      return std::nullopt;
    }
  }
  return size;
}

}  // namespace fleet::saved
