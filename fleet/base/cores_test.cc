// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/cores.h"

#include <sched.h>
#include <thread>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

TEST(NumCoresTest, CountsWhatTheThreadMayUse) {
  EXPECT_GE(NumCores(), 1);
  std::thread([] {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(NumCores(), 1);
  }).join();
}

}  // namespace
}  // namespace fleet::base
