// SPDX-License-Identifier: Apache-2.0

// The suite of communicators with ranks that are processes: all of them run the
// same cases in the same order, each with one rank.

#include <cstdio>
#include <string>
#include <vector>

#include "fleet/comm/communicator_conformance.h"
#include "fleet/comm/shared_memory.h"
#include "fleet/testing/forked_ranks.h"

namespace fleet::comm {
namespace {

constexpr int kProcesses = 4;

// What this process has, set before the suite runs.
ForkedStore* store = nullptr;
int my_rank = 0;

CommunicatorKind Processes(int processes_on_host) {
  return {.name = "shared memory, processes",
          .make = [processes_on_host](
                      int size,
                      const std::function<CommunicatorOptions(int)>& options) {
            // Counted alike by all processes.
            static int group = 0;
            ++group;
            Ranks ranks(size);
            if (my_rank >= size) return ranks;
            Result<std::unique_ptr<Communicator>> rank = ConnectSharedMemory(
                {.store = store,
                 .prefix = base::Concat("group ", group, "/"),
                 .rank = my_rank,
                 .size = size,
                 .processes_on_host = processes_on_host},
                options(my_rank), Soon());
            EXPECT_OK(rank.status());
            if (rank.ok()) ranks[my_rank] = std::move(*rank);
            return ranks;
          }};
}

INSTANTIATE_TEST_SUITE_P(Spinning, CommunicatorConformance,
                         testing::Values(Processes(1)));
INSTANTIATE_TEST_SUITE_P(Sleeping, CommunicatorConformance,
                         testing::Values(Processes(1'000'000)));

}  // namespace

// Needs all ranks in one process: shared_memory_test.cc.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorFailures);

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ForkedStore shared;
  store = &shared;
  int failed = 0;
  for (int outcome : RunProcesses(kProcesses, [](int rank) {
         my_rank = rank;
         // One table is enough; failures of others go to stderr.
         if (rank != 0) {
           FLEET_CHECK(std::freopen("/dev/null", "w", stdout) != nullptr);
         }
         const int code = RUN_ALL_TESTS();
         if (code != 0) std::fprintf(stderr, "rank %d failed\n", rank);
         return code;
       })) {
    failed += outcome != 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace fleet::comm

int main(int argc, char** argv) { return fleet::comm::Main(argc, argv); }
