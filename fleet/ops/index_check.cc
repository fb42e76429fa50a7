// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/index_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/nonzero.h>

namespace fleet::ops {
namespace {

void Fail(const char* what, int64_t index, int64_t position, int64_t begin,
          int64_t end) {
  TORCH_CHECK_INDEX(false, what, " ", index, " at position ", position,
                    " is outside [", begin, ", ", end, ")");
}

}  // namespace

void CheckIndices(const char* what, const at::Tensor& index, int64_t begin,
                  int64_t end) {
  if (index.device().is_cpu()) {
    at::Tensor flat = index.contiguous();
    const int64_t* data = flat.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      if (data[i] < begin || data[i] >= end) {
        Fail(what, data[i], i, begin, end);
      }
    }
    return;
  }
  at::Tensor flat = index.reshape({-1});
  at::Tensor bad = at::logical_or(flat < begin, flat >= end);
  if (!at::any(bad).item<bool>()) return;
  int64_t position = at::nonzero(bad)[0].item<int64_t>();
  Fail(what, flat[position].item<int64_t>(), position, begin, end);
}

}  // namespace fleet::ops
