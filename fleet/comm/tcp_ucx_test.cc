// SPDX-License-Identifier: Apache-2.0

// Collectives over channels that go by UCX.

#include "fleet/testing/tcp_fixtures.h"

namespace fleet::comm {
namespace {

CommunicatorKind UcxKind() {
  return LoopbackKind("ucx", channel::Carrier::kUcx);
}

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorConformance,
                         testing::Values(UcxKind()));
INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorFailures, testing::Values(UcxKind()));

TEST(Ucx, SaysThatItIsTheBackend) {
  Ranks ranks = UcxKind().make(2, [](int) { return CommunicatorOptions(); });
  EXPECT_EQ(ranks[0]->backend(), "ucx");
}

}  // namespace
}  // namespace fleet::comm
