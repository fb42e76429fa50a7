// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fleet/base/check.h"

// The loops are plain C++ that the compiler turns into vector code, compiled
// for several instruction sets; the best is picked at run time. What a target
// function calls must be inlined into it.
#define FLEET_COMM_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define FLEET_COMM_AVX2 __attribute__((target("avx2")))
#define FLEET_COMM_AVX512                          \
  __attribute__((                                  \
      target("avx512f,avx512dq,avx512bw,avx512vl," \
             "prefer-vector-width=512")))
#endif

// An output may be an input, element by element: no iteration sees another's.
#define FLEET_COMM_VECTOR_LOOP _Pragma("GCC ivdep")

namespace fleet::comm {
namespace {

// Names for the types that C++ lacks.
struct Bool {};
struct Half {};
struct BFloat {};

// Without branches, so that a loop of it is vector code. Multiplying by 2^112
// moves the exponent and makes subnormals normal.
FLEET_COMM_INLINE float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) *
                       std::bit_cast<float>(uint32_t{239} << 23);
  uint32_t bits = std::bit_cast<uint32_t>(scaled);
  bits |= magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(bits | (uint32_t{half} & 0x8000u) << 16);
}

// To the nearest, ties to even.
FLEET_COMM_INLINE uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Adding half a unit in the last place, less one for an even one.
  const uint32_t normal =
      (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (uint32_t{112} << 23)) >>
      13;
  // 0.5 has the unit of a subnormal half in its last place: adding rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      std::bit_cast<uint32_t>(0.5f);
  uint32_t half = magnitude < (uint32_t{113} << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and more
  half = magnitude > 0x7f800000u ? 0x7e00u : half;   // NaN
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
}

FLEET_COMM_INLINE float BFloatToFloat(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

FLEET_COMM_INLINE uint16_t FloatToBFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// How T lies in memory, the type in which it is combined, and the ways there
// and back.
template <class T>
struct Element {
  using Narrow = T;
  using Wide = T;
  static FLEET_COMM_INLINE T Load(T value) { return value; }
  static FLEET_COMM_INLINE T Store(T value) { return value; }
};
template <>
struct Element<Bool> {
  using Narrow = uint8_t;
  using Wide = uint8_t;
  static FLEET_COMM_INLINE uint8_t Load(uint8_t value) { return value != 0; }
  static FLEET_COMM_INLINE uint8_t Store(uint8_t value) { return value; }
};
template <>
struct Element<Half> {
  using Narrow = uint16_t;
  using Wide = float;
  static FLEET_COMM_INLINE float Load(uint16_t value) {
    return HalfToFloat(value);
  }
  static FLEET_COMM_INLINE uint16_t Store(float value) {
    return FloatToHalf(value);
  }
};
template <>
struct Element<BFloat> {
  using Narrow = uint16_t;
  using Wide = float;
  static FLEET_COMM_INLINE float Load(uint16_t value) {
    return BFloatToFloat(value);
  }
  static FLEET_COMM_INLINE uint16_t Store(float value) {
    return FloatToBFloat(value);
  }
};

struct Sum {
  template <class T>
  static FLEET_COMM_INLINE T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;  // wraps around
      return static_cast<T>(
          static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class T>
  static FLEET_COMM_INLINE T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(uint64_t{static_cast<U>(a)} *
                                           uint64_t{static_cast<U>(b)}));
    } else {
      return a * b;
    }
  }
};
// Written so that NaN wins from either side.
struct Max {
  template <class T>
  static FLEET_COMM_INLINE T Of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class T>
  static FLEET_COMM_INLINE T Of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

// What one loop works on. The result is multiplied by `scale` and divided by
// `divisor` where these are not 1: multiplying by 1/n is exact and fast where n
// is a power of two. Used for floats only.
struct Task {
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  size_t count = 0;
  float scale = 1;
  float divisor = 1;
};

template <class T>
FLEET_COMM_INLINE T Scaled(T value, T scale) {
  if constexpr (std::is_floating_point_v<T>) return value * scale;
  return value;
}

// Elements as they lie in memory: anywhere.
template <class T>
struct Anywhere {
  using Type __attribute__((aligned(1), may_alias)) =
      typename Element<T>::Narrow;
};
template <class T>
using Stored = typename Anywhere<T>::Type;

template <class T>
FLEET_COMM_INLINE const Stored<T>* At(const std::byte* data) {
  return reinterpret_cast<const Stored<T>*>(data);
}
template <class T>
FLEET_COMM_INLINE Stored<T>* At(std::byte* data) {
  return reinterpret_cast<Stored<T>*>(data);
}

// Two inputs, one or two outputs: all in registers.
template <class Op, class T>
FLEET_COMM_INLINE void RunPair(const Task& task) {
  using E = Element<T>;
  using Wide = typename E::Wide;
  const Stored<T>* a = At<T>(task.inputs[0]);
  const Stored<T>* b = At<T>(task.inputs[1]);
  const Wide scale = static_cast<Wide>(task.scale);
  const size_t count = task.count;  // which no store can change
  Stored<T>* x = At<T>(task.outputs[0]);
  if (task.outputs.size() == 1) {
    FLEET_COMM_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) {
      x[i] = E::Store(Scaled(Op::Of(E::Load(a[i]), E::Load(b[i])), scale));
    }
    return;
  }
  Stored<T>* y = At<T>(task.outputs[1]);
  FLEET_COMM_VECTOR_LOOP
  for (size_t i = 0; i < count; ++i) {
    const typename E::Narrow sum =
        E::Store(Scaled(Op::Of(E::Load(a[i]), E::Load(b[i])), scale));
    x[i] = sum;
    y[i] = sum;
  }
}

