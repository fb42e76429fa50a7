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
  HWY_ATTR V operator()(D d, V x) const { return hn::Tanh(d, x); }
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
