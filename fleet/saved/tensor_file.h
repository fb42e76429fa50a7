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

#ifndef FLEET_SAVED_TENSOR_FILE_H_
#define FLEET_SAVED_TENSOR_FILE_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/saved/tensor_view.h"

namespace fleet::saved {

// Takes the next bytes of a file.
using Append = std::function<Status(std::span<const std::byte>)>;

// Gives `append` the bytes of one tensor, whose type is one that files have.
// Fails as `append` does.
Status WriteTensor(const TensorView& tensor, const Append& append);

// What stands in front of a tensor's data.
struct TensorHeader {
  std::string name;
  program::TensorType type;
  Lod lod;
};

// Gives the memory for the data of a tensor: ByteSize(type) bytes, to be
// written until the reading function returns.
using MakeRoom = std::function<Result<std::span<std::byte>>(TensorHeader)>;

// Reads as many tensors as there are names, each straight into the memory that
// `make_room` gives for it. DataLoss for bytes that are cut off, damaged, or no
// tensors, and for bytes left over; what the memory holds then says nothing.
// `where` is what errors call the bytes.
Status ParseTensors(std::string_view bytes, std::span<const std::string> names,
                    std::string_view where, const MakeRoom& make_room);
Status LoadTensors(const base::Path& path, std::span<const std::string> names,
                   const MakeRoom& make_room);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_TENSOR_FILE_H_
