// SPDX-License-Identifier: Apache-2.0

// For tests: N ranks are N threads, connected by the in-process backend.

#ifndef FLEET_TESTING_RANKS_AS_THREADS_H_
#define FLEET_TESTING_RANKS_AS_THREADS_H_

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fleet/comm/in_process.h"
#include "fleet/testing/testing.h"

namespace fleet::testing {

// Runs `rank_main` once for each rank, at the same time, and waits for all. A
// rank that ends by an exception fails the test and breaks the others.
inline void RunRanks(
    int size, const std::function<void(comm::Communicator&)>& rank_main) {
  auto ranks = comm::MakeInProcess(size);
  std::vector<std::string> failures(size);
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      try {
        rank_main(*ranks[i]);
      } catch (const std::exception& error) {
        failures[i] = error.what();
        ranks[i]->Abort(Internal("rank ", i, " threw: ", error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < size; ++i) {
    EXPECT_EQ(failures[i], "") << "rank " << i;
  }
}

}  // namespace fleet::testing

#endif  // FLEET_TESTING_RANKS_AS_THREADS_H_
