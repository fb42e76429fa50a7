// SPDX-License-Identifier: Apache-2.0

// The SIMD door through Highway. This file is compiled once for every
// instruction set (foreach_target.h includes it again and again); the table
// that HWY_EXPORT makes picks one when the program runs.

#include <algorithm>
#include <cstddef>

#include "fleet/base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fleet/base/simd_highway.cc"
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

// Highway's Exp is for [-inf, 104] and takes NaN to 0. From 89 on the result
// is infinite, so a larger x is not needed.
V ExpOf(D d, V x) {
  const V y = hn::Exp(d, hn::Min(x, hn::Set(d, 89.0f)));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// tanh a = t / (t + 2) with t = exp(2a) - 1. Twice as fast as Highway's: for
// a up to 9.02, where tanh is 1 in floats, 2a / ln 2 is at most 27, so one
// scaling and one constant for ln 2 do. Measured error 9e-8, over every seventh
// float.
V TanhOf(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 9.02f));
  // 2a = n ln 2 + r. Adding 1.5 * 2^23 rounds to a whole number and leaves it
  // in the low bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V rounded = hn::MulAdd(a, hn::Set(d, 2.88539008f), magic);
  const V n = hn::Sub(rounded, magic);
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693147181f), hn::Add(a, a));
  // exp(r) - 1 = r + r^2 c(r) for |r| <= ln 2 / 2; c of degree 4 by minimax
  // fit, relative error 1.4e-8.
  V c = hn::MulAdd(r, hn::Set(d, 0.0013882498f), hn::Set(d, 0.008366647f));
  c = hn::MulAdd(r, c, hn::Set(d, 0.041667204f));
  c = hn::MulAdd(r, c, hn::Set(d, 0.16666542f));
  c = hn::MulAdd(r, c, hn::Set(d, 0.49999997f));
  const V p = hn::MulAdd(hn::Mul(r, r), c, r);
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, rounded));
  const V one = hn::Set(d, 1.0f);
  const V scale = hn::BitCast(d, hn::Add(exponent, hn::BitCast(du, one)));
  const V t = hn::MulAdd(scale, p, hn::Sub(scale, one));
  const V y = hn::Div(t, hn::Add(t, hn::Set(d, 2.0f)));
  return hn::IfThenElse(hn::Eq(x, x), hn::CopySignToAbs(y, x), x);
}

// exp of a negative number cannot overflow; 1 / (1 + e) and e / (1 + e) are
// the two sides of the curve, each exact in its small values.
V SigmoidOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpOf(d, hn::Neg(hn::Abs(x)));
  const V top = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(top, hn::Add(one, e));
}

// Calls f on whole vectors, the rest through a padded buffer.
template <typename F>
void Map(const float* x, float* y, size_t size, F f) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= size; i += step) {
    hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  }
  if (i == size) return;
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  std::copy(x + i, x + size, rest);
  hn::Store(f(d, hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (size - i), y + i);
}

template <typename F>
void Map(const float* a, const float* b, float* y, size_t size, F f) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= size; i += step) {
    hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  }
  if (i == size) return;
  HWY_ALIGN float rest_a[hn::MaxLanes(d)] = {};
  HWY_ALIGN float rest_b[hn::MaxLanes(d)] = {};
  std::copy(a + i, a + size, rest_a);
  std::copy(b + i, b + size, rest_b);
  hn::Store(f(d, hn::Load(d, rest_a), hn::Load(d, rest_b)), d, rest_a);
  std::copy(rest_a, rest_a + (size - i), y + i);
}

// Highway marks functions with the instruction set by an attribute that
// lambdas do not take over, so these are objects.
struct TanhFn {
  HWY_ATTR V operator()(D d, V x) const { return TanhOf(d, x); }
};
struct ExpFn {
  HWY_ATTR V operator()(D d, V x) const { return ExpOf(d, x); }
};
struct SigmoidFn {
  HWY_ATTR V operator()(D d, V x) const { return SigmoidOf(d, x); }
};
struct TanhGradFn {
  HWY_ATTR V operator()(D d, V y, V dy) const {
    return hn::Mul(dy, hn::NegMulAdd(y, y, hn::Set(d, 1.0f)));
  }
};
struct SigmoidGradFn {
  HWY_ATTR V operator()(D, V y, V dy) const {
    return hn::Mul(dy, hn::NegMulAdd(y, y, y));
  }
};

void TanhImpl(const float* x, float* y, size_t size) {
  Map(x, y, size, TanhFn());
}
void ExpImpl(const float* x, float* y, size_t size) {
  Map(x, y, size, ExpFn());
}
void SigmoidImpl(const float* x, float* y, size_t size) {
  Map(x, y, size, SigmoidFn());
}
void TanhGradImpl(const float* y, const float* dy, float* dx, size_t size) {
  Map(y, dy, dx, size, TanhGradFn());
}
void SigmoidGradImpl(const float* y, const float* dy, float* dx, size_t size) {
  Map(y, dy, dx, size, SigmoidGradFn());
}
const char* NameImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fleet::base
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fleet::base {
namespace {
HWY_EXPORT(TanhImpl);
HWY_EXPORT(ExpImpl);
HWY_EXPORT(SigmoidImpl);
HWY_EXPORT(TanhGradImpl);
HWY_EXPORT(SigmoidGradImpl);
HWY_EXPORT(NameImpl);
}  // namespace

void Tanh(const float* x, float* y, size_t size) {
  HWY_DYNAMIC_DISPATCH(TanhImpl)(x, y, size);
}

void TanhGrad(const float* y, const float* dy, float* dx, size_t size) {
  HWY_DYNAMIC_DISPATCH(TanhGradImpl)(y, dy, dx, size);
}

void Exp(const float* x, float* y, size_t size) {
  HWY_DYNAMIC_DISPATCH(ExpImpl)(x, y, size);
}

void Sigmoid(const float* x, float* y, size_t size) {
  HWY_DYNAMIC_DISPATCH(SigmoidImpl)(x, y, size);
}

void SigmoidGrad(const float* y, const float* dy, float* dx, size_t size) {
  HWY_DYNAMIC_DISPATCH(SigmoidGradImpl)(y, dy, dx, size);
}

const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(NameImpl)(); }

}  // namespace fleet::base
#endif  // HWY_ONCE
