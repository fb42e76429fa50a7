// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/sums.h"

namespace fleet::ops {

double Total(int64_t n, const float* x) {
  return SumOf(n, [x](int64_t i) { return x[i]; });
}

double SquaredDistance(int64_t n, const float* a, const float* b) {
  return SumOf(n, [a, b](int64_t i) {
    const double d = a[i] - b[i];
    return d * d;
  });
}

void ColumnSums(int64_t m, int64_t n, const float* x, float* sums) {
  std::fill_n(sums, n, 0.0f);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) sums[j] += x[i * n + j];
  }
}

}  // namespace fleet::ops