// Any number, through a block that stays in the nearest cache.
template <class Op, class T>
FLEET_COMM_INLINE void RunMany(const Task& task) {
  using E = Element<T>;
  using Wide = typename E::Wide;
  constexpr size_t kBlock = 4096 / sizeof(Wide);
  Wide wide[kBlock];
  typename E::Narrow narrow[kBlock];
  const Wide scale = static_cast<Wide>(task.scale);
  const Wide divisor = static_cast<Wide>(task.divisor);
  for (size_t begin = 0; begin < task.count; begin += kBlock) {
    const size_t n = std::min(kBlock, task.count - begin);
    const Stored<T>* first = At<T>(task.inputs[0]) + begin;
    for (size_t i = 0; i < n; ++i) wide[i] = E::Load(first[i]);
    for (const std::byte* input : task.inputs.subspan(1)) {
      const Stored<T>* from = At<T>(input) + begin;
      for (size_t i = 0; i < n; ++i) {
        wide[i] = Op::Of(wide[i], E::Load(from[i]));
      }
    }
    if constexpr (std::is_floating_point_v<Wide>) {
      if (task.divisor != 1) {
        for (size_t i = 0; i < n; ++i) wide[i] = wide[i] / divisor;
      }
    }
    for (size_t i = 0; i < n; ++i) narrow[i] = E::Store(Scaled(wide[i], scale));
    for (std::byte* output : task.outputs) {
      std::memcpy(At<T>(output) + begin, narrow, n * sizeof(narrow[0]));
    }
  }
}

template <class Op, class T>
FLEET_COMM_INLINE void Run(const Task& task) {
  if (task.inputs.size() == 2 && task.outputs.size() <= 2 &&
      task.divisor == 1) {
    RunPair<Op, T>(task);
  } else {
    RunMany<Op, T>(task);
  }
}

template <class Op, class T>
void RunBaseline(const Task& task) {
  Run<Op, T>(task);
}
#if defined(__x86_64__)
template <class Op, class T>
FLEET_COMM_AVX2 void RunAvx2(const Task& task) {
  Run<Op, T>(task);
}
template <class Op, class T>
FLEET_COMM_AVX512 void RunAvx512(const Task& task) {
  Run<Op, T>(task);
}
#endif

