// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/simd.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::base {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

using UnaryFn = void (*)(const float*, float*, size_t);

std::vector<float> Apply(UnaryFn f, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  f(x.data(), y.data(), x.size());
  return y;
}

// Dense over [low, high], and the neighbourhood of zero at every magnitude.
std::vector<float> Samples(float low, float high) {
  std::vector<float> x;
  const int steps = 400000;
  for (int i = 0; i <= steps; ++i) x.push_back(low + (high - low) * i / steps);
  for (float v = 1.0f; v > 1e-37f; v *= 0.7f) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

TEST(Simd, TanhIsCloseAndBounded) {
  const std::vector<float> x = Samples(-25.0f, 25.0f);
  const std::vector<float> y = Apply(Tanh, x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::fabs(y[i] - std::tanh(double{x[i]})));
    ASSERT_LE(std::fabs(y[i]), 1.0f) << "tanh(" << x[i] << ")";
  }
  EXPECT_LE(worst, 3e-7);
}

TEST(Simd, TanhOfSmallNumbersKeepsItsRelativePrecision) {
  for (float v = 0.5f; v > 1e-37f; v *= 0.7f) {
    const float y = Apply(Tanh, {v})[0];
    EXPECT_NEAR(y / std::tanh(double{v}), 1.0, 4 * kEpsilon) << v;
  }
}

TEST(Simd, ExpIsWithinFourUnitsInTheLastPlace) {
  const std::vector<float> x = Samples(-87.3f, 88.7f);
  const std::vector<float> y = Apply(Exp, x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(double{x[i]});
    worst = std::max(worst, std::fabs(y[i] - want) / want);
  }
  EXPECT_LE(worst, 4 * kEpsilon);
}

TEST(Simd, SigmoidIsWithinFourUnitsInTheLastPlace) {
  const std::vector<float> x = Samples(-87.0f, 87.0f);
  const std::vector<float> y = Apply(Sigmoid, x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = 1.0 / (1.0 + std::exp(-double{x[i]}));
    worst = std::max(worst, std::fabs(y[i] - want) / want);
  }
  EXPECT_LE(worst, 4 * kEpsilon);
}

TEST(Simd, ExtremesSaturate) {
  EXPECT_THAT(Apply(Tanh, {kInfinity, -kInfinity, 1e30f, -1e30f, 0.0f}),
              testing::ElementsAre(1.0f, -1.0f, 1.0f, -1.0f, 0.0f));
  EXPECT_THAT(
      Apply(Exp, {kInfinity, -kInfinity, 1e30f, -1e30f, 0.0f, 89.0f}),
      testing::ElementsAre(kInfinity, 0.0f, kInfinity, 0.0f, 1.0f, kInfinity));
  EXPECT_THAT(Apply(Sigmoid, {kInfinity, -kInfinity, 1e30f, -1e30f, 0.0f}),
              testing::ElementsAre(1.0f, 0.0f, 1.0f, 0.0f, 0.5f));
}

TEST(Simd, NanGoesThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (UnaryFn f : {Tanh, Exp, Sigmoid}) {
    const std::vector<float> y = Apply(f, {1.0f, nan, 2.0f});
    EXPECT_FALSE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_FALSE(std::isnan(y[2]));
  }
}

// Sizes around every vector length, at an odd address, in place, with a guard
// behind the end.
TEST(Simd, EverySizeAndAddressGivesTheSameAnswers) {
  const float guard = -77.0f;
  for (UnaryFn f : {Tanh, Exp, Sigmoid}) {
    for (size_t size = 0; size <= 70; ++size) {
      for (size_t shift : {0, 1}) {
        std::vector<float> x(size + shift + 1, guard);
        for (size_t i = 0; i < size; ++i) x[shift + i] = 0.1f * i - 3.0f;
        const std::vector<float> before = x;
        f(x.data() + shift, x.data() + shift, size);
        for (size_t i = 0; i < size; ++i) {
          EXPECT_EQ(x[shift + i], Apply(f, {before[shift + i]})[0]);
        }
        EXPECT_EQ(x[shift + size], guard);
      }
    }
  }
}

TEST(Simd, GradientsFollowTheirFormulas) {
  for (size_t size : {1, 7, 16, 33, 100}) {
    std::vector<float> y(size), dy(size), dx(size);
    for (size_t i = 0; i < size; ++i) {
      y[i] = 0.01f * i;
      dy[i] = 1.5f - 0.02f * i;
    }
    TanhGrad(y.data(), dy.data(), dx.data(), size);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(dx[i], dy[i] * (1.0 - double{y[i]} * y[i]), 2 * kEpsilon);
    }
    SigmoidGrad(y.data(), dy.data(), dx.data(), size);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(dx[i], dy[i] * y[i] * (1.0 - double{y[i]}), 2 * kEpsilon);
    }
    const std::vector<float> want = dx;
    SigmoidGrad(y.data(), dy.data(), dy.data(), size);
    EXPECT_EQ(dy, want);
  }
}

TEST(Simd, NamesItsInstructionSet) { EXPECT_STRNE(SimdTargetName(), ""); }

}  // namespace
}  // namespace fleet::base
