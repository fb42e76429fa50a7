// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/sums.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>

namespace fleet::ops {
namespace {

// The sum of f(0) to f(n - 1). Eight running sums, since an addition waits four
// cycles for the one before.
template <class F>
double SumInLanes(int64_t begin, int64_t end, F f) {
  double sums[8] = {};
  int64_t i = begin;
  for (; i + 8 <= end; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += f(i + lane);
  }
  for (int64_t lane = 0; i < end; ++i, ++lane) sums[lane] += f(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The same in parts, whose sums are added up in their order.
template <class F>
double Sum(int64_t n, F f) {
  constexpr int64_t kPart = 65536;  // worth a thread of its own
  if (n <= kPart) return SumInLanes(0, n, f);
  std::vector<double> parts((n + kPart - 1) / kPart);
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t p = begin; p < end; ++p) {
                       parts[p] = SumInLanes(p * kPart,
                                             std::min((p + 1) * kPart, n), f);
                     }
                   });
  double sum = 0;
  for (double part : parts) sum += part;
  return sum;
}

}  // namespace

double Total(int64_t n, const float* x) {
  return Sum(n, [x](int64_t i) { return x[i]; });
}

double SquaredDistance(int64_t n, const float* a, const float* b) {
  return Sum(n, [a, b](int64_t i) {
    const double d = a[i] - b[i];
    return d * d;
  });
}

}  // namespace fleet::ops
