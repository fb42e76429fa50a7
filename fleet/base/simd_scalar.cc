// SPDX-License-Identifier: Apache-2.0

// The SIMD door without Highway: what simd_highway.cc computes, written
// plainly.

#include <cmath>

#include "fleet/base/simd.h"

namespace fleet::base {

void Tanh(const float* x, float* y, size_t size) {
  for (size_t i = 0; i < size; ++i) y[i] = std::tanh(x[i]);
}

void TanhGrad(const float* y, const float* dy, float* dx, size_t size) {
  for (size_t i = 0; i < size; ++i) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}

void Exp(const float* x, float* y, size_t size) {
  for (size_t i = 0; i < size; ++i) y[i] = std::exp(x[i]);
}

void Sigmoid(const float* x, float* y, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    // exp of a negative number cannot overflow.
    const float e = std::exp(-std::fabs(x[i]));
    y[i] = (x[i] < 0.0f ? e : 1.0f) / (1.0f + e);
  }
}

void SigmoidGrad(const float* y, const float* dy, float* dx, size_t size) {
  for (size_t i = 0; i < size; ++i) dx[i] = dy[i] * y[i] * (1.0f - y[i]);
}

const char* SimdTargetName() { return "scalar"; }

}  // namespace fleet::base
