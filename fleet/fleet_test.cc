// SPDX-License-Identifier: Apache-2.0
#include "fleet/fleet.h"

#include <cstdlib>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/collectives.h"
#include "fleet/testing/fleet_fixtures.h"

namespace fleet {
namespace {

using testing::HasSubstr;

TEST(Fleet, AProcessThatNobodyStartedIsAJobOfOne) {
  ASSERT_OK_AND_ASSIGN(auto job, Fleet::Init());
  EXPECT_EQ(job->rank(), 0);
  EXPECT_EQ(job->size(), 1);
  EXPECT_TRUE(job->role().non_distributed);
  at::Tensor data = at::full({2}, 3.0);
  EXPECT_OK(AllReduce(*job, data));
  EXPECT_TRUE(at::equal(data, at::full({2}, 3.0)));
  EXPECT_OK(Barrier(*job));
  job->Finish();
  job->Finish();
}

TEST(Fleet, RanksMeetAndTalk) {
  RunJob(3, [](Fleet& job) {
    at::Tensor data = at::full({4}, job.rank() + 1.0);
    ASSERT_OK(AllReduce(job, data, ReduceOp::kMean));
    EXPECT_TRUE(at::equal(data, at::full({4}, 2.0)));
    auto all = AllGather(job, at::full({1}, job.rank()));
    ASSERT_OK(all.status());
    for (int i = 0; i < 3; ++i) EXPECT_EQ((*all)[i].item<int>(), i);
    if (job.rank() == 0) {
      EXPECT_OK(Send(job, data, 2));
    } else if (job.rank() == 2) {
      at::Tensor received = at::full({4}, 0.0);
      EXPECT_OK(Recv(job, received, 0));
      EXPECT_TRUE(at::equal(received, data));
    }
    ASSERT_OK(Barrier(job));
  });
}

TEST(Fleet, AServerIsNoRank) {
  cluster::Role role;
  role.kind = cluster::RoleKind::kServer;
  EXPECT_THAT(
      Fleet::Init({.role = role}).status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("workers only")));
}

TEST(Fleet, AVariableThatMakesNoSenseIsNamed) {
  setenv("FLEET_TIMEOUT", "soon", 1);
  EXPECT_THAT(Fleet::Init().status(), StatusIs(StatusCode::kInvalidArgument,
                                               HasSubstr("FLEET_TIMEOUT")));
  unsetenv("FLEET_TIMEOUT");
}

TEST(Fleet, TheTimeoutComesFromTheEnvironment) {
  setenv("FLEET_TIMEOUT", "2.5", 1);
  ASSERT_OK_AND_ASSIGN(auto job, Fleet::Init());
  EXPECT_EQ(job->timeout(), std::chrono::milliseconds(2500));
  unsetenv("FLEET_TIMEOUT");
  job->Finish();
}

}  // namespace
}  // namespace fleet
