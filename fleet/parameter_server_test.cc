// SPDX-License-Identifier: Apache-2.0
#include "fleet/parameter_server.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/parameter_server_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet {
namespace {

using at::Tensor;
using plan::PsMode;
using served::PsCluster;
using served::RunWorkers;
using ::testing::HasSubstr;

constexpr int kSteps = 20;
constexpr int64_t kBatch = 12;

struct Parameters {
  Tensor emb, u, v;
};

// Relative to the largest value.
void ExpectClose(const Tensor& got, const Tensor& expected, double tolerance,
                 const std::string& what) {
  const auto apart = at::abs(got - expected).max().item<float>();
  const auto largest = at::abs(expected).max().item<float>();
  EXPECT_LE(apart, tolerance * largest) << what;
}

// One process without servers, with batches of all examples.
Parameters TrainAlone(const std::string& rule, const Parameters& start) {
  ops::OpLibrary library;
  CtrTraining training(library.definitions(), rule);
  exec::Executor executor(library, {});
  exec::Scope scope;
  EXPECT_OK(executor.Run(*training.startup, scope, {}, {}).status());
  scope.Get("emb").copy_(start.emb);
  scope.Get("u").copy_(start.u);
  scope.Get("v").copy_(start.v);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_OK(
        executor.Run(*training.main, scope, CtrBatch(step, 0, kBatch), {"loss"})
            .status());
  }
  return {scope.Get("emb"), scope.Get("u"), scope.Get("v")};
}

// (rule, workers, servers)
class SyncEqualsOneProcess
    : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {};

TEST_P(SyncEqualsOneProcess, WithTheJoinedBatch) {
  const auto& [rule, num_workers, num_servers] = GetParam();
  PsCluster cluster(static_cast<uint32_t>(num_servers), num_workers);
  Parameters start;
  std::vector<Parameters> ends(static_cast<size_t>(num_workers));
  RunWorkers(num_workers, [&, rule = rule, n = num_workers](int index) {
    CtrWorker it(cluster, index, PsMode::kSync, rule);
    ASSERT_OK(it.Start());
    if (index == 0) {
      start = {it.AllRows(), it.scope.Get("u").clone(),
               it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Barrier("looked"));
    const int64_t share = kBatch / n;
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK(it.Train(step, share * index, share));
    }
    ends[static_cast<size_t>(index)] = {it.AllRows(), it.scope.Get("u").clone(),
                                        it.scope.Get("v").clone()};
    EXPECT_EQ(it.worker->stats().steps, static_cast<uint64_t>(kSteps));
    ASSERT_OK(it.job->Barrier("looked again"));
    ASSERT_OK(it.job->Finish());
  });
  for (size_t i = 0; i < cluster.num_servers(); ++i) {
    EXPECT_OK(cluster.server(i).WaitUntilStopped(served::Soon()));
  }
  const Parameters alone = TrainAlone(rule, start);
  const double tolerance = rule == "sgd" || rule == "momentum" ? 1e-6 : 1e-5;
  for (const Parameters& end : ends) {
    ExpectClose(end.emb, alone.emb, tolerance, "emb");
    ExpectClose(end.u, alone.u, tolerance, "u");
    ExpectClose(end.v, alone.v, tolerance, "v");
    EXPECT_TRUE(at::equal(end.u, ends[0].u));
  }
  EXPECT_FALSE(at::allclose(ends[0].u, start.u, 1e-2));
}

INSTANTIATE_TEST_SUITE_P(
    ParameterServer, SyncEqualsOneProcess,
    ::testing::Combine(::testing::Values("sgd", "momentum", "adam", "adagrad"),
                       ::testing::Values(1, 2, 3), ::testing::Values(1, 2)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" +
             std::to_string(std::get<1>(info.param)) + "x" +
             std::to_string(std::get<2>(info.param));
    });

// What servers do, done by hand with LibTorch's autograd.
TEST(ParameterServer, SyncEqualsTrainingByHand) {
  PsCluster cluster(2, 2);
  Parameters start, end;
  RunWorkers(2, [&](int index) {
    CtrWorker it(cluster, index, PsMode::kSync, "sgd");
    ASSERT_OK(it.Start());
    if (index == 0) {
      start = {it.AllRows(), it.scope.Get("u").clone(),
               it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Barrier("looked"));
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK(it.Train(step, 6 * index, 6));
    }
    if (index == 0) {
      end = {it.AllRows(), it.scope.Get("u").clone(),
             it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Finish());
  });
  Tensor emb = start.emb.clone().requires_grad_();
  Tensor u = start.u.clone().requires_grad_();
  Tensor v = start.v.clone().requires_grad_();
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<exec::Feed> batch = CtrBatch(step, 0, kBatch);
    const Tensor rows = at::cat({at::embedding(emb, batch[0].value.view(-1)),
                                 at::embedding(emb, batch[1].value.view(-1))},
                                1);
    const Tensor d =
        at::matmul(at::tanh(at::matmul(rows, u)), v) - batch[2].value;
    (d * d).mean().backward();
    for (Tensor* p : {&emb, &u, &v}) {
      p->data().sub_(p->grad(), 0.1);
      p->mutable_grad().reset();
    }
  }
  ExpectClose(end.emb, emb.detach(), 1e-6, "emb");
  ExpectClose(end.u, u.detach(), 1e-6, "u");
  ExpectClose(end.v, v.detach(), 1e-6, "v");
}

