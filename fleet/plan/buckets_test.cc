// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<GradientSize> Sizes(std::vector<size_t> byte_sizes) {
  std::vector<GradientSize> sizes;
  for (size_t byte_size : byte_sizes) sizes.push_back({byte_size});
  return sizes;
}

TEST(DivideIntoBuckets, TheLastOneIsSmall) {
  EXPECT_THAT(
      DivideIntoBuckets(Sizes({40, 40, 40, 10, 10}), {100, 20}),
      ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3, 4)));
}

TEST(DivideIntoBuckets, TheLastOneIsNoLargerThanTheOthers) {
  EXPECT_THAT(DivideIntoBuckets(Sizes({40, 40, 40, 40}), {80, 1000}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(DivideIntoBuckets, OneLargerThanABucketHasItsOwn) {
  EXPECT_THAT(DivideIntoBuckets(Sizes({10, 500, 10}), {100, 100}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(DivideIntoBuckets, OthersGoTogetherAroundOneThatIsAlone) {
  auto sizes = Sizes({10, 10, 10, 10});
  sizes[1].alone = true;
  EXPECT_THAT(DivideIntoBuckets(sizes, {100, 100}),
              ElementsAre(ElementsAre(1), ElementsAre(0, 2, 3)));
  sizes[3].alone = true;
  EXPECT_THAT(DivideIntoBuckets(sizes, {100, 100}),
              ElementsAre(ElementsAre(1), ElementsAre(0, 2), ElementsAre(3)));
}

TEST(DivideIntoBuckets, TypesDoNotMix) {
  auto sizes = Sizes({8, 8, 8, 8});
  sizes[1].type = sizes[3].type = 1;
  EXPECT_THAT(DivideIntoBuckets(sizes, {100, 100}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(DivideIntoBuckets, NothingMakesNone) {
  EXPECT_THAT(DivideIntoBuckets({}, {100, 100}), IsEmpty());
}

}  // namespace
}  // namespace fleet::plan
