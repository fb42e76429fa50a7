// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/clip.h"

#include <cmath>
#include <cstdint>

#include "fleet/optim/cpu_targets.h"

namespace fleet::optim {
namespace {

template <class T>
FLEET_OPTIM_INLINE double Sum(const T* values, int64_t size) {
  return SumSquares(size, [values](int64_t i) __attribute__((always_inline)) {
    return static_cast<double>(values[i]);
  });
}

template <class T>
double SumBaseline(const T* values, int64_t size) {
  return Sum(values, size);
}

template <class T>
FLEET_OPTIM_AVX2 double SumAvx2(const T* values, int64_t size) {
  return Sum(values, size);
}

template <class T>
FLEET_OPTIM_AVX512 double SumAvx512(const T* values, int64_t size) {
  return Sum(values, size);
}

}  // namespace

template <class T>
double SumOfSquares(std::span<const T> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  switch (BestCpuTarget()) {
    case CpuTarget::kAvx512:
      return SumAvx512(values.data(), size);
    case CpuTarget::kAvx2:
      return SumAvx2(values.data(), size);
    case CpuTarget::kBaseline:
      break;
  }
  return SumBaseline(values.data(), size);
}

template double SumOfSquares(std::span<const float>);
template double SumOfSquares(std::span<const double>);

double ScaleToNorm(double sum_of_squares, double max_norm) {
  const double norm = std::sqrt(sum_of_squares);
  return norm <= max_norm ? 1.0 : max_norm / norm;
}

}  // namespace fleet::optim
