// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::sync {
namespace {

using comm::DataType;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Gradient> Floats(std::vector<size_t> counts) {
  std::vector<Gradient> sizes;
  for (size_t count : counts) sizes.push_back({count, DataType::kFloat32});
  return sizes;
}

TEST(PlanBuckets, RunsBackwardThroughTheModel) {
  auto plan = PlanBuckets(Floats({100, 10, 10, 1}), {1 << 20, 1 << 20});
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_THAT(plan[0].parameters, ElementsAre(3, 2, 1, 0));
}

TEST(PlanBuckets, BeginsEveryGradientAtACacheLine) {
  auto plan = PlanBuckets(Floats({100, 10, 10, 1}), {1 << 20, 1 << 20});
  EXPECT_THAT(plan[0].offsets, ElementsAre(0, 16, 32, 48));
  EXPECT_EQ(plan[0].count, 48u + 112u);
}

TEST(PlanBuckets, DoesNotMixTypes) {
  auto plan = PlanBuckets({{16, DataType::kFloat32},
                           {16, DataType::kFloat16},
                           {16, DataType::kFloat32}},
                          {1 << 20, 1 << 20});
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].type, DataType::kFloat16);
  EXPECT_THAT(plan[0].parameters, ElementsAre(1));
  EXPECT_EQ(plan[0].count, 32u);
  EXPECT_EQ(plan[1].type, DataType::kFloat32);
  EXPECT_THAT(plan[1].parameters, ElementsAre(2, 0));
}

TEST(PlanBuckets, NothingMakesNone) {
  EXPECT_THAT(PlanBuckets({}, {1024, 1024}), IsEmpty());
}

}  // namespace
}  // namespace fleet::sync
