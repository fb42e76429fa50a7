// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

bool IsUpscale(const std::string& implementation) {
  TORCH_CHECK(implementation == "upscale_in_train" ||
                  implementation == "downscale_in_infer",
              "unknown mode");
  return implementation == "upscale_in_train";
}

// One number per element, or with `axis` one for all along the others.
Tensor DrawMask(const Tensor& x, double p, bool upscale, at::IntArrayRef axis) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  if (!axis.empty()) shape.assign(x.dim(), 1);
  for (int64_t a : axis) {
    TORCH_CHECK(a >= -x.dim() && a < x.dim(), "no axis ", a);
    if (a < 0) a += x.dim();
    shape[a] = x.size(a);
  }
  Tensor mask = at::empty(shape, x.options());
  if (p == 1) return mask.zero_();
  mask.bernoulli_(1 - p);
  return upscale && p > 0 ? mask.div_(1 - p) : mask;
}

std::tuple<Tensor, Tensor> Dropout(const Tensor& x, double p, bool is_test,
                                   const std::string& implementation,
                                   at::IntArrayRef axis) {
  TORCH_CHECK(p >= 0 && p <= 1, "p must lie in [0, 1]");
  bool upscale = IsUpscale(implementation);
  // A new tensor over the same memory: the input itself has a history already.
  if (is_test) return {upscale ? x.detach() : x * (1 - p), Tensor()};
  Tensor mask = DrawMask(x, p, upscale, axis);
  return {x * mask, mask};
}

Tensor DropoutGrad(const Tensor& mask, const Tensor& dout, double p,
                   bool is_test, const std::string& implementation,
                   at::IntArrayRef) {
  if (!is_test) return dout * mask;
  return IsUpscale(implementation) ? dout : dout * (1 - p);
}

}  // namespace

void AddDropoutKernels(KernelTable& k) {
  k.Add<Dropout, DropoutGrad>("dropout");
}

}  // namespace fleet::ops
