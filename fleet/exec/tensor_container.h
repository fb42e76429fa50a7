// SPDX-License-Identifier: Apache-2.0

// Tensors in the files of paddle.save (saved/container.h).

#ifndef FLEET_EXEC_TENSOR_CONTAINER_H_
#define FLEET_EXEC_TENSOR_CONTAINER_H_

#include <string>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/saved/container.h"
#include "fleet/saved/tensor_view.h"

namespace fleet::exec {

// The tensor's values row by row on the CPU: the tensor itself where they lie
// so, else a copy. InvalidArgument, which has `name`, for a tensor that is
// undefined, not dense, or of a type that files do not have.
Result<at::Tensor> RowByRow(const std::string& name, const at::Tensor& tensor);
// The memory of such a tensor, for as long as it lives.
saved::TensorView ViewOf(const at::Tensor& row_by_row);

// Writes the values under `name`. Fails as RowByRow and ContainerWriter::Add
// do.
Result<saved::BlobId> AddTensor(saved::ContainerWriter& writer,
                                const std::string& name,
                                const at::Tensor& tensor);

// A tensor or array of the container, on the CPU, in memory of its own.
// InvalidArgument for a byte string, a single number, and an array of a type
// that tensors do not have; else fails as ContainerReader::Read does.
Result<at::Tensor> ReadTensor(const saved::ContainerReader& reader,
                              saved::BlobId id);

}  // namespace fleet::exec

#endif  // FLEET_EXEC_TENSOR_CONTAINER_H_