using Loop = void (*)(const Task&);

template <class Op, class T>
Loop BestLoop() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return RunAvx512<Op, T>;
  }
  if (__builtin_cpu_supports("avx2")) return RunAvx2<Op, T>;
#endif
  return RunBaseline<Op, T>;
}

template <class Op>
void FillLoops(Loop (&loops)[kNumDataTypes]) {
  // "Or" of numbers that are 0 or 1 is their maximum, "and" their minimum.
  using BoolOp = std::conditional_t<
      std::is_same_v<Op, Sum>, Max,
      std::conditional_t<std::is_same_v<Op, Product>, Min, Op>>;
  auto at = [&](DataType type) -> Loop& {
    return loops[static_cast<size_t>(type)];
  };
  at(DataType::kBool) = BestLoop<BoolOp, Bool>();
  at(DataType::kUInt8) = BestLoop<Op, uint8_t>();
  at(DataType::kInt8) = BestLoop<Op, int8_t>();
  at(DataType::kInt16) = BestLoop<Op, int16_t>();
  at(DataType::kInt32) = BestLoop<Op, int32_t>();
  at(DataType::kInt64) = BestLoop<Op, int64_t>();
  at(DataType::kFloat16) = BestLoop<Op, Half>();
  at(DataType::kBFloat16) = BestLoop<Op, BFloat>();
  at(DataType::kFloat32) = BestLoop<Op, float>();
  at(DataType::kFloat64) = BestLoop<Op, double>();
}

struct Loops {
  Loop of[kNumReduceOps][kNumDataTypes];
  Loops() {
    FillLoops<Sum>(of[static_cast<size_t>(ReduceOp::kSum)]);
    FillLoops<Sum>(of[static_cast<size_t>(ReduceOp::kMean)]);
    FillLoops<Max>(of[static_cast<size_t>(ReduceOp::kMax)]);
    FillLoops<Min>(of[static_cast<size_t>(ReduceOp::kMin)]);
    FillLoops<Product>(of[static_cast<size_t>(ReduceOp::kProduct)]);
  }
};

Loop LoopFor(ReduceOp op, DataType type) {
  static const Loops loops;
  return loops.of[static_cast<size_t>(op)][static_cast<size_t>(type)];
}

void SetDivisor(Task& task, int by) {
  const auto n = static_cast<unsigned>(by);
  if (std::has_single_bit(n)) {
    task.scale = 1.0f / static_cast<float>(n);
  } else {
    task.divisor = static_cast<float>(n);
  }
}

}  // namespace

void Combine(ReduceOp op, DataType type, std::byte* into, const std::byte* from,
             size_t count) {
  const std::byte* inputs[] = {into, from};
  std::byte* outputs[] = {into};
  LoopFor(op, type)({inputs, outputs, count});
}

void Divide(DataType type, std::byte* data, size_t count, int by) {
  FLEET_CHECK(type >= DataType::kFloat16, "a mean of ", ToString(type));
  FLEET_CHECK_GE(by, 1);
  const std::byte* inputs[] = {data};
  std::byte* outputs[] = {data};
  Task task{inputs, outputs, count};
  SetDivisor(task, by);
  LoopFor(ReduceOp::kSum, type)(task);
}

void CombineAll(ReduceOp op, DataType type,
                std::span<const std::byte* const> inputs,
                std::span<std::byte* const> outputs, size_t count) {
  FLEET_CHECK(!inputs.empty());
  if (outputs.empty()) return;
  Task task{inputs, outputs, count};
  if (op == ReduceOp::kMean) {
    FLEET_CHECK(type >= DataType::kFloat16, "a mean of ", ToString(type));
    SetDivisor(task, static_cast<int>(inputs.size()));
  }
  LoopFor(op, type)(task);
}

}  // namespace fleet::comm
