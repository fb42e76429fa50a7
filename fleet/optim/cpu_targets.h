// SPDX-License-Identifier: Apache-2.0
//
// Compiles one loop for several instruction sets and picks the best at run
// time. Private to optim/: its loops are plain C++ that the compiler turns into
// vector code, so the same text serves every set. (Function multiversioning by
// target_clones would do the same, but its resolvers run before sanitizers are
// ready.)

#ifndef FLEET_OPTIM_CPU_TARGETS_H_
#define FLEET_OPTIM_CPU_TARGETS_H_

// Whatever a target function calls must be inlined into it to be compiled for
// its instruction set.
#define FLEET_OPTIM_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define FLEET_OPTIM_AVX2 __attribute__((target("avx2")))
#define FLEET_OPTIM_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#else
#define FLEET_OPTIM_AVX2
#define FLEET_OPTIM_AVX512
#endif

#include <cstdint>

namespace fleet::optim {

enum class CpuTarget { kBaseline, kAvx2, kAvx512 };

inline CpuTarget BestCpuTarget() {
#if defined(__x86_64__)
  static const CpuTarget best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
      return CpuTarget::kAvx512;
    }
    return __builtin_cpu_supports("avx2") ? CpuTarget::kAvx2
                                          : CpuTarget::kBaseline;
  }();
  return best;
#else
  return CpuTarget::kBaseline;
#endif
}

// The sum of square(term(i)) for i in [0, size). Sixteen partial sums, in an
// order that no instruction set changes; sixteen doubles are two registers of
// AVX-512, enough to hide the latency of an addition.
template <class Term>
FLEET_OPTIM_INLINE double SumSquares(int64_t size, Term term) {
  constexpr int kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const double x = term(i + k);
      lanes[k] += x * x;
    }
  }
  for (int k = 0; i < size; ++i, ++k) {
    const double x = term(i);
    lanes[k] += x * x;
  }
  double sum = 0.0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace fleet::optim

#endif  // FLEET_OPTIM_CPU_TARGETS_H_
