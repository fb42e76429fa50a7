// SPDX-License-Identifier: Apache-2.0

// Tensors as files have them: a type, a shape and bytes.

#ifndef FLEET_SAVED_TENSOR_VIEW_H_
#define FLEET_SAVED_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fleet/program/program.h"

namespace fleet::saved {

// Offsets of the rows' groups, level by level; empty for most tensors.
using Lod = std::vector<std::vector<uint64_t>>;

// A tensor where it lies, row by row, in memory of somebody else.
struct TensorView {
  program::TensorType type;
  std::span<const std::byte> data;  // ByteSize(type) bytes
  std::span<const std::vector<uint64_t>> lod = {};
};

// Bytes of one element; 0 for a type that files do not have.
size_t ElementSize(program::DType dtype);

// Bytes of a tensor of a type that files have; nothing when a dimension is
// negative or the product is too large for a number.
std::optional<uint64_t> ByteSize(const program::TensorType& type);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_TENSOR_VIEW_H_
