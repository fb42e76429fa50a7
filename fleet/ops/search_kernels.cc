// SPDX-License-Identifier: Apache-2.0
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/masked_scatter.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/kernels.h"
#include "fleet/ops/shape_argument.h"

namespace fleet::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

TensorPair Topk(const Tensor& x, const Tensor& k_tensor, int64_t k,
                int64_t axis, bool largest, bool sorted) {
  int64_t dim = at::maybe_wrap_dim(axis, x.dim(), /*wrap_scalar=*/false);
  int64_t count = k_tensor.defined() ? k_tensor.item().toLong() : k;
  TORCH_CHECK(count >= 1, "k is ", count, ", but must be positive");
  return at::topk(x, count, dim, largest, sorted);
}
Tensor TopkGrad(const Tensor& x, const Tensor& indices, const Tensor& dout,
                int64_t, int64_t axis, bool, bool) {
  return at::scatter(at::zeros(x.sizes(), dout.options()), axis, indices, dout);
}

TensorPair OldTopk(const Tensor& x, const Tensor& k_tensor, int64_t k) {
  return Topk(x, k_tensor, k, -1, true, true);
}
Tensor OldTopkGrad(const Tensor& x, const Tensor& indices, const Tensor& dout,
                   int64_t k) {
  return TopkGrad(x, indices, dout, k, -1, true, true);
}

TensorPair Argsort(const Tensor& x, int64_t axis, bool descending) {
  return at::sort(x, /*stable=*/true, axis, descending);
}
Tensor ArgsortGrad(const Tensor& indices, const Tensor& dout, int64_t axis,
                   bool) {
  return at::scatter(at::zeros_like(dout), axis, indices, dout);
}

template <bool kMax>
Tensor ArgExtreme(const Tensor& x, int64_t axis, bool keep, bool flatten,
                  DType dtype) {
  TORCH_CHECK(dtype == DType::kInt32 || dtype == DType::kInt64,
              "dtype must be int32 or int64");
  std::optional<int64_t> dim;
  if (!flatten) dim = at::maybe_wrap_dim(axis, x.dim());
  Tensor out = kMax ? at::argmax(x, dim, keep) : at::argmin(x, dim, keep);
  if (flatten) {
    out = out.reshape(std::vector<int64_t>(keep ? x.dim() : 1, 1));
  } else if (out.dim() == 0) {
    out = out.reshape({1});
  }
  return out.to(ToScalarType(dtype));
}

Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  TORCH_CHECK(condition.scalar_type() == at::kBool, "condition must be bool");
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "x and y differ in dtype");
  return at::where(condition, x, y);
}
TensorPair WhereGrad(const Tensor& condition, const Tensor& x, const Tensor& y,
                     const Tensor& dout, GradNeeds needs) {
  Tensor zero = at::zeros({}, dout.options());
  return {needs[0] ? at::sum_to(at::where(condition, dout, zero), x.sizes())
                   : Tensor(),
          needs[1] ? at::sum_to(at::where(condition, zero, dout), y.sizes())
                   : Tensor()};
}

Tensor MaskedSelect(const Tensor& x, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool && mask.sizes() == x.sizes(),
              "mask must be bool and have the shape of x");
  return at::masked_select(x, mask);
}
Tensor MaskedSelectGrad(const Tensor& x, const Tensor& mask,
                        const Tensor& dout) {
  return at::masked_scatter(at::zeros(x.sizes(), dout.options()), mask, dout);
}

// For each distinct element, where it occurs first.
Tensor FirstOccurrence(const Tensor& inverse, int64_t num_distinct) {
  int64_t n = inverse.numel();
  Tensor first = at::full({num_distinct}, n, inverse.options());
  return at::scatter_reduce(first, 0, inverse.reshape({-1}),
                            at::arange(n, inverse.options()), "amin");
}

std::tuple<Tensor, Tensor, Tensor, Tensor> Unique(const Tensor& x, DType dtype,
                                                  bool return_index,
                                                  bool return_inverse,
                                                  bool return_counts,
                                                  IntArrayRef axis) {
  TORCH_CHECK(dtype == DType::kInt32 || dtype == DType::kInt64,
              "dtype must be int32 or int64");
  bool inverse_needed = return_index || return_inverse;
  auto [values, inverse, counts] =
      axis.empty()
          ? at::_unique2(x.reshape({-1}), true, inverse_needed, return_counts)
          : at::unique_dim(x, axis[0], true, inverse_needed, return_counts);
  at::ScalarType type = ToScalarType(dtype);
  Tensor first;
  if (return_index) {
    int64_t dim = axis.empty() ? 0 : at::maybe_wrap_dim(axis[0], x.dim());
    first = FirstOccurrence(inverse, values.size(dim)).to(type);
  }
  return {values, first, return_inverse ? inverse.to(type) : Tensor(),
          return_counts ? counts.to(type) : Tensor()};
}

}  // namespace

void AddSearchKernels(KernelTable& k) {
  k.Add<Topk, TopkGrad>("top_k_v2");
  k.Add<OldTopk, OldTopkGrad>("top_k");
  k.Add<Argsort, ArgsortGrad>("argsort");
  k.Add<ArgExtreme<true>>("arg_max");
  k.Add<ArgExtreme<false>>("arg_min");
  k.Add<Where, WhereGrad>("where");
  k.Add<[](const Tensor& condition) { return at::nonzero(condition); }>(
      "where_index");
  k.Add<MaskedSelect, MaskedSelectGrad>("masked_select");
  k.Add<Unique>("unique");
}

}  // namespace fleet::ops
