// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/reduce.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::comm {
namespace {

using ::testing::ElementsAre;

template <class T>
std::byte* Bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

template <class T>
std::vector<T> Combined(ReduceOp op, DataType type, std::vector<T> a,
                        std::vector<T> b) {
  Combine(op, type, Bytes(a), Bytes(b), a.size());
  return a;
}

// Sizes around those of vectors and blocks.
constexpr size_t kCounts[] = {0, 1, 3, 15, 16, 17, 63, 1000, 1024, 4097};

TEST(Combine, AddsNumbersOfEveryPlainType) {
  EXPECT_THAT(Combined<uint8_t>(ReduceOp::kSum, DataType::kUInt8, {250}, {10}),
              ElementsAre(4));
  EXPECT_THAT(Combined<int8_t>(ReduceOp::kSum, DataType::kInt8, {-3}, {5}),
              ElementsAre(2));
  EXPECT_THAT(Combined<int16_t>(ReduceOp::kSum, DataType::kInt16, {300}, {-7}),
              ElementsAre(293));
  EXPECT_THAT(Combined<int32_t>(ReduceOp::kSum, DataType::kInt32,
                                {std::numeric_limits<int32_t>::max()}, {1}),
              ElementsAre(std::numeric_limits<int32_t>::min()));
  EXPECT_THAT(Combined<int64_t>(ReduceOp::kSum, DataType::kInt64,
                                {int64_t{1} << 40}, {1}),
              ElementsAre((int64_t{1} << 40) + 1));
  EXPECT_THAT(Combined<float>(ReduceOp::kSum, DataType::kFloat32, {1.5}, {2}),
              ElementsAre(3.5f));
  EXPECT_THAT(Combined<double>(ReduceOp::kSum, DataType::kFloat64, {1.5}, {2}),
              ElementsAre(3.5));
}

TEST(Combine, KnowsEveryOperation) {
  auto with = [](ReduceOp op) {
    return Combined<int32_t>(op, DataType::kInt32, {-4, 7}, {5, 6});
  };
  EXPECT_THAT(with(ReduceOp::kSum), ElementsAre(1, 13));
  EXPECT_THAT(with(ReduceOp::kMax), ElementsAre(5, 7));
  EXPECT_THAT(with(ReduceOp::kMin), ElementsAre(-4, 6));
  EXPECT_THAT(with(ReduceOp::kProduct), ElementsAre(-20, 42));
  EXPECT_THAT(
      Combined<int16_t>(ReduceOp::kProduct, DataType::kInt16, {-3}, {7}),
      ElementsAre(-21));
}

TEST(Combine, TreatsBoolsAsOrAndAnd) {
  auto with = [](ReduceOp op) {
    return Combined<uint8_t>(op, DataType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1});
  };
  EXPECT_THAT(with(ReduceOp::kSum), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(with(ReduceOp::kMax), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(with(ReduceOp::kProduct), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(with(ReduceOp::kMin), ElementsAre(0, 0, 0, 1));
}

TEST(Combine, LetsNaNWinInMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    for (const float value : Combined<float>(op, DataType::kFloat32,
                                             {nan, 1, nan}, {1, nan, nan})) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(Combine, ReachesEveryElementAndNoOther) {
  for (size_t count : kCounts) {
    std::vector<float> a(count + 1, 1.0f), b(count + 1, 2.0f);
    Combine(ReduceOp::kSum, DataType::kFloat32, Bytes(a), Bytes(b), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(a[i], 3.0f) << i;
    EXPECT_EQ(a[count], 1.0f);
  }
}

TEST(Combine, NeedsNoAlignment) {
  std::vector<std::byte> a(4 * 100 + 1), b(4 * 100 + 3);
  for (int32_t i = 0; i < 100; ++i) {
    std::memcpy(a.data() + 1 + 4 * i, &i, 4);
    std::memcpy(b.data() + 3 + 4 * i, &i, 4);
  }
  Combine(ReduceOp::kSum, DataType::kInt32, a.data() + 1, b.data() + 3, 100);
  for (int32_t i = 0; i < 100; ++i) {
    int32_t value;
    std::memcpy(&value, a.data() + 1 + 4 * i, 4);
    ASSERT_EQ(value, 2 * i);
  }
}

float FromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  float value = exponent == 0
                    ? std::ldexp(static_cast<float>(fraction), -24)
                    : std::ldexp(1.0f + fraction / 1024.0f, exponent - 15);
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  }
  return (half & 0x8000) != 0 ? -value : value;
}

// Adding zero takes every half to float and back.
TEST(Float16, KeepsEveryValueThatItCanHold) {
  std::vector<uint16_t> all(65536), zero(65536, 0);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<uint16_t> sum =
      Combined(ReduceOp::kSum, DataType::kFloat16, all, zero);
  for (size_t i = 0; i < all.size(); ++i) {
    const float expected = FromHalf(all[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(FromHalf(sum[i]))) << i;
    } else {
      ASSERT_EQ(FromHalf(sum[i]), expected) << i;
    }
  }
}

TEST(Float16, RoundsToTheNearestEven) {
  // 2048 + 1 is between two halves, and 2050 + 1 too.
  EXPECT_THAT(Combined<uint16_t>(ReduceOp::kSum, DataType::kFloat16,
                                 {0x6800, 0x6801}, {0x3c00, 0x3c00}),
              ElementsAre(0x6800, 0x6802));
  // 65504 + 16 rounds up to infinity, 65504 + 8 does not.
  EXPECT_THAT(Combined<uint16_t>(ReduceOp::kSum, DataType::kFloat16,
                                 {0x7bff, 0x7bff}, {0x4c00, 0x4800}),
              ElementsAre(0x7c00, 0x7bff));
  // The product of two small ones is subnormal: 2^-10 * 2^-14 = 2^-24.
  EXPECT_THAT(Combined<uint16_t>(ReduceOp::kProduct, DataType::kFloat16,
                                 {0x1400}, {0x0400}),
              ElementsAre(0x0001));
}

TEST(BFloat16, RoundsToTheNearestEvenAndKeepsNaN) {
  auto bfloat = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  };
  EXPECT_THAT(Combined<uint16_t>(ReduceOp::kSum, DataType::kBFloat16,
                                 {bfloat(256), bfloat(258), bfloat(1.5)},
                                 {bfloat(1), bfloat(1), bfloat(-4)}),
              ElementsAre(bfloat(256), bfloat(260), bfloat(-2.5)));
  EXPECT_EQ(Combined<uint16_t>(ReduceOp::kSum, DataType::kBFloat16, {0x7fff},
                               {bfloat(1)})[0] &
                0x7fff,
            0x7fff);
}

TEST(Divide, GivesTheNearestQuotient) {
  for (int by : {1, 2, 3, 4, 5, 7, 8}) {
    std::vector<float> floats(1000);
    std::vector<double> doubles(1000);
    for (size_t i = 0; i < floats.size(); ++i) {
      floats[i] = static_cast<float>(i) * 0.3f;
      doubles[i] = static_cast<double>(i) * 0.3;
    }
    const std::vector<float> was = floats;
    const std::vector<double> was_double = doubles;
    Divide(DataType::kFloat32, Bytes(floats), floats.size(), by);
    Divide(DataType::kFloat64, Bytes(doubles), doubles.size(), by);
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(floats[i], was[i] / static_cast<float>(by)) << by;
      ASSERT_EQ(doubles[i], was_double[i] / by) << by;
    }
  }
}

TEST(CombineAll, WritesTheSameIntoEveryOutput) {
  for (size_t count : kCounts) {
    for (size_t n : {1u, 2u, 3u, 5u, 8u}) {
      std::vector<std::vector<float>> ranks(n);
      std::vector<const std::byte*> inputs;
      std::vector<std::byte*> outputs;
      for (size_t r = 0; r < n; ++r) {
        for (size_t i = 0; i < count; ++i) {
          ranks[r].push_back(static_cast<float>(i + r) * 0.1f);
        }
        inputs.push_back(Bytes(ranks[r]));
        outputs.push_back(Bytes(ranks[r]));
      }
      std::vector<float> expected = ranks[0];
      for (size_t r = 1; r < n; ++r) {
        for (size_t i = 0; i < count; ++i) expected[i] += ranks[r][i];
      }
      CombineAll(ReduceOp::kSum, DataType::kFloat32, inputs, outputs, count);
      for (size_t r = 0; r < n; ++r) EXPECT_EQ(ranks[r], expected);
    }
  }
}

TEST(CombineAll, DividesForTheMean) {
  for (size_t n : {1u, 2u, 3u, 4u}) {
    std::vector<std::vector<double>> ranks(n, std::vector<double>(100));
    std::vector<const std::byte*> inputs;
    for (size_t r = 0; r < n; ++r) {
      ranks[r].assign(100, static_cast<double>(r + 1));
      inputs.push_back(Bytes(ranks[r]));
    }
    std::vector<double> mean(100);
    std::byte* output = Bytes(mean);
    CombineAll(ReduceOp::kMean, DataType::kFloat64, inputs, {&output, 1}, 100);
    const double sum = static_cast<double>(n * (n + 1) / 2);
    EXPECT_THAT(mean, ::testing::Each(sum / static_cast<double>(n)));
  }
}

TEST(CombineAll, RoundsFloat16Once) {
  // 2048 + 1 + 1: rounding after each addition would stay at 2048.
  std::vector<uint16_t> big = {0x6800}, one = {0x3c00}, sum = {0};
  const std::byte* inputs[] = {Bytes(big), Bytes(one), Bytes(one)};
  std::byte* output = Bytes(sum);
  CombineAll(ReduceOp::kSum, DataType::kFloat16, inputs, {&output, 1}, 1);
  EXPECT_EQ(sum[0], 0x6801);
}

}  // namespace
}  // namespace fleet::comm
