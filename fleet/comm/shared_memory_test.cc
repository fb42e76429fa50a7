// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/comm/communicator_conformance.h"

namespace fleet::comm {
namespace {

// Every rank connects in a thread of its own.
std::vector<Result<std::unique_ptr<Communicator>>> ConnectAll(
    int size, int processes_on_host,
    const std::function<CommunicatorOptions(int)>& options,
    Deadline deadline = Patient()) {
  cluster::InProcessStore store;
  std::vector<Result<std::unique_ptr<Communicator>>> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(Internal("not connected"));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      ranks[i] = ConnectSharedMemory({.store = &store,
                                      .prefix = "test/",
                                      .rank = i,
                                      .size = size,
                                      .processes_on_host = processes_on_host},
                                     options(i), deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

Ranks MakeRanks(int size, int processes_on_host,
                const std::function<CommunicatorOptions(int)>& options) {
  Ranks ranks;
  for (auto& rank : ConnectAll(size, processes_on_host, options)) {
    EXPECT_OK(rank.status());
    ranks.push_back(rank.ok() ? std::move(*rank) : nullptr);
  }
  return ranks;
}

// As if the host had a core for every rank, and as if it had not.
CommunicatorKind Spinning() {
  return {.name = "shared memory, spinning",
          .make = [](int size, const auto& options) {
            return MakeRanks(size, 1, options);
          }};
}
CommunicatorKind Sleeping() {
  return {.name = "shared memory, sleeping",
          .make = [](int size, const auto& options) {
            return MakeRanks(size, 1'000'000, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Spinning, CommunicatorConformance,
                         testing::Values(Spinning()));
INSTANTIATE_TEST_SUITE_P(Spinning, CommunicatorFailures,
                         testing::Values(Spinning()));
INSTANTIATE_TEST_SUITE_P(Sleeping, CommunicatorConformance,
                         testing::Values(Sleeping()));
INSTANTIATE_TEST_SUITE_P(Sleeping, CommunicatorFailures,
                         testing::Values(Sleeping()));

}  // namespace
}  // namespace fleet::comm
