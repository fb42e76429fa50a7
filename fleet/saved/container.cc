// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/container.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fleet::saved {
namespace {

using program::DType;

// numpy's element types that files have, and the tensors' beside them.
struct ArrayElement {
  std::string_view code;
  size_t byte_size;
  DType dtype;
};
constexpr ArrayElement kArrayElements[] = {
    {"|b1", 1, DType::kBool},      {"|i1", 1, DType::kInt8},
    {"|u1", 1, DType::kUint8},     {"<i2", 2, DType::kInt16},
    {"<u2", 2, DType::kNone},      {"<i4", 4, DType::kInt32},
    {"<u4", 4, DType::kNone},      {"<i8", 8, DType::kInt64},
    {"<u8", 8, DType::kNone},      {"<f2", 2, DType::kFloat16},
    {"<f4", 4, DType::kFloat32},   {"<f8", 8, DType::kFloat64},
    {"<c8", 8, DType::kComplex64}, {"<c16", 16, DType::kComplex128},
};

const ArrayElement* FindArrayElement(std::string_view code) {
  const auto* found =
      std::find_if(std::begin(kArrayElements), std::end(kArrayElements),
                   [&](const ArrayElement& each) { return each.code == code; });
  return found == std::end(kArrayElements) ? nullptr : found;
}

}  // namespace

size_t ElementSize(Blob::Kind kind, std::string_view element) {
  switch (kind) {
    case Blob::Kind::kBytes:
      return 0;
    case Blob::Kind::kArray:
    case Blob::Kind::kScalar: {
      const ArrayElement* found = FindArrayElement(element);
      return found == nullptr ? 0 : found->byte_size;
    }
    case Blob::Kind::kTensor: {
      const std::optional<DType> dtype = program::ParseDType(element);
      // Types have other spellings, too, which files do not have.
      if (!dtype || program::Name(*dtype) != element) return 0;
      return ElementSize(*dtype);
    }
  }
  return 0;
}

Blob TensorBlob(const program::TensorType& type, std::string name) {
  return {.kind = Blob::Kind::kTensor,
          .element = std::string(program::Name(type.dtype)),
          .shape = type.dims,
          .name = std::move(name)};
}

std::optional<program::TensorType> TypeOf(const Blob& blob) {
  DType dtype = DType::kNone;
  if (blob.kind == Blob::Kind::kTensor) {
    dtype = program::ParseDType(blob.element).value_or(DType::kNone);
  } else if (blob.kind == Blob::Kind::kArray) {
    const ArrayElement* found = FindArrayElement(blob.element);
    if (found != nullptr) dtype = found->dtype;
  }
  if (dtype == DType::kNone) return std::nullopt;
  return program::TensorType{dtype, blob.shape};
}

}  // namespace fleet::saved
