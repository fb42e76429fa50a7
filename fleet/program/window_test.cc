// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Result<std::vector<Window>> Make(const Ints& kernel, const Ints& strides,
                                 const Ints& paddings, const Ints& input,
                                 std::string_view algorithm = "EXPLICIT") {
  return MakeWindows({.kernel = kernel,
                      .strides = strides,
                      .dilations = {},
                      .paddings = paddings,
                      .algorithm = algorithm},
                     input);
}

TEST(MakeWindows, SpreadsOneNumberOverAllDimensions) {
  auto windows = Make({3}, {2}, {1}, {8, 9});
  ASSERT_OK(windows.status());
  for (const Window& w : *windows) {
    EXPECT_EQ(w.kernel, 3);
    EXPECT_EQ(w.stride, 2);
    EXPECT_EQ(w.begin, 1);
    EXPECT_EQ(w.end, 1);
  }
}

TEST(MakeWindows, ReadsPairsOfPaddings) {
  auto windows = Make({3}, {1}, {0, 1, 2, 3}, {8, 9});
  ASSERT_OK(windows.status());
  EXPECT_EQ((*windows)[0].begin, 0);
  EXPECT_EQ((*windows)[0].end, 1);
  EXPECT_EQ((*windows)[1].begin, 2);
  EXPECT_EQ((*windows)[1].end, 3);
}

TEST(MakeWindows, StepsByItsKernelUnlessToldOtherwise) {
  auto windows = Make({3, 2}, {}, {0}, {8, 9});
  ASSERT_OK(windows.status());
  EXPECT_EQ((*windows)[0].stride, 3);
  EXPECT_EQ((*windows)[1].stride, 2);
}

TEST(MakeWindows, PutsTheOddElementOfSameBehind) {
  auto windows = Make({4}, {1}, {0}, {7}, "SAME");
  ASSERT_OK(windows.status());
  EXPECT_EQ((*windows)[0].begin, 1);
  EXPECT_EQ((*windows)[0].end, 2);
}

TEST(MakeWindows, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Make({3, 3, 3}, {1}, {0}, {8, 9}).status().message(),
              HasSubstr("kernel_size has 3 numbers for 2"));
  EXPECT_THAT(Make({3}, {1}, {0, 1, 2}, {8, 9}).status().message(),
              HasSubstr("padding has 3 numbers"));
  EXPECT_THAT(Make({0}, {1}, {0}, {8}).status().message(),
              HasSubstr("must be positive"));
  EXPECT_THAT(Make({3}, {1}, {-1}, {8}).status().message(),
              HasSubstr("must not be negative"));
  EXPECT_THAT(Make({3}, {1}, {0}, {8}, "FULL").status().message(),
              HasSubstr("not 'FULL'"));
}

TEST(WindowCount, CountsPlacesAndKnowsWhatItDoesNotKnow) {
  Window w{.kernel = 3, .stride = 2, .dilation = 1, .begin = 1, .end = 1};
  EXPECT_EQ(*WindowCount(8, w), 4);
  EXPECT_EQ(*WindowCount(-1, w), -1);
  EXPECT_THAT(WindowCount(0, w).status().message(),
              HasSubstr("does not fit into 0 elements"));
}

TEST(WindowCount, WithCeilCountsAWindowThatHangsOver) {
  Window w{.kernel = 3, .stride = 2, .dilation = 1, .begin = 0, .end = 0};
  EXPECT_EQ(*WindowCount(8, w), 3);
  EXPECT_EQ(*WindowCount(8, w, true), 4);
  // But not one that would start outside.
  Window far{.kernel = 1, .stride = 3, .dilation = 1, .begin = 0, .end = 0};
  EXPECT_EQ(*WindowCount(3, far, true), 1);
}

}  // namespace
}  // namespace fleet::program
