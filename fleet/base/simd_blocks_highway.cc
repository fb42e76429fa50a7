// SPDX-License-Identifier: Apache-2.0

// simd_blocks.h through Highway; compiled once for every instruction set, as
// simd_highway.cc, and without contraction of products and sums.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "fleet/base/check.h"
#include "fleet/base/simd.h"
#include "fleet/base/simd_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fleet/base/simd_blocks_highway.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fleet::base {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Copies the end of a block, shorter than a vector, to where a whole vector can
// be read.
struct Rest {
  explicit Rest(const float* from, size_t i, size_t size) {
    if (from != nullptr) std::copy(from + i, from + size, floats);
  }
  HWY_ALIGN float floats[hn::MaxLanes(D())] = {};
};

// The arguments are copied: for all that the compiler knows, a vector that is
// stored could change those of the caller, and each would be read again.
template <typename F>
void Map(const BlockArguments& given) {
  const BlockArguments g = given;
  const D d;
  const V s = hn::Set(d, g.s), t = hn::Set(d, g.t);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= g.size; i += step) {
    hn::StoreU(F::Of(d, s, t, g, i), d, g.out + i);
  }
  if (i == g.size) return;
  Rest a(g.a, i, g.size), b(g.b, i, g.size), c(g.c, i, g.size);
  BlockArguments end = g;
  end.a = a.floats;
  end.b = b.floats;
  end.c = c.floats;
  hn::Store(F::Of(d, s, t, end, 0), d, a.floats);
  std::copy(a.floats, a.floats + (g.size - i), g.out + i);
}

V NanOr(V a, V b, V result) {
  return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Eq(b, b), result, b),
                        a);
}
V Larger(V a, V b) { return NanOr(a, b, hn::IfThenElse(hn::Gt(a, b), a, b)); }
V Smaller(V a, V b) { return NanOr(a, b, hn::IfThenElse(hn::Lt(a, b), a, b)); }

// Highway's Log is for positive finite numbers.
V LogOf(D d, V x) {
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V zero = hn::Zero(d);
  const V below = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  V special = hn::IfThenElse(hn::Lt(x, zero), below, x);
  special = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), special);
  const auto plain = hn::And(hn::Gt(x, zero), hn::Lt(x, infinity));
  const V y = hn::Log(d, hn::IfThenElse(plain, x, hn::Set(d, 1.0f)));
  return hn::IfThenElse(plain, y, special);
}

// An operation is an object with a function: Highway marks functions with the
// instruction set by an attribute that lambdas do not take over.
#define FLEET_BLOCK(name, ...)                                       \
  struct name##Fn {                                                  \
    static HWY_ATTR V Of([[maybe_unused]] D d, [[maybe_unused]] V s, \
                         [[maybe_unused]] V t,                       \
                         [[maybe_unused]] const BlockArguments& g,   \
                         [[maybe_unused]] size_t i) {                \
      __VA_ARGS__                                                    \
    }                                                                \
  };                                                                 \
  void name(const BlockArguments& g) { Map<name##Fn>(g); }
#define FLEET_A hn::LoadU(d, g.a + i)
#define FLEET_B hn::LoadU(d, g.b + i)
#define FLEET_C hn::LoadU(d, g.c + i)

FLEET_BLOCK(Fill, return s;)
FLEET_BLOCK(Copy, return FLEET_A;)
FLEET_BLOCK(Add, return hn::Add(FLEET_A, FLEET_B);)
FLEET_BLOCK(AddNumber, return hn::Add(FLEET_A, s);)
FLEET_BLOCK(Subtract, return hn::Sub(FLEET_A, FLEET_B);)
FLEET_BLOCK(SubtractNumber, return hn::Sub(FLEET_A, s);)
FLEET_BLOCK(SubtractFrom, return hn::Sub(s, FLEET_A);)
FLEET_BLOCK(Multiply, return hn::Mul(FLEET_A, FLEET_B);)
FLEET_BLOCK(MultiplyNumber, return hn::Mul(FLEET_A, s);)
FLEET_BLOCK(Divide, return hn::Div(FLEET_A, FLEET_B);)
FLEET_BLOCK(DivideNumber, return hn::Div(FLEET_A, s);)
FLEET_BLOCK(DivideInto, return hn::Div(s, FLEET_A);)
FLEET_BLOCK(Maximum, return Larger(FLEET_A, FLEET_B);)
FLEET_BLOCK(MaximumNumber, return Larger(FLEET_A, s);)
FLEET_BLOCK(Minimum, return Smaller(FLEET_A, FLEET_B);)
FLEET_BLOCK(MinimumNumber, return Smaller(FLEET_A, s);)
FLEET_BLOCK(Scale, return hn::Add(hn::Mul(FLEET_A, s), t);)
FLEET_BLOCK(Shift, return hn::Mul(hn::Add(FLEET_A, s), t);)
FLEET_BLOCK(Clip, {
  const V a = FLEET_A;
  const V low = hn::IfThenElse(hn::Lt(a, s), s, a);
  return hn::IfThenElse(hn::Gt(low, t), t, low);
})
FLEET_BLOCK(Inside, {
  const V a = FLEET_A;
  const auto inside = hn::And(hn::Gt(a, s), hn::Lt(a, t));
  return hn::IfThenElseZero(inside, hn::Set(d, 1.0f));
})
FLEET_BLOCK(IfGreater,
            return hn::IfThenElseZero(hn::Gt(FLEET_A, FLEET_B), FLEET_C);)
FLEET_BLOCK(UnlessGreater,
            return hn::IfThenZeroElse(hn::Gt(FLEET_A, FLEET_B), FLEET_C);)
FLEET_BLOCK(Abs, return hn::Abs(FLEET_A);)
FLEET_BLOCK(Sign, {
  const V a = FLEET_A;
  const V one = hn::Set(d, 1.0f);
  const V above = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), one);
  return hn::IfThenElse(hn::Lt(a, hn::Zero(d)), hn::Neg(one), above);
})
FLEET_BLOCK(Square, {
  const V a = FLEET_A;
  return hn::Mul(a, a);
})
FLEET_BLOCK(Sqrt, return hn::Sqrt(FLEET_A);)
FLEET_BLOCK(Relu, {
  const V a = FLEET_A;
  return hn::IfThenZeroElse(hn::Le(a, hn::Zero(d)), a);
})
FLEET_BLOCK(ReluGrad,
            return hn::IfThenZeroElse(hn::Le(FLEET_A, hn::Zero(d)), FLEET_B);)
