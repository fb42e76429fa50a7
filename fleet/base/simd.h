// SPDX-License-Identifier: Apache-2.0

// The SIMD door: elementwise functions over plain float memory. Two files
// implement them and the build picks one: simd_highway.cc chooses the widest
// instruction set of the machine at run time, simd_scalar.cc is plain C++ for
// machines without Highway.
//
// Every function reads `size` floats from each input and writes `size` floats.
// `y` may be the same pointer as an input; otherwise the ranges must not
// overlap. No alignment is required. NaN goes through as NaN. A size of zero
// touches nothing. All functions are thread-safe.

#ifndef FLEET_BASE_SIMD_H_
#define FLEET_BASE_SIMD_H_

#include <cstddef>

namespace fleet::base {

// y[i] = tanh(x[i]); absolute error at most 3e-7, results lie in [-1, 1].
void Tanh(const float* x, float* y, size_t size);

// dx[i] = dy[i] * (1 - y[i]^2), where y is what Tanh returned.
void TanhGrad(const float* y, const float* dy, float* dx, size_t size);

// y[i] = exp(x[i]); relative error at most 4 units in the last place where the
// result is a normal number. Too large gives infinity, too small gives zero.
void Exp(const float* x, float* y, size_t size);

// y[i] = 1 / (1 + exp(-x[i])); same relative error as Exp, on both sides.
void Sigmoid(const float* x, float* y, size_t size);

// dx[i] = dy[i] * y[i] * (1 - y[i]), where y is what Sigmoid returned.
void SigmoidGrad(const float* y, const float* dy, float* dx, size_t size);

// The instruction set in use, such as "AVX3_DL" or "scalar"; for logs.
const char* SimdTargetName();

}  // namespace fleet::base

#endif  // FLEET_BASE_SIMD_H_
