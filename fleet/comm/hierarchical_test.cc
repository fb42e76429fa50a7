// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/hierarchical.h"

#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/comm/communicator_conformance.h"

namespace fleet::comm {
namespace {

// Ranks that meet as if rank i were on host `host_of(i)`.
CommunicatorKind HostsKind(const std::string& name, int (*host_of)(int)) {
  auto store = std::make_shared<cluster::InProcessStore>();
  auto groups = std::make_shared<std::atomic<int>>(0);
  return {.name = name,
          .make = [=](int size,
                      const std::function<CommunicatorOptions(int)>& options) {
            Ranks ranks(size);
            std::vector<int> hosts;
            for (int i = 0; i < size; ++i) hosts.push_back(host_of(i));
            const std::string prefix = base::Concat("hosts_test/", ::getpid(),
                                                    "/", name, "/", ++*groups);
            std::vector<std::thread> threads;
            for (int i = 0; i < size; ++i) {
              threads.emplace_back([&, i] {
                ranks[i] = ConnectHierarchical({.store = store.get(),
                                                .prefix = prefix,
                                                .rank = i,
                                                .size = size},
                                               hosts, options(i), Soon())
                               .value();
              });
            }
            for (std::thread& thread : threads) thread.join();
            return ranks;
          }};
}

// Four ranks: two on each of two hosts; or on three hosts, where the second has
// two ranks that are not neighbours.
CommunicatorKind Pairs() {
  return HostsKind("pairs", [](int rank) { return rank / 2; });
}
CommunicatorKind Mixed() {
  CommunicatorKind kind =
      HostsKind("mixed", [](int rank) { return rank == 3 ? 1 : rank; });
  kind.group_sizes = {4};
  return kind;
}

INSTANTIATE_TEST_SUITE_P(Pairs, CommunicatorConformance,
                         testing::Values(Pairs()));
INSTANTIATE_TEST_SUITE_P(Mixed, CommunicatorConformance,
                         testing::Values(Mixed()));
INSTANTIATE_TEST_SUITE_P(Pairs, CommunicatorFailures, testing::Values(Pairs()));
INSTANTIATE_TEST_SUITE_P(Mixed, CommunicatorFailures, testing::Values(Mixed()));

}  // namespace
}  // namespace fleet::comm
