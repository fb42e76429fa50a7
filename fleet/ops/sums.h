// SPDX-License-Identifier: Apache-2.0

// Sums over bare memory, for kernels and their forms. They are taken in an
// order that depends on the number of elements alone, not on that of threads.

#ifndef FLEET_OPS_SUMS_H_
#define FLEET_OPS_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>

namespace fleet::ops {

// The sum of f(begin) to f(end - 1) in double. Eight running sums, since an
// addition waits four cycles for the one before.
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

// The same of f(0) to f(n - 1), in parts whose sums are added up in their
// order. Threads may take the parts.
template <class F>
double SumOf(int64_t n, F f) {
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

// The sum of n floats.
double Total(int64_t n, const float* x);

// The sum of (a[i] - b[i])^2.
double SquaredDistance(int64_t n, const float* a, const float* b);

// sums[j] = the sum over i of x[i * n + j], row after row.
void ColumnSums(int64_t m, int64_t n, const float* x, float* sums);

}  // namespace fleet::ops

#endif  // FLEET_OPS_SUMS_H_
