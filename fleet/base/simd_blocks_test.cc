// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/simd_blocks.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/simd.h"

namespace fleet::base {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kS = -0.75f, kT = 1.5f;

using Of = std::function<float(float a, float b, float c)>;

struct Case {
  BlockOp op;
  std::string name;
  Of wanted;
};

float Max(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::fmax(a, b);
}
float Min(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::fmin(a, b);
}

// What the header says, one element at a time; those of simd.h are apart.
std::vector<Case> Cases() {
  using F = float;
  return {
      {BlockOp::kFill, "fill", [](F, F, F) { return kS; }},
      {BlockOp::kCopy, "copy", [](F a, F, F) { return a; }},
      {BlockOp::kAdd, "a + b", [](F a, F b, F) { return a + b; }},
      {BlockOp::kAddNumber, "a + s", [](F a, F, F) { return a + kS; }},
      {BlockOp::kSubtract, "a - b", [](F a, F b, F) { return a - b; }},
      {BlockOp::kSubtractNumber, "a - s", [](F a, F, F) { return a - kS; }},
      {BlockOp::kSubtractFrom, "s - a", [](F a, F, F) { return kS - a; }},
      {BlockOp::kMultiply, "a * b", [](F a, F b, F) { return a * b; }},
      {BlockOp::kMultiplyNumber, "a * s", [](F a, F, F) { return a * kS; }},
      {BlockOp::kDivide, "a / b", [](F a, F b, F) { return a / b; }},
      {BlockOp::kDivideNumber, "a / s", [](F a, F, F) { return a / kS; }},
      {BlockOp::kDivideInto, "s / a", [](F a, F, F) { return kS / a; }},
      {BlockOp::kMaximum, "max(a, b)", [](F a, F b, F) { return Max(a, b); }},
      {BlockOp::kMaximumNumber, "max(a, s)",
       [](F a, F, F) { return Max(a, kS); }},
      {BlockOp::kMinimum, "min(a, b)", [](F a, F b, F) { return Min(a, b); }},
      {BlockOp::kMinimumNumber, "min(a, s)",
       [](F a, F, F) { return Min(a, kS); }},
      {BlockOp::kScale, "a * s + t",
       [](F a, F, F) {
         volatile F product = a * kS;
         return product + kT;
       }},
      {BlockOp::kShift, "(a + s) * t", [](F a, F, F) { return (a + kS) * kT; }},
      {BlockOp::kClip, "clip",
       [](F a, F, F) { return std::isnan(a) ? a : Min(Max(a, kS), kT); }},
      {BlockOp::kInside, "inside",
       [](F a, F, F) { return a > kS && a < kT ? 1.0f : 0.0f; }},
      {BlockOp::kIfGreater, "if greater",
       [](F a, F b, F c) { return a > b ? c : 0.0f; }},
      {BlockOp::kUnlessGreater, "unless greater",
       [](F a, F b, F c) { return a > b ? 0.0f : c; }},
      {BlockOp::kAbs, "abs", [](F a, F, F) { return std::fabs(a); }},
      {BlockOp::kSign, "sign",
       [](F a, F, F) { return a > 0   ? 1.0f
                              : a < 0 ? -1.0f
                                      : 0.0f; }},
      {BlockOp::kSquare, "square", [](F a, F, F) { return a * a; }},
      {BlockOp::kSqrt, "sqrt", [](F a, F, F) { return std::sqrt(a); }},
      {BlockOp::kRelu, "relu", [](F a, F, F) { return a <= 0 ? 0.0f : a; }},
      {BlockOp::kReluGrad, "relu'",
       [](F a, F b, F) { return a <= 0 ? 0.0f : b; }},
  };
}

std::vector<float> Numbers(size_t size, float from) {
  std::vector<float> x(size);
  for (size_t i = 0; i < size; ++i) {
    x[i] = std::sin(from + 1.7f * static_cast<float>(i)) * 4.0f;
  }
  return x;
}

bool Same(float x, float y) {
  return x == y || (std::isnan(x) && std::isnan(y));
}

// Every pair of these meets.
std::vector<float> Specials() {
  return {0.0f, -0.0f,     1.0f,       -1.0f,  kS,    kT,
          kNan, kInfinity, -kInfinity, 1e-40f, 3e38f, -3e38f};
}

TEST(SimdBlocks, GiveWhatTheirNamesSayOnSpecialNumbers) {
  const std::vector<float> specials = Specials();
  std::vector<float> a, b, c;
  for (float x : specials) {
    for (float y : specials) {
      a.push_back(x);
      b.push_back(y);
      c.push_back(static_cast<float>(c.size()));
    }
  }
  for (const Case& one : Cases()) {
    std::vector<float> out(a.size());
    FindBlockFunction(one.op)({.a = a.data(),
                               .b = b.data(),
                               .c = c.data(),
                               .s = kS,
                               .t = kT,
                               .out = out.data(),
                               .size = a.size()});
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(Same(out[i], one.wanted(a[i], b[i], c[i])))
          << one.name << " of " << a[i] << ", " << b[i] << ", " << c[i]
          << " gives " << out[i];
    }
  }
}

