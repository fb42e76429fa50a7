// SPDX-License-Identifier: Apache-2.0

// Sums over bare memory, for kernels and their forms. They are taken in an
// order that depends on the number of elements alone, not on that of threads.

#ifndef FLEET_OPS_SUMS_H_
#define FLEET_OPS_SUMS_H_

#include <cstdint>

namespace fleet::ops {

// The sum of n floats, in double.
double Total(int64_t n, const float* x);

// The sum of (a[i] - b[i])^2, in double.
double SquaredDistance(int64_t n, const float* a, const float* b);

}  // namespace fleet::ops

#endif  // FLEET_OPS_SUMS_H_
