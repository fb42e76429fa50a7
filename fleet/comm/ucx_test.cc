// SPDX-License-Identifier: Apache-2.0

// Collectives over channels that go by UCX.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/comm/channels.h"
#include "fleet/comm/communicator_conformance.h"

namespace fleet::comm {
namespace {

CommunicatorKind UcxKind() {
  auto store = std::make_shared<cluster::InProcessStore>();
  auto groups = std::make_shared<std::atomic<int>>(0);
  return {.name = "ucx",
          .make = [store, groups](
                      int size,
                      const std::function<CommunicatorOptions(int)>& options) {
            Ranks ranks(size);
            const std::string prefix = base::Concat("group/", ++*groups);
            std::vector<std::thread> threads;
            for (int i = 0; i < size; ++i) {
              threads.emplace_back([&, i] {
                ranks[i] = ConnectChannels({.store = store.get(),
                                            .prefix = prefix,
                                            .rank = i,
                                            .size = size,
                                            .secret = "s",
                                            .carrier = channel::Carrier::kUcx},
                                           options(i), Patient())
                               .value();
              });
            }
            for (std::thread& thread : threads) thread.join();
            return ranks;
          }};
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
