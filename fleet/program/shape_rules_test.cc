// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/shape_rules.h"

#include <gtest/gtest.h>

namespace fleet::program {
namespace {

TEST(BroadcastDims, FollowsNumpy) {
  EXPECT_EQ(*BroadcastDims({3, 1}, {4}), (Dims{3, 4}));
  EXPECT_EQ(*BroadcastDims({}, {2, 5}), (Dims{2, 5}));
  EXPECT_EQ(*BroadcastDims({0, 3}, {1, 3}), (Dims{0, 3}));
}

TEST(BroadcastDims, AnUnknownDimensionFitsEverything) {
  EXPECT_EQ(*BroadcastDims({-1, 3}, {1, 3}), (Dims{-1, 3}));
  EXPECT_EQ(*BroadcastDims({-1}, {7}), (Dims{7}));
  EXPECT_EQ(*BroadcastDims({7}, {-1}), (Dims{7}));
}

TEST(BroadcastDims, SaysWhichDimensionsClash) {
  auto result = BroadcastDims({2, 3}, {2, 4});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().ToString().find("3 against 4"), std::string::npos);
}

TEST(CanBeOne, AnUnknownDimensionFitsEverything) {
  EXPECT_TRUE(CanBeOne({-1, 2}, {4, -1}));
  EXPECT_EQ(KnownOfBoth({-1, 2, -1}, {4, -1, -1}), (Dims{4, 2, -1}));
  EXPECT_FALSE(CanBeOne({-1, 2}, {4, 3}));
  EXPECT_FALSE(CanBeOne({-1}, {4, 3}));
}

TEST(NormalizeAxis, CountsFromTheBack) {
  EXPECT_EQ(*NormalizeAxis(-1, 3, "axis"), 2);
  EXPECT_FALSE(NormalizeAxis(3, 3, "axis").ok());
}

TEST(NormalizeAxis, ATensorWithoutDimensionsHasNoAxis) {
  EXPECT_FALSE(NormalizeAxis(0, 0, "axis").ok());
  EXPECT_FALSE(NormalizeAxis(-1, 0, "axis").ok());
}

TEST(Promote, PrefersFloatsAndTheWider) {
  EXPECT_EQ(Promote(DType::kInt64, DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(Promote(DType::kFloat64, DType::kFloat32), DType::kFloat64);
  EXPECT_EQ(Promote(DType::kUint8, DType::kInt8), DType::kInt16);
}

TEST(AlignAt, PutsOnesBehind) {
  auto align = [](Dims x, Dims y, int64_t axis) {
    return AlignAt(x, std::move(y), axis).value();
  };
  EXPECT_EQ(align({2, 3, 4}, {3}, 1), (Dims{3, 1}));
  EXPECT_EQ(align({2, 3, 4}, {3}, -1), (Dims{3}));
  EXPECT_EQ(align({2, 3, 4}, {3, 4}, 1), (Dims{3, 4}));
  EXPECT_EQ(align({-1, 3, 4}, {-1}, 0), (Dims{-1, 1, 1}));
  EXPECT_EQ(align({2, 3, 4}, {4, 1}, 2), (Dims{4}));
  EXPECT_EQ(align({2, 3, 4}, {4, -1}, 2), (Dims{4}));
  EXPECT_EQ(align({2}, {2, 3}, 0), (Dims{2, 3}));
  EXPECT_FALSE(AlignAt({2, 3, 4}, {3, 4}, 2).ok());
  EXPECT_FALSE(AlignAt({2, 3, 4}, {3}, 4).ok());
}

}  // namespace
}  // namespace fleet::program
