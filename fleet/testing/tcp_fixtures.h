// SPDX-License-Identifier: Apache-2.0

// For tests: ranks that meet over loopback.

#ifndef FLEET_TESTING_TCP_FIXTURES_H_
#define FLEET_TESTING_TCP_FIXTURES_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/comm/communicator_conformance.h"
#include "fleet/comm/tcp.h"

namespace fleet::comm {

// The store is that of all groups of a test.
inline CommunicatorKind LoopbackKind(std::string name,
                                     channel::Carrier carrier) {
  auto store = std::make_shared<cluster::InProcessStore>();
  auto groups = std::make_shared<std::atomic<int>>(0);
  return {.name = std::move(name),
          .make = [store, groups, carrier](
                      int size,
                      const std::function<CommunicatorOptions(int)>& options) {
            Ranks ranks(size);
            const std::string prefix = base::Concat("group/", ++*groups);
            std::vector<std::thread> threads;
            for (int i = 0; i < size; ++i) {
              threads.emplace_back([&, i] {
                ranks[i] = ConnectTcp({.store = store.get(),
                                       .prefix = prefix,
                                       .rank = i,
                                       .size = size,
                                       .trust = {"s"},
                                       .carrier = carrier},
                                      options(i), Soon())
                               .value();
              });
            }
            for (std::thread& thread : threads) thread.join();
            return ranks;
          }};
}

}  // namespace fleet::comm

#endif  // FLEET_TESTING_TCP_FIXTURES_H_
