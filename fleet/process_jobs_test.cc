// SPDX-License-Identifier: Apache-2.0
#include "fleet/process_jobs.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/no_destructor.h"
#include "fleet/base/status_matchers.h"
#include "fleet/collectives.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/text.h"
#include "fleet/testing/forked_ranks.h"
#include "fleet/testing/job_fixtures.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;

JobOptions RankOf(const cluster::Endpoint& first, int rank, int size) {
  return {.role = cluster::Worker(rank, size, first)};
}

cluster::Endpoint FreeEndpoint() {
  cluster::Port port;
  const cluster::Endpoint endpoint = port.endpoint();
  port.Close();
  return endpoint;
}

// A sum over all ranks; in group `ring`.
std::unique_ptr<program::Program> SumProgram(int ring = 0) {
  auto program = program::ParseText(
      "{ // block 0\n"
      "    var x : LOD_TENSOR.shape(-1).dtype(float32).data(True)\n"
      "    var out : LOD_TENSOR.shape(-1).dtype(float32)\n"
      "    {Out=['out']} = c_allreduce_sum(inputs={X=['x']}, ring_id = " +
      std::to_string(ring) + ")\n}\n");
  EXPECT_OK(program.status());
  return *std::move(program);
}

Result<std::vector<at::Tensor>> RunSum(exec::Executor& executor,
                                       const program::Program& program,
                                       double mine) {
  exec::Scope scope;
  return executor.Run(program, scope, {{"x", at::full({2}, mine)}}, {"out"});
}

TEST(ProcessJobs, WhoIsAloneNeedsNoBeginning) {
  ProcessJobs jobs;
  EXPECT_EQ(jobs.current(), nullptr);
  ASSERT_OK_AND_ASSIGN(Group * all, jobs.FindGroup(0));
  EXPECT_EQ(all->size(), 1);
  EXPECT_EQ(jobs.current(), &all->job());
  EXPECT_OK(Barrier(*all));
  EXPECT_FALSE(jobs.End(0).failed);
}

TEST(ProcessJobs, ARankThatHasNotMetTheOthersIsTold) {
  setenv("PADDLE_TRAINER_ID", "1", 1);
  setenv("PADDLE_TRAINERS_NUM", "2", 1);
  setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170,127.0.0.1:6171", 1);
  setenv("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6171", 1);
  ProcessJobs jobs;
  EXPECT_THAT(jobs.InUse().status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("rank 1 of 2, but has not met")));
  for (const char* name :
       {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_CURRENT_ENDPOINT"}) {
    unsetenv(name);
  }
}

