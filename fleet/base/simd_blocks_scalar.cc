// SPDX-License-Identifier: Apache-2.0

// simd_blocks.h without Highway, written plainly.

#include <cmath>

#include "fleet/base/check.h"
#include "fleet/base/simd.h"
#include "fleet/base/simd_blocks.h"

namespace fleet::base {
namespace {

// out[i] = f(the elements at i, s, t).
template <auto kF>
void One(const BlockArguments& g) {
  for (size_t i = 0; i < g.size; ++i) g.out[i] = kF(g.a[i], g.s, g.t);
}
template <auto kF>
void Two(const BlockArguments& g) {
  for (size_t i = 0; i < g.size; ++i) g.out[i] = kF(g.a[i], g.b[i]);
}
template <auto kF>
void Three(const BlockArguments& g) {
  for (size_t i = 0; i < g.size; ++i) g.out[i] = kF(g.a[i], g.b[i], g.c[i]);
}
template <auto kF>
void Door(const BlockArguments& g) {
  kF(g.a, g.out, g.size);
}
template <auto kF>
void DoorGrad(const BlockArguments& g) {
  kF(g.a, g.b, g.out, g.size);
}

float Larger(float a, float b) { return a > b || std::isnan(a) ? a : b; }
float Smaller(float a, float b) { return a < b || std::isnan(a) ? a : b; }
float Clipped(float a, float s, float t) {
  const float b = a < s ? s : a;
  return b > t ? t : b;
}
float Inside(float a, float s, float t) { return a > s && a < t ? 1.0f : 0.0f; }
float IfGreater(float a, float b, float c) { return a > b ? c : 0.0f; }
float UnlessGreater(float a, float b, float c) { return a > b ? 0.0f : c; }
float Sign(float a, float, float) {
  return static_cast<float>((a > 0) - (a < 0));
}

void Fill(const BlockArguments& g) {
  for (size_t i = 0; i < g.size; ++i) g.out[i] = g.s;
}

}  // namespace

BlockFunction FindBlockFunction(BlockOp op) {
  using F = float;
  switch (op) {
    case BlockOp::kFill:
      return Fill;
    case BlockOp::kCopy:
      return One<[](F a, F, F) { return a; }>;
    case BlockOp::kAdd:
      return Two<[](F a, F b) { return a + b; }>;
    case BlockOp::kAddNumber:
      return One<[](F a, F s, F) { return a + s; }>;
    case BlockOp::kSubtract:
      return Two<[](F a, F b) { return a - b; }>;
    case BlockOp::kSubtractNumber:
      return One<[](F a, F s, F) { return a - s; }>;
    case BlockOp::kSubtractFrom:
      return One<[](F a, F s, F) { return s - a; }>;
    case BlockOp::kMultiply:
      return Two<[](F a, F b) { return a * b; }>;
    case BlockOp::kMultiplyNumber:
      return One<[](F a, F s, F) { return a * s; }>;
    case BlockOp::kDivide:
      return Two<[](F a, F b) { return a / b; }>;
    case BlockOp::kDivideNumber:
      return One<[](F a, F s, F) { return a / s; }>;
    case BlockOp::kDivideInto:
      return One<[](F a, F s, F) { return s / a; }>;
    case BlockOp::kMaximum:
      return Two<Larger>;
    case BlockOp::kMaximumNumber:
      return One<[](F a, F s, F) { return Larger(a, s); }>;
    case BlockOp::kMinimum:
      return Two<Smaller>;
    case BlockOp::kMinimumNumber:
      return One<[](F a, F s, F) { return Smaller(a, s); }>;
    case BlockOp::kScale:
      return One<[](F a, F s, F t) { return a * s + t; }>;
    case BlockOp::kShift:
      return One<[](F a, F s, F t) { return (a + s) * t; }>;
    case BlockOp::kClip:
      return One<Clipped>;
    case BlockOp::kInside:
      return One<Inside>;
    case BlockOp::kIfGreater:
      return Three<IfGreater>;
    case BlockOp::kUnlessGreater:
      return Three<UnlessGreater>;
    case BlockOp::kAbs:
      return One<[](F a, F, F) { return std::fabs(a); }>;
    case BlockOp::kSign:
      return One<Sign>;
    case BlockOp::kSquare:
      return One<[](F a, F, F) { return a * a; }>;
    case BlockOp::kSqrt:
      return One<[](F a, F, F) { return std::sqrt(a); }>;
    case BlockOp::kRelu:
      return One<[](F a, F, F) { return a <= 0 ? 0.0f : a; }>;
    case BlockOp::kReluGrad:
      return Two<[](F a, F b) { return a <= 0 ? 0.0f : b; }>;
    case BlockOp::kTanh:
      return Door<Tanh>;
    case BlockOp::kTanhGrad:
      return DoorGrad<TanhGrad>;
    case BlockOp::kSigmoid:
      return Door<Sigmoid>;
    case BlockOp::kSigmoidGrad:
      return DoorGrad<SigmoidGrad>;
    case BlockOp::kExp:
      return Door<Exp>;
    case BlockOp::kLog:
      return One<[](F a, F, F) { return std::log(a); }>;
  }
  FLEET_CHECK(false, "no block operation ", static_cast<int>(op));
  return nullptr;
}

}  // namespace fleet::base
