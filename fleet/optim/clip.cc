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

template <class T>
double RoundedSum(double sum_of_squares) {
  const T rounded = static_cast<T>(sum_of_squares);
  return std::isinf(rounded) ? sum_of_squares : double{rounded};
}

template <class T>
T ScaleToNorm(double sum_of_squares, double max_norm) {
  const T norm = static_cast<T>(std::sqrt(sum_of_squares));
  const T limit = static_cast<T>(max_norm);
  return norm <= limit ? T(1) : limit / norm;
}

template double RoundedSum<float>(double);
template double RoundedSum<double>(double);
template float ScaleToNorm<float>(double, double);
template double ScaleToNorm<double>(double, double);

}  // namespace fleet::optim
