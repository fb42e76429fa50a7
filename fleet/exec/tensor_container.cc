// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/tensor_container.h"

#include <cstddef>
#include <optional>
#include <span>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "fleet/ops/aten_error.h"
#include "fleet/ops/kernel.h"

namespace fleet::exec {

using program::DType;
using saved::BlobId;

Result<at::Tensor> RowByRow(const std::string& name, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    return InvalidArgument("'", name, "' is not a dense tensor");
  }
  if (ops::ToDType(tensor.scalar_type()) == DType::kNone) {
    return InvalidArgument("'", name, "' is of type ",
                           c10::toString(tensor.scalar_type()));
  }
  try {
    // The memory of a conjugate is that of the tensor itself, with a mark.
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  } catch (const std::exception& error) {
    return ops::FromException(error).WithContext(name);
  }
}

saved::TensorView ViewOf(const at::Tensor& row_by_row) {
  return {{ops::ToDType(row_by_row.scalar_type()), row_by_row.sizes().vec()},
          {static_cast<const std::byte*>(row_by_row.const_data_ptr()),
           row_by_row.nbytes()}};
}

Result<BlobId> AddTensor(saved::ContainerWriter& writer,
                         const std::string& name, const at::Tensor& tensor) {
  ASSIGN_OR_RETURN(const at::Tensor plain, RowByRow(name, tensor));
  const saved::TensorView view = ViewOf(plain);
  return writer.Add(saved::TensorBlob(view.type, name), view.data);
}

Result<at::Tensor> ReadTensor(const saved::ContainerReader& reader, BlobId id) {
  const std::optional<program::TensorType> type =
      saved::TypeOf(reader.blob(id));
  if (!type) {
    return InvalidArgument("it is no tensor, nor an array that can be one");
  }
  try {
    const at::Tensor tensor =
        at::empty(type->dims, ops::ToScalarType(type->dtype));
    RETURN_IF_ERROR(reader.Read(
        id, std::span(static_cast<std::byte*>(tensor.mutable_data_ptr()),
                      tensor.nbytes())));
    return tensor;
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
}

}  // namespace fleet::exec
