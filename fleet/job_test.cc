// SPDX-License-Identifier: Apache-2.0
#include "fleet/job.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/collectives.h"
#include "fleet/parameter_server.h"
#include "fleet/testing/forked_ranks.h"
#include "fleet/testing/job_fixtures.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet {
namespace {

using testing::HasSubstr;

TEST(Job, AProcessThatNobodyStartedIsAJobOfOne) {
  ASSERT_OK_AND_ASSIGN(auto job, Job::Init());
  EXPECT_EQ(job->rank(), 0);
  EXPECT_EQ(job->size(), 1);
  EXPECT_TRUE(job->role().non_distributed);
  at::Tensor data = at::full({2}, 3.0);
  EXPECT_OK(AllReduce(*job, data));
  EXPECT_TRUE(at::equal(data, at::full({2}, 3.0)));
  EXPECT_OK(Barrier(*job));
  EXPECT_OK(job->Finish());
  EXPECT_OK(job->Finish());
}

TEST(Job, RanksMeetAndTalk) {
  RunJob(3, [](Job& job) {
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

TEST(Job, AServerIsNoRank) {
  cluster::Role role;
  role.kind = cluster::RoleKind::kServer;
  EXPECT_THAT(
      Job::Init({.role = role}).status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("workers only")));
}

TEST(Job, AVariableThatMakesNoSenseIsNamed) {
  setenv("FLEET_TIMEOUT", "soon", 1);
  EXPECT_THAT(Job::Init().status(), StatusIs(StatusCode::kInvalidArgument,
                                             HasSubstr("FLEET_TIMEOUT")));
  unsetenv("FLEET_TIMEOUT");
}

TEST(Job, TheTimeoutComesFromTheEnvironment) {
  setenv("FLEET_TIMEOUT", "2.5", 1);
  ASSERT_OK_AND_ASSIGN(auto job, Job::Init());
  EXPECT_EQ(job->timeout(), std::chrono::milliseconds(2500));
  unsetenv("FLEET_TIMEOUT");
  EXPECT_OK(job->Finish());
}

// ---- groups

TEST(Job, AGroupHasANumberAndCollectivesOfItsOwn) {
  RunJob(3, [](Job& job) {
    EXPECT_EQ(job.group().ranks(), (std::vector{0, 1, 2}));
    ASSERT_OK_AND_ASSIGN(Group * group,
                         job.NewGroup({2, 0}, std::chrono::seconds(40)));
    EXPECT_EQ(group->id(), 1);
    EXPECT_EQ(group->size(), 2);
    EXPECT_EQ(group->RankOf(2), 0);
    EXPECT_EQ(group->RankOf(1), -1);
    EXPECT_EQ(group->timeout(), std::chrono::seconds(40));
    ASSERT_OK_AND_ASSIGN(Group * found, job.FindGroup(1));
    EXPECT_EQ(found, group);
    EXPECT_THAT(job.FindGroup(2).status(),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr("there is no group 2")));
    at::Tensor data = at::full({2}, job.rank() + 1.0);
    if (job.rank() == 1) {
      EXPECT_EQ(group->rank(), -1);
      EXPECT_THAT(AllReduce(*group, data),
                  StatusIs(StatusCode::kInvalidArgument,
                           HasSubstr("rank 1 is not in group 1")));
    } else {
      EXPECT_EQ(group->rank(), job.rank() == 2 ? 0 : 1);
      ASSERT_OK(AllReduce(*group, data));
      EXPECT_TRUE(at::equal(data, at::full({2}, 4.0)));
    }
    group->Destroy();
    EXPECT_THAT(group->Check(), StatusIs(StatusCode::kFailedPrecondition,
                                         HasSubstr("was destroyed")));
    ASSERT_OK(job.Barrier());
  });
}

TEST(Job, WhatWasStartedIsDoneWhenAJobHasFinished) {
  RunJob(2, [](Job& job) {
    at::Tensor data = at::full({3}, job.rank() + 1.0);
    auto started = job.group().Start(
        [data](comm::Communicator& communicator, base::Deadline deadline) {
          return sync::AllReduce(communicator, data, ReduceOp::kSum, deadline);
        });
    ASSERT_OK(started.status());
    ASSERT_OK(job.Finish());
    EXPECT_TRUE(started->ready());
    EXPECT_TRUE(at::equal(data, at::full({3}, 3.0)));
    EXPECT_THAT(AllReduce(job, data),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("of a job that has ended")));
    EXPECT_THAT(job.Connect(), StatusIs(StatusCode::kFailedPrecondition,
                                        HasSubstr("has left the job")));
  });
}

TEST(Job, WorkersGatherBytes) {
  RunJob(2, [](Job& job) {
    ASSERT_OK_AND_ASSIGN(auto all, job.AllGather(job.rank() == 0 ? "a" : "bc"));
    EXPECT_EQ(all, (std::vector<std::string>{"a", "bc"}));
  });
}

// ---- the end

TEST(Job, ARankThatEndsWithAnotherStatusIsToldToTheOthers) {
  RunJob(2, [](Job& job) {
    ASSERT_OK(job.Barrier());
    if (job.rank() == 1) {
      EXPECT_FALSE(job.End(3));
      return;
    }
    EXPECT_THAT(job.Barrier(), StatusIs(StatusCode::kUnavailable,
                                        HasSubstr("rank 1 ended with exit "
                                                  "status 3")));
    EXPECT_TRUE(job.broken());
    EXPECT_FALSE(job.End(1));
  });
}

TEST(Job, ARankThatEndsWithZeroHasFinished) {
  RunJob(2, [](Job& job) {
    EXPECT_TRUE(job.End(0));
    EXPECT_TRUE(job.finished());
    EXPECT_TRUE(job.End(1)) << "after a good end nothing can fail";
  });
}

TEST(Job, AForkedChildIsNoWorkerAndItsEndSaysNothing) {
  RunJob(1, [](Job& job) {
    const std::vector<int> outcomes = comm::RunProcesses(1, [&](int) {
      if (!job.forked() || job.Connect().ok()) return 1;
      if (job.CheckOwn().message().find("forked from rank 0") ==
          std::string::npos) {
        return 2;
      }
      return job.End(7) ? 0 : 3;
    });
    EXPECT_EQ(outcomes[0], 0);
    EXPECT_FALSE(job.finished());
    EXPECT_OK(job.Barrier());
  });
}

// ---- servers

plan::ServedTable Weights() { return served::DenseServed(0, "weights", 3); }

// A worker of a server that listens.
JobOptions WorkerOf(const ps::Serving& serving, int index, int size) {
  cluster::Role role;
  role.index = index;
  role.worker_num = size;
  role.server_num = 1;
  role.server_endpoints = {{"127.0.0.1", serving.address().port}};
  return {.role = role, .servers = WorkerOptions{.mode = plan::PsMode::kSync}};
}

std::unique_ptr<ps::Serving> OneServer(int num_workers) {
  ps::ServeOptions options;
  options.server.num_workers = num_workers;
  options.server.worker_grace = std::chrono::milliseconds(50);
  options.address.host = "127.0.0.1";
  auto serving = ps::Serving::Start(options);
  EXPECT_OK(serving.status());
  return *std::move(serving);
}

TEST(Job, AWorkerHasTheSameVerbs) {
  const auto serving = OneServer(2);
  served::RunWorkers(2, [&](int index) {
    ASSERT_OK_AND_ASSIGN(auto job, Job::Init(WorkerOf(*serving, index, 2)));
    EXPECT_EQ(job->rank(), index);
    EXPECT_EQ(job->size(), 2);
    EXPECT_TRUE(job->has_servers());
    ASSERT_OK(job->Serve({Weights()}));
    ASSERT_OK(job->Barrier("here"));
    ASSERT_OK_AND_ASSIGN(auto all, job->AllGather(index == 0 ? "a" : "bc"));
    EXPECT_EQ(all, (std::vector<std::string>{"a", "bc"}));
    EXPECT_OK(job->servers().PullDense("weights").status());
    ASSERT_OK(job->Finish());
    ASSERT_OK(job->Finish());
    EXPECT_THAT(job->Connect(), StatusIs(StatusCode::kFailedPrecondition,
                                         HasSubstr("worker ")));
  });
  EXPECT_OK(serving->Run());
}

TEST(Job, AWorkerConnectsWhenItIsAskedTo) {
  const auto serving = OneServer(1);
  ASSERT_OK_AND_ASSIGN(auto job, Job::Make(WorkerOf(*serving, 0, 1)));
  ASSERT_OK(job->Serve({Weights()}));
  EXPECT_FALSE(job->connected());
  EXPECT_THAT(job->CheckConnected(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("worker 0 has not connected")));
  EXPECT_EQ(job->tables().size(), 1u);
  ASSERT_OK(job->Connect());
  ASSERT_OK(job->Connect());
  EXPECT_TRUE(job->connected());
  EXPECT_OK(job->servers().PullDense("weights").status());
  EXPECT_TRUE(job->End(0));
  EXPECT_TRUE(job->finished());
  EXPECT_OK(serving->Run());
}

TEST(Job, AWorkerThatNeverConnectedSaysGoodByeAllTheSame) {
  const auto serving = OneServer(1);
  ASSERT_OK_AND_ASSIGN(auto job, Job::Make(WorkerOf(*serving, 0, 1)));
  ASSERT_OK(job->Finish());
  EXPECT_OK(serving->Run());
}

TEST(Job, AWorkerThatFailedIsLostToTheServers) {
  const auto serving = OneServer(1);
  {
    ASSERT_OK_AND_ASSIGN(auto job, Job::Init(WorkerOf(*serving, 0, 1)));
    EXPECT_FALSE(job->End(1));
    EXPECT_FALSE(job->finished());
  }
  EXPECT_THAT(serving->Run(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 0")));
}

}  // namespace
}  // namespace fleet
