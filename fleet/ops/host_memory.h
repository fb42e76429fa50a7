// SPDX-License-Identifier: Apache-2.0

// Tensors for code that takes bare memory of the host.

#ifndef FLEET_OPS_HOST_MEMORY_H_
#define FLEET_OPS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace fleet::ops {

// The values of `tensor` in the host's memory, dense and one behind the other,
// as elements of `dtype`; the tensor itself if it is so.
inline at::Tensor OnHost(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.layout() != at::kStrided) return OnHost(tensor.to_dense(), dtype);
  if (tensor.device().is_cpu() && tensor.scalar_type() == dtype &&
      tensor.is_contiguous()) {
    return tensor;
  }
  return tensor.to(at::kCPU, dtype).contiguous();
}

// The memory of a tensor that is as OnHost gives it.
inline std::span<const int64_t> IdsOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(),
          static_cast<size_t>(tensor.numel())};
}
inline std::span<const float> FloatsOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}
inline std::span<float> MutableFloatsOf(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(),
          static_cast<size_t>(tensor.numel())};
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_HOST_MEMORY_H_