TEST(ProcessJobs, AProgramRunsOverTheJobOfTheMoment) {
  const cluster::Endpoint first = FreeEndpoint();
  const cluster::Endpoint second = FreeEndpoint();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessJobs jobs;
      ops::OpLibrary library;
      exec::Executor executor(library, {});
      jobs.AddTo(executor);
      const auto sum = SumProgram();
      ASSERT_OK_AND_ASSIGN(Job * job, jobs.Begin(RankOf(first, rank, 2)));
      ASSERT_OK_AND_ASSIGN(auto values, RunSum(executor, *sum, rank + 1));
      EXPECT_TRUE(at::equal(values[0], at::full({2}, 3.0)));
      ASSERT_OK_AND_ASSIGN(Group * group, job->NewGroup({1, 0}));
      const auto turned = SumProgram(group->id());
      ASSERT_OK_AND_ASSIGN(values, RunSum(executor, *turned, rank + 1));
      EXPECT_TRUE(at::equal(values[0], at::full({2}, 3.0)));
      ASSERT_OK(job->Barrier());

      // The same process in another job, with the ranks the other way round.
      ASSERT_OK(jobs.Leave());
      EXPECT_EQ(jobs.current(), nullptr);
      EXPECT_THAT(group->Check(), StatusIs(StatusCode::kFailedPrecondition,
                                           HasSubstr("has left it")));
      ASSERT_OK_AND_ASSIGN(Job * next, jobs.Begin(RankOf(second, 1 - rank, 2)));
      EXPECT_NE(next, job);
      EXPECT_TRUE(job->broken());
      const auto again = SumProgram();
      ASSERT_OK_AND_ASSIGN(values, RunSum(executor, *again, rank + 1));
      EXPECT_TRUE(at::equal(values[0], at::full({2}, 3.0)));
      ASSERT_OK_AND_ASSIGN(Job * same, jobs.Begin(RankOf(second, rank, 2)));
      EXPECT_EQ(same, next) << "it has begun";
      EXPECT_FALSE(jobs.End(0).failed);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(ProcessJobs, CompilingAProgramConnectsNobody) {
  auto program = program::ParseText(
      "{ // block 0\n"
      "    var x : LOD_TENSOR.shape(-1).dtype(float32).data(True)\n"
      "    {} = send(inputs={X=['x']})\n"
      "}\n");
  ASSERT_OK(program.status());
  ProcessJobs jobs;
  ops::OpLibrary library;
  exec::Executor executor(library, {});
  jobs.AddTo(executor);
  EXPECT_OK(jobs.Prepare(**program)) << "nobody to connect to";
  exec::Scope scope;
  auto run = [&] {
    return executor.Run(**program, scope, {{"x", at::full({2}, 1.0)}}, {})
        .status();
  };
  EXPECT_THAT(run(), StatusIs(StatusCode::kFailedPrecondition,
                              HasSubstr("no worker of a job with servers")));
  cluster::Role role;
  role.worker_num = 1;
  role.server_num = 1;
  role.server_endpoints = {FreeEndpoint()};
  ASSERT_OK_AND_ASSIGN(auto job,
                       Job::Make({.role = role, .servers = WorkerOptions{}}));
  const Job& served = jobs.Add(std::move(job));
  EXPECT_THAT(run(), StatusIs(StatusCode::kFailedPrecondition,
                              HasSubstr("worker 0 has not connected")));
  EXPECT_FALSE(served.connected());
  setenv("FLEET_START_TIMEOUT", "0.2", 1);
  EXPECT_EQ(jobs.Prepare(**program).code(), StatusCode::kDeadlineExceeded);
  unsetenv("FLEET_START_TIMEOUT");
  EXPECT_OK(jobs.Prepare(*SumProgram())) << "it asks no servers";
}

// ---- the end of a process

// A process that is rank `rank` of 2 and exits with `status` after a barrier;
// the other has a second one.
int RankThatExits(const cluster::Endpoint& first, int rank, int status) {
  static base::NoDestructor<ProcessJobs> jobs(
      ProcessJobsOptions{.end_with_process = true});
  auto job = jobs->Begin(RankOf(first, rank, 2));
  if (!job.ok() || !(*job)->Barrier().ok()) std::exit(100);
  if (rank == 1) std::exit(status);
  const Status second = (*job)->Barrier();
  if (second.message().find("rank 1") == std::string::npos) std::exit(101);
  std::exit(4);
}

TEST(ProcessJobs, AProcessThatExitsTellsTheOthersHow) {
  const cluster::Endpoint first = FreeEndpoint();
  const std::vector<int> outcomes = comm::RunProcesses(
      2, [&](int rank) { return RankThatExits(first, rank, 3); });
  ASSERT_TRUE(WIFEXITED(outcomes[0]) && WIFEXITED(outcomes[1]));
  EXPECT_EQ(WEXITSTATUS(outcomes[1]), 3);
  EXPECT_EQ(WEXITSTATUS(outcomes[0]), 4);
}

TEST(ProcessJobs, AProcessThatExitsWithZeroHasFinished) {
  const cluster::Endpoint first = FreeEndpoint();
  const std::vector<int> outcomes = comm::RunProcesses(2, [&](int rank) {
    static base::NoDestructor<ProcessJobs> jobs(
        ProcessJobsOptions{.end_with_process = true});
    auto job = jobs->Begin(RankOf(first, rank, 2));
    if (!job.ok() || !(*job)->Barrier().ok()) return 100;
    std::exit(0);
  });
  EXPECT_EQ(outcomes, (std::vector{0, 0}));
}

TEST(ProcessJobs, AJobWithServersThatCannotEndWellIsAFailure) {
  const cluster::Endpoint first = FreeEndpoint();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessJobs jobs;
      ASSERT_OK_AND_ASSIGN(Job * job, jobs.Meet(RankOf(first, rank, 2)));
      EXPECT_EQ(jobs.current(), nullptr);
      if (rank == 0) {
        ASSERT_OK(job->Barrier());
        EXPECT_THAT(job->Barrier(),
                    StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1")));
        EXPECT_TRUE(jobs.End(1).others_failed);
        return;
      }
      served::PsCluster cluster(1, 1);
      cluster::Role role;
      role.worker_num = 1;
      ASSERT_OK_AND_ASSIGN(auto worker,
                           Job::Init(cluster.Client(0), {.role = role}));
      const Job& served = jobs.Add(std::move(worker));
      EXPECT_EQ(&served, jobs.served());
      cluster.server(0).Abort(Unavailable("killed"));
      ASSERT_OK(job->Barrier());
      const ProcessJobs::Outcome outcome = jobs.End(0);
      EXPECT_TRUE(outcome.failed);
      EXPECT_EQ(outcome.exit_status, EXIT_FAILURE);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace fleet
