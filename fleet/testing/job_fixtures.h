// SPDX-License-Identifier: Apache-2.0

// For tests: a job whose ranks are threads.

#ifndef FLEET_TESTING_JOB_FIXTURES_H_
#define FLEET_TESTING_JOB_FIXTURES_H_

#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/job.h"
#include "fleet/testing/membership_fixtures.h"

namespace fleet {

// Runs `rank_main` with a Job of its own on each of `size` threads.
inline void RunJob(int size, const std::function<void(Job&)>& rank_main) {
  cluster::Port port;
  const cluster::Endpoint first = port.endpoint();
  port.Close();
  std::vector<std::thread> ranks;
  for (int i = 0; i < size; ++i) {
    ranks.emplace_back([&, i] {
      auto job = Job::Init({.role = cluster::Worker(i, size, first)});
      ASSERT_OK(job.status());
      rank_main(**job);
      EXPECT_OK((*job)->Finish());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace fleet

#endif  // FLEET_TESTING_JOB_FIXTURES_H_