// Two threads with an executor each, and parameters that they share.
TEST(ParameterServer, ThreadsOfAWorkerTakeStepsTogether) {
  PsCluster cluster(2, 2);
  Parameters start, end;
  RunWorkers(2, [&](int index) {
    CtrWorker it(cluster, index, PsMode::kSync, "momentum");
    ASSERT_OK(it.Start());
    if (index == 0) {
      start = {it.AllRows(), it.scope.Get("u").clone(),
               it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Barrier("looked"));
    it.worker->BeginThreads(2);
    std::vector<exec::Scope*> scopes = {&it.scope.AddInner(),
                                        &it.scope.AddInner()};
    RunWorkers(2, [&](int thread) {
      exec::Executor executor(it.library, {});
      it.job->AddTo(executor);
      const int64_t begin = 6 * index + 3 * thread;
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_OK(executor
                      .Run(*it.training.main,
                           *scopes[static_cast<size_t>(thread)],
                           CtrBatch(step, begin, 3), {"loss"})
                      .status());
      }
      it.worker->EndThread();
    });
    if (index == 0) {
      end = {it.AllRows(), it.scope.Get("u").clone(),
             it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Finish());
  });
  const Parameters alone = TrainAlone("momentum", start);
  ExpectClose(end.emb, alone.emb, 1e-6, "emb");
  ExpectClose(end.u, alone.u, 1e-6, "u");
  ExpectClose(end.v, alone.v, 1e-6, "v");
}

// Worker 0 has batches for four steps, worker 1 for seven; then all come to the
// barrier, and take two more steps together.
TEST(ParameterServer, StepsGoOnWithoutAWorkerThatWaitsForTheOthers) {
  constexpr int kShort = 4;
  constexpr int kLong = 7;
  PsCluster cluster(2, 2);
  Parameters start;
  std::vector<Parameters> ends(2);
  RunWorkers(2, [&](int index) {
    CtrWorker it(cluster, index, PsMode::kSync, "momentum");
    ASSERT_OK(it.Start());
    if (index == 0) {
      start = {it.AllRows(), it.scope.Get("u").clone(),
               it.scope.Get("v").clone()};
    }
    ASSERT_OK(it.job->Barrier("looked"));
    const int steps = index == 0 ? kShort : kLong;
    for (int step = 0; step < steps; ++step) {
      ASSERT_OK(it.Train(step, 6 * index, 6));
    }
    ASSERT_OK(it.job->Barrier("all data is used"));
    // Who waited has the parameters that the others made.
    ASSERT_OK_AND_ASSIGN(const Tensor u, it.worker->PullDense("u"));
    EXPECT_TRUE(at::equal(it.scope.Get("u"), u));
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> all,
                         it.job->AllGather(std::to_string(steps)));
    EXPECT_EQ(all, (std::vector<std::string>{"4", "7"}));
    for (int step = kLong; step < kLong + 2; ++step) {
      ASSERT_OK(it.Train(step, 6 * index, 6));
    }
    ends[static_cast<size_t>(index)] = {it.AllRows(), it.scope.Get("u").clone(),
                                        it.scope.Get("v").clone()};
    ASSERT_OK(it.job->Barrier("looked again"));
    ASSERT_OK(it.job->Finish());
  });
  // One process, which has the second half of the batches alone where worker 1
  // had.
  ops::OpLibrary library;
  CtrTraining training(library.definitions(), "momentum");
  exec::Executor executor(library, {});
  exec::Scope scope;
  ASSERT_OK(executor.Run(*training.startup, scope, {}, {}).status());
  scope.Get("emb").copy_(start.emb);
  scope.Get("u").copy_(start.u);
  scope.Get("v").copy_(start.v);
  for (int step = 0; step < kLong + 2; ++step) {
    const bool alone = step >= kShort && step < kLong;
    const std::vector<exec::Feed> batch =
        alone ? CtrBatch(step, 6, 6) : CtrBatch(step, 0, 12);
    ASSERT_OK(executor.Run(*training.main, scope, batch, {"loss"}).status());
  }
  for (const Parameters& end : ends) {
    ExpectClose(end.emb, scope.Get("emb"), 1e-6, "emb");
    ExpectClose(end.u, scope.Get("u"), 1e-6, "u");
    ExpectClose(end.v, scope.Get("v"), 1e-6, "v");
  }
}

class OtherModes : public ::testing::TestWithParam<PsMode> {};

