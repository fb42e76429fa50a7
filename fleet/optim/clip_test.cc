// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/clip.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace fleet::optim {
namespace {

template <class T>
class SumOfSquaresTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SumOfSquaresTest, Types);

TYPED_TEST(SumOfSquaresTest, EqualsTheFormulaForEverySize) {
  for (int64_t n = 0; n < 100; ++n) {
    std::vector<TypeParam> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = i % 2 == 0 ? i : -i;
    // 0 + 1 + 4 + ... + (n - 1)^2, exact in double.
    const double expected = (n - 1) * n * (2 * n - 1) / 6.0;
    EXPECT_EQ(SumOfSquares<TypeParam>(values), expected) << n;
  }
}

TYPED_TEST(SumOfSquaresTest, AccumulatesInDouble) {
  // In float the small ones would be lost beside the first.
  std::vector<TypeParam> values(1 << 16, TypeParam(1));
  values[0] = TypeParam(1 << 13);
  EXPECT_EQ(SumOfSquares<TypeParam>(values), 67108864.0 + 65535.0);
}

TEST(ScaleToNorm, LeavesSmallGradientsAlone) {
  EXPECT_EQ(ScaleToNorm<double>(4.0, 3.0), 1.0);
  EXPECT_EQ(ScaleToNorm<double>(9.0, 3.0), 1.0);
  EXPECT_EQ(ScaleToNorm<double>(0.0, 0.0), 1.0);
}

TEST(ScaleToNorm, BringsLargeOnesDownToTheNorm) {
  EXPECT_DOUBLE_EQ(ScaleToNorm<double>(100.0, 2.5), 0.25);
  EXPECT_EQ(ScaleToNorm<double>(16.0, 0.0), 0.0);
  EXPECT_EQ(ScaleToNorm<double>(std::numeric_limits<double>::infinity(), 1.0),
            0.0);
}

TEST(ScaleToNorm, RoundsToFloatsInEachStep) {
  const double sum = RoundedSum<float>(1.0 / 3.0);
  EXPECT_EQ(sum, 1.0F / 3.0F);
  EXPECT_EQ(ScaleToNorm<float>(sum, 0.1), 0.1F / std::sqrt(1.0F / 3.0F));
}

TEST(ScaleToNorm, TakesSquaresThatNoFloatHolds) {
  const double sum = RoundedSum<float>(1e60);
  EXPECT_EQ(sum, 1e60);
  EXPECT_EQ(ScaleToNorm<float>(sum, 1e29), 1e29F / 1e30F);
}

TEST(ScaleToNorm, PassesNanOn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ScaleToNorm<double>(nan, 1.0)));
}

}  // namespace
}  // namespace fleet::optim