// Sizes around every vector length, at an odd address, into the memory of each
// operand, with a guard behind the end.
TEST(SimdBlocks, EverySizeAndPlaceGivesTheSameAnswers) {
  const float guard = -77.0f;
  for (const Case& one : Cases()) {
    const BlockFunction f = FindBlockFunction(one.op);
    for (size_t size = 0; size <= 70; ++size) {
      for (int place = 0; place < 4; ++place) {
        std::vector<std::vector<float>> in;
        for (int k = 0; k < 4; ++k) {
          in.push_back(Numbers(size + 2, static_cast<float>(k)));
          in.back()[size + 1] = guard;
        }
        const std::vector<std::vector<float>> before = in;
        f({.a = &in[0][1],
           .b = &in[1][1],
           .c = &in[2][1],
           .s = kS,
           .t = kT,
           .out = &in[place][1],
           .size = size});
        for (size_t i = 1; i <= size; ++i) {
          ASSERT_TRUE(Same(in[place][i], one.wanted(before[0][i], before[1][i],
                                                    before[2][i])))
              << one.name << ", size " << size << ", into " << place;
        }
        ASSERT_EQ(in[place][size + 1], guard) << one.name;
      }
    }
  }
}

TEST(SimdBlocks, LogarithmsAreCloseAndKnowTheirLimits) {
  std::vector<float> x;
  for (float v = 1e-37f; v < 3e38f; v *= 1.013f) x.push_back(v);
  for (int i = -1000; i <= 1000; ++i) x.push_back(1.0f + 0.0003f * i);
  const size_t plain = x.size();
  x.insert(x.end(), {0.0f, -0.0f, -1.0f, kInfinity, -kInfinity, kNan});
  std::vector<float> y(x.size());
  FindBlockFunction(BlockOp::kLog)(
      {.a = x.data(), .out = y.data(), .size = x.size()});
  for (size_t i = 0; i < plain; ++i) {
    const double wanted = std::log(double{x[i]});
    EXPECT_NEAR(y[i], wanted, 4.8e-7 * std::fmax(1.0, std::fabs(wanted)))
        << x[i];
  }
  EXPECT_EQ(y[plain], -kInfinity);
  EXPECT_EQ(y[plain + 1], -kInfinity);
  EXPECT_TRUE(std::isnan(y[plain + 2]));
  EXPECT_EQ(y[plain + 3], kInfinity);
  EXPECT_TRUE(std::isnan(y[plain + 4]));
  EXPECT_TRUE(std::isnan(y[plain + 5]));
}

TEST(SimdBlocks, TheSameFunctionsAsSimd) {
  const std::vector<float> a = Numbers(37, 1), b = Numbers(37, 2);
  std::vector<float> got(37), wanted(37);
  auto run = [&](BlockOp op) {
    FindBlockFunction(op)(
        {.a = a.data(), .b = b.data(), .out = got.data(), .size = 37});
  };
  run(BlockOp::kTanh);
  Tanh(a.data(), wanted.data(), 37);
  EXPECT_EQ(got, wanted);
  run(BlockOp::kTanhGrad);
  TanhGrad(a.data(), b.data(), wanted.data(), 37);
  EXPECT_EQ(got, wanted);
  run(BlockOp::kSigmoid);
  Sigmoid(a.data(), wanted.data(), 37);
  EXPECT_EQ(got, wanted);
  run(BlockOp::kSigmoidGrad);
  SigmoidGrad(a.data(), b.data(), wanted.data(), 37);
  EXPECT_EQ(got, wanted);
  run(BlockOp::kExp);
  Exp(a.data(), wanted.data(), 37);
  EXPECT_EQ(got, wanted);
}

}  // namespace
}  // namespace fleet::base