TEST_P(OtherModes, Learn) {
  PsCluster cluster(2, 2);
  RunWorkers(2, [&](int index) {
    WorkerOptions options;
    options.geo_steps = 3;
    CtrWorker it(cluster, index, GetParam(), "sgd", options);
    ASSERT_OK(it.Start());
    double first = 0;
    double last = 0;
    for (int step = 0; step < 200; ++step) {
      ASSERT_OK_AND_ASSIGN(
          auto fetched,
          it.executor.Run(*it.training.main, it.scope,
                          CtrBatch(step % 5, 6 * index, 6), {"loss"}));
      const double loss = fetched[0].item<double>();
      if (step < 5) first += loss / 5;
      if (step >= 195) last += loss / 5;
    }
    EXPECT_LT(last, first / 2) << "worker " << index;
    ASSERT_OK(it.worker->Flush());
    ASSERT_OK(it.job->Barrier("all have flushed"));
    ASSERT_OK(it.job->Finish());
    EXPECT_OK(it.job->Finish());
  });
  EXPECT_OK(cluster.server(0).WaitUntilStopped(served::Soon()));
  EXPECT_OK(cluster.server(1).WaitUntilStopped(served::Soon()));
}

INSTANTIATE_TEST_SUITE_P(ParameterServer, OtherModes,
                         ::testing::Values(PsMode::kHalfAsync, PsMode::kAsync,
                                           PsMode::kGeo),
                         [](const auto& info) {
                           return std::string(plan::ToString(info.param));
                         });

TEST(ParameterServer, WhatIsSavedGoesOnWhereItStood) {
  const testing::TemporaryFolder temporary;
  const base::Path& folder = temporary.path();
  Parameters saved;
  {
    PsCluster cluster(2, 1);
    CtrWorker it(cluster, 0, PsMode::kAsync, "adam");
    ASSERT_OK(it.Start());
    for (int step = 0; step < 5; ++step) ASSERT_OK(it.Train(step, 0, kBatch));
    ASSERT_OK(it.worker->Save(folder.string()));
    saved.emb = it.AllRows();
    ASSERT_OK_AND_ASSIGN(saved.u, it.worker->PullDense("u"));
    ASSERT_OK(it.job->Finish());
  }
  ps::PsServerOptions options;
  options.load_folder = folder.string();
  // Another number of servers.
  PsCluster cluster(1, 1, options);
  CtrWorker it(cluster, 0, PsMode::kAsync, "adam");
  ASSERT_OK(it.Start());
  // The worker's first values do not go before what was loaded.
  EXPECT_TRUE(at::equal(it.scope.Get("u"), saved.u));
  EXPECT_TRUE(at::equal(it.AllRows(), saved.emb));
  ASSERT_OK(it.job->Finish());
}

TEST(ParameterServer, IdsOutsideTheEmbeddingAreNamed) {
  PsCluster cluster(1, 1);
  CtrWorker it(cluster, 0, PsMode::kAsync, "sgd");
  ASSERT_OK(it.Start());
  std::vector<exec::Feed> batch = CtrBatch(0, 0, 3);
  batch[0].value = batch[0].value.clone();
  batch[0].value[1][0] = kNumIds;
  const Status status =
      it.executor.Run(*it.training.main, it.scope, batch, {"loss"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("distributed_lookup_table"));
  EXPECT_THAT(status.message(), HasSubstr("id 50"));
  ASSERT_OK(it.job->Finish());
}

TEST(ParameterServer, AWorkerThatCouldNotStopHasNotStopped) {
  PsCluster cluster(1, 1);
  CtrWorker it(cluster, 0, PsMode::kAsync, "sgd");
  ASSERT_OK(it.Start());
  cluster.server(0).Abort(Unavailable("killed"));
  const Status first = it.job->Finish();
  EXPECT_EQ(first.code(), StatusCode::kUnavailable) << first;
  const Status second = it.job->Finish();
  EXPECT_EQ(second.code(), first.code());
  EXPECT_EQ(second.message(), first.message());
}

TEST(ParameterServer, ParametersAreFoundByName) {
  PsCluster cluster(2, 1);
  CtrWorker it(cluster, 0, PsMode::kAsync, "sgd");
  ASSERT_OK(it.Start());
  ASSERT_OK_AND_ASSIGN(Tensor u, it.worker->PullDense("u"));
  EXPECT_TRUE(at::equal(u, it.scope.Get("u")));
  ASSERT_OK(it.worker->AssignDense("u", u * 2));
  ASSERT_OK_AND_ASSIGN(Tensor twice, it.worker->PullDense("u"));
  EXPECT_TRUE(at::equal(twice, u * 2));
  EXPECT_EQ(it.worker->PullDense("w").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(it.worker->PullRows("u", {1}).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(auto stats, it.worker->TableStats("emb"));
  EXPECT_EQ(stats.num_rows, 0u);
  ASSERT_OK(it.job->Finish());
}

}  // namespace
}  // namespace fleet
