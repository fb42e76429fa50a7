// SPDX-License-Identifier: Apache-2.0

// Files of tensors as Paddle has them: one tensor in a file that bears the name
// of its variable, or many, one after the other, in an order that both sides
// know. A tensor is, little-endian,
//
//   uint32 0       version
//   uint64 levels  of LoD; for each a uint64 size in bytes, then its offsets
//   uint32 0       version
//   int32 size     of the type, a TensorDesc message (program/wire.h)
//   data           row by row
//
// The files that we write carry a checksum inside the type, in a field that
// Paddle skips; where there is one, it is compared. Errors name the file, the
// tensor and the byte. Free functions are thread-safe.

#ifndef FLEET_EXEC_SAVED_TENSOR_H_
#define FLEET_EXEC_SAVED_TENSOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"

namespace fleet::exec {

struct SavedTensor {
  std::string name;
  at::Tensor value;
  // Offsets of the rows' groups, level by level; empty for most tensors.
  std::vector<std::vector<uint64_t>> lod = {};
};

// The tensors, one after the other. InvalidArgument for one that is undefined,
// not dense, or of a type that the format does not have.
Result<std::string> SerializeTensors(std::span<const SavedTensor> tensors);

// The same into a file, which appears whole or not at all (AtomicFile); its
// folder must exist.
Status SaveTensors(const base::Path& path,
                   std::span<const SavedTensor> tensors);

// As many tensors as there are names, on the CPU, in memory of their own.
// DataLoss for bytes that are cut off, damaged, or no tensors, and for bytes
// left over; `where` is what errors call the bytes.
Result<std::vector<SavedTensor>> ParseTensors(
    std::string_view bytes, std::span<const std::string> names,
    std::string_view where);
Result<std::vector<SavedTensor>> LoadTensors(
    const base::Path& path, std::span<const std::string> names);

// The last field of a protobuf message that holds the checksum of something, in
// a number that Paddle's messages do not use and its readers skip.
std::string ChecksumField(uint32_t checksum);
// The message without that field and the checksum in it; no checksum when the
// message does not end in such a field.
struct CheckedMessage {
  std::string_view body;
  bool has_checksum = false;
  uint32_t checksum = 0;
};
CheckedMessage SplitChecksum(std::string_view message);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SAVED_TENSOR_H_