FLEET_BLOCK(Log, return LogOf(d, FLEET_A);)

#undef FLEET_A
#undef FLEET_B
#undef FLEET_C
#undef FLEET_BLOCK

// Those that simd.h has: the same results as everywhere else.
template <auto kF>
void Door(const BlockArguments& g) {
  kF(g.a, g.out, g.size);
}
template <auto kF>
void DoorGrad(const BlockArguments& g) {
  kF(g.a, g.b, g.out, g.size);
}

BlockFunction FindImpl(BlockOp op) {
  switch (op) {
    case BlockOp::kFill:
      return Fill;
    case BlockOp::kCopy:
      return Copy;
    case BlockOp::kAdd:
      return Add;
    case BlockOp::kAddNumber:
      return AddNumber;
    case BlockOp::kSubtract:
      return Subtract;
    case BlockOp::kSubtractNumber:
      return SubtractNumber;
    case BlockOp::kSubtractFrom:
      return SubtractFrom;
    case BlockOp::kMultiply:
      return Multiply;
    case BlockOp::kMultiplyNumber:
      return MultiplyNumber;
    case BlockOp::kDivide:
      return Divide;
    case BlockOp::kDivideNumber:
      return DivideNumber;
    case BlockOp::kDivideInto:
      return DivideInto;
    case BlockOp::kMaximum:
      return Maximum;
    case BlockOp::kMaximumNumber:
      return MaximumNumber;
    case BlockOp::kMinimum:
      return Minimum;
    case BlockOp::kMinimumNumber:
      return MinimumNumber;
    case BlockOp::kScale:
      return Scale;
    case BlockOp::kShift:
      return Shift;
    case BlockOp::kClip:
      return Clip;
    case BlockOp::kInside:
      return Inside;
    case BlockOp::kIfGreater:
      return IfGreater;
    case BlockOp::kUnlessGreater:
      return UnlessGreater;
    case BlockOp::kAbs:
      return Abs;
    case BlockOp::kSign:
      return Sign;
    case BlockOp::kSquare:
      return Square;
    case BlockOp::kSqrt:
      return Sqrt;
    case BlockOp::kRelu:
      return Relu;
    case BlockOp::kReluGrad:
      return ReluGrad;
    case BlockOp::kTanh:
      return Door<base::Tanh>;
    case BlockOp::kTanhGrad:
      return DoorGrad<base::TanhGrad>;
    case BlockOp::kSigmoid:
      return Door<base::Sigmoid>;
    case BlockOp::kSigmoidGrad:
      return DoorGrad<base::SigmoidGrad>;
    case BlockOp::kExp:
      return Door<base::Exp>;
    case BlockOp::kLog:
      return Log;
  }
  return nullptr;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fleet::base
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fleet::base {
namespace {
HWY_EXPORT(FindImpl);
}  // namespace

BlockFunction FindBlockFunction(BlockOp op) {
  BlockFunction function = HWY_DYNAMIC_DISPATCH(FindImpl)(op);
  FLEET_CHECK(function != nullptr, "no block operation ", static_cast<int>(op));
  return function;
}

}  // namespace fleet::base
#endif  // HWY_ONCE
