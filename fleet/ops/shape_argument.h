// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_SHAPE_ARGUMENT_H_
#define FLEET_OPS_SHAPE_ARGUMENT_H_

#include <vector>

#include <ATen/core/Tensor.h>

namespace fleet::ops {

// The numbers in an integer tensor `given`, or `otherwise` if there is none:
// for arguments such as a shape, which are known when an op is called or only
// when the program runs.
inline std::vector<int64_t> IntsOf(const at::Tensor& given,
                                   at::IntArrayRef otherwise) {
  if (!given.defined()) return otherwise.vec();
  TORCH_CHECK(
      at::isIntegralType(given.scalar_type(), false) && given.dim() <= 1,
      "a shape must be a tensor of integers with one dimension, not ",
      given.scalar_type(), " ", given.sizes());
  at::Tensor host = given.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return std::vector<int64_t>(data, data + host.numel());
}

// `shape` with dimension `from` of `input` at place `to`: the batch size, which
// is not known before a program runs.
inline std::vector<int64_t> ShapeLikeBatch(const at::Tensor& input,
                                           at::IntArrayRef shape, int64_t from,
                                           int64_t to) {
  std::vector<int64_t> dims = shape.vec();
  const auto rank = static_cast<int64_t>(dims.size());
  TORCH_CHECK(to >= -rank && to < rank, "shape has no dimension ", to);
  dims[to < 0 ? to + rank : to] = input.size(from);
  return dims;
}

// An index as ATen takes it: int64, one dimension.
inline at::Tensor FlatIndex(const at::Tensor& index) {
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "index must be int32 or int64, not ", index.scalar_type());
  TORCH_CHECK(index.dim() <= 1 || (index.dim() == 2 && index.size(1) == 1),
              "index ", index.sizes(), " must have one dimension");
  return index.reshape({-1}).to(at::kLong);
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_SHAPE_ARGUMENT_H_
