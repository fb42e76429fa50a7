// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/in_process.h"

#include "fleet/comm/communicator_conformance.h"

namespace fleet::comm {
namespace {

CommunicatorKind InProcessKind() {
  return {.name = "in-process",
          .make = [](int size,
                     const std::function<CommunicatorOptions(int)>& options) {
            return MakeInProcess(size, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorConformance,
                         testing::Values(InProcessKind()));
INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorFailures,
                         testing::Values(InProcessKind()));

TEST(InProcess, ARankThatBreaksBreaksTheOthers) {
  auto ranks = MakeInProcess(2);
  std::thread waiting([&] {
    EXPECT_THAT(ranks[0]->Barrier(Soon()),
                StatusIs(StatusCode::kInternal,
                         "world: rank 1 gave up: world: the disk is full"));
  });
  ranks[1]->Abort(Internal("the disk is full"));
  waiting.join();
}

}  // namespace
}  // namespace fleet::comm
