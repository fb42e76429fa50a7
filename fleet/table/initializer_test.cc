// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/initializer.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::table {
namespace {

using testing::HasSubstr;

std::vector<float> Row(const Initializer& init, uint64_t seed, Key key,
                       size_t dim) {
  std::vector<float> row(dim);
  FillRow(init, seed, key, row);
  return row;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  float min = 1e30f;
  float max = -1e30f;
};

// Over 2000 rows of 50.
Moments MomentsOf(const Initializer& init) {
  double sum = 0;
  double squares = 0;
  Moments moments;
  for (Key key = 0; key < 2000; ++key) {
    for (float x : Row(init, 7, key, 50)) {
      sum += x;
      squares += double{x} * x;
      moments.min = std::min(moments.min, x);
      moments.max = std::max(moments.max, x);
    }
  }
  moments.mean = sum / 100000;
  moments.deviation = std::sqrt(squares / 100000 - moments.mean * moments.mean);
  return moments;
}

TEST(Initializer, GivesTheSameRowForTheSameKeyAndSeed) {
  const Initializer init = NormalInit{};
  EXPECT_EQ(Row(init, 1, 42, 16), Row(init, 1, 42, 16));
  EXPECT_NE(Row(init, 1, 42, 16), Row(init, 2, 42, 16));
  EXPECT_NE(Row(init, 1, 42, 16), Row(init, 1, 43, 16));
}

TEST(Initializer, FillsConstants) {
  EXPECT_EQ(Row(ConstantInit{0.5f}, 1, 2, 3),
            (std::vector<float>{0.5f, 0.5f, 0.5f}));
}

TEST(Initializer, DrawsEvenlyFromTheInterval) {
  const Moments m = MomentsOf(UniformInit{-0.2f, 0.6f});
  EXPECT_GE(m.min, -0.2f);
  EXPECT_LT(m.max, 0.6f);
  EXPECT_NEAR(m.mean, 0.2, 0.003);
  EXPECT_NEAR(m.deviation, 0.8 / std::sqrt(12.0), 0.003);
}

TEST(Initializer, DrawsFromTheNormalDistribution) {
  const Moments m = MomentsOf(NormalInit{1.0f, 0.5f});
  EXPECT_NEAR(m.mean, 1.0, 0.008);
  EXPECT_NEAR(m.deviation, 0.5, 0.008);
  EXPECT_GT(m.max, 1.0f + 3 * 0.5f);
}

TEST(Initializer, CutsTheNormalDistributionAtTwoDeviations) {
  const Moments m = MomentsOf(TruncatedNormalInit{1.0f, 0.5f});
  EXPECT_GE(m.min, 0.0f);
  EXPECT_LE(m.max, 2.0f);
  EXPECT_NEAR(m.mean, 1.0, 0.008);
  // 0.8796 of the deviation is left between two deviations.
  EXPECT_NEAR(m.deviation, 0.5 * 0.8796, 0.008);
}

TEST(Initializer, ScalesXavierByItsFans) {
  const double limit = std::sqrt(6.0 / 600);
  const Moments even = MomentsOf(XavierInit{500, 100, true});
  EXPECT_GE(even.min, -limit);
  EXPECT_LE(even.max, limit);
  EXPECT_NEAR(even.deviation, limit / std::sqrt(3.0), 0.001);
  const Moments normal = MomentsOf(XavierInit{500, 100, false});
  EXPECT_NEAR(normal.deviation, std::sqrt(2.0 / 600), 0.001);
}

TEST(Initializer, RefusesWhatMakesNoSense) {
  EXPECT_THAT(CheckInitializer(UniformInit{1.0f, 1.0f}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(CheckInitializer(NormalInit{0.0f, -1.0f}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckInitializer(XavierInit{}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_OK(CheckInitializer(ConstantInit{}));
}

}  // namespace
}  // namespace fleet::table
