// SPDX-License-Identifier: Apache-2.0
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>

#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> Accuracy(const Tensor& out,
                                            const Tensor& indices,
                                            const Tensor& label) {
  int64_t num_rows = indices.size(0);
  TORCH_CHECK(num_rows > 0, "the batch is empty");
  // A NaN counts as larger than every number, so it is among the best.
  TORCH_CHECK(!at::any(at::isnan(out)).item<bool>(), "input has a NaN");
  Tensor correct = at::any(indices == label.reshape({num_rows, 1}), 1).sum();
  auto options = correct.options().dtype(at::kInt);
  return {(correct.to(at::kFloat) / static_cast<double>(num_rows)).reshape({1}),
          correct.to(at::kInt).reshape({1}), at::full({1}, num_rows, options)};
}

}  // namespace

void AddMetricKernels(KernelTable& kernels) {
  kernels.Add<Accuracy>("accuracy");
}

}  // namespace fleet::ops
