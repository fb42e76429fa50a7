// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/in_process.h"

#include <utility>

#include "fleet/channel/channel_conformance.h"

namespace fleet::channel {
namespace {

ChannelKind InProcess() {
  return {.make_ends =
              [] {
                auto [a, b] = MakeInProcessPair(
                    {.first_name = "thread a", .second_name = "thread b"});
                return Ends{std::move(a), std::move(b)};
              },
          .peer_of_a = "thread b"};
}

INSTANTIATE_TEST_SUITE_P(InProcess, ChannelConformance,
                         testing::Values(InProcess()));

// There is no other process that could die.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProcessConformance);

TEST(InProcess, EachEndKnowsTheOtherByName) {
  auto [a, b] = MakeInProcessPair({.first_name = "x", .second_name = "y"});
  EXPECT_EQ(a->peer(), "y");
  EXPECT_EQ(b->peer(), "x");
}

}  // namespace
}  // namespace fleet::channel
