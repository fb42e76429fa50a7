// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_INDEX_CHECK_H_
#define FLEET_OPS_INDEX_CHECK_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace fleet::ops {

// Fails on the first element of `index` (int64) outside [begin, end), calling
// it `what`. On a GPU it waits for the result: an index outside would kill the
// device's context.
void CheckIndices(const char* what, const at::Tensor& index, int64_t begin,
                  int64_t end);

}  // namespace fleet::ops

#endif  // FLEET_OPS_INDEX_CHECK_H_
