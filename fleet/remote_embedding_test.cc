// SPDX-License-Identifier: Apache-2.0
#include "fleet/remote_embedding.h"

#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet {
namespace {

using at::Tensor;
using plan::PsMode;
using served::PsCluster;
using served::RunWorkers;
using ::testing::HasSubstr;

constexpr int64_t kIds = 20;
constexpr int64_t kDim = 3;

table::UpdateOptions Sgd(double rate) {
  table::UpdateOptions update;
  update.learning_rate.base = rate;
  return update;
}

std::unique_ptr<Job> Connect(PsCluster& cluster, int index, PsMode mode) {
  cluster::Role role;
  role.index = index;
  role.worker_num = cluster.num_workers();
  role.server_num = static_cast<int>(cluster.num_servers());
  WorkerOptions options;
  options.mode = mode;
  options.geo_steps = 2;
  options.timeout = std::chrono::seconds(60);
  auto job =
      Job::Init(cluster.Client(index), {.role = role, .servers = options});
  EXPECT_OK(job.status());
  return *std::move(job);
}

RemoteEmbeddingOptions Rows() {
  return {.name = "emb",
          .dim = kDim,
          .num_embeddings = kIds,
          .initializer = table::UniformInit{-0.5f, 0.5f},
          .seed = 5,
          .update = Sgd(0.1)};
}

Tensor Ids(int step, int64_t begin, int64_t count) {
  const Tensor i = at::arange(begin, begin + count);
  return (i * 3 + step).remainder(kIds);
}
Tensor Target(const Tensor& ids) {
  return at::sin(ids.to(at::kFloat)).view({-1, 1});
}

Tensor LossOf(torch::nn::Linear& net, const Tensor& rows, const Tensor& ids) {
  const Tensor d = net(rows) - Target(ids);
  return (d * d).mean();
}

torch::nn::Linear MakeNet(float start) {
  torch::nn::Linear net(kDim, 1);
  net->weight.data().fill_(start);
  net->bias.data().fill_(start / 2);
  return net;
}

TEST(RemoteEmbedding, SyncTrainingEqualsOneProcess) {
  constexpr int kSteps = 20;
  PsCluster cluster(2, 2);
  Tensor first_rows, last_rows, last_weight;
  RunWorkers(2, [&](int index) {
    auto job = Connect(cluster, index, PsMode::kSync);
    RemoteEmbedding embedding(*job, Rows());
    // Others begin elsewhere, and take worker 0's values.
    torch::nn::Linear net = MakeNet(index == 0 ? 0.3f : 0.9f);
    RemoteParameters parameters(*job, net->named_parameters(), Sgd(0.1));
    std::vector<int64_t> all(kIds);
    for (int64_t i = 0; i < kIds; ++i) all[static_cast<size_t>(i)] = i;
    if (index == 0) first_rows = job->servers().PullRows("emb", all).value();
    ASSERT_OK(job->Barrier("looked"));
    for (int step = 0; step < kSteps; ++step) {
      net->zero_grad();
      const Tensor ids = Ids(step, 5 * index, 5);
      LossOf(net, embedding(ids), ids).backward();
      parameters.EndStep();
    }
    if (index == 0) {
      last_rows = job->servers().PullRows("emb", all).value();
      last_weight = net->weight.detach().clone();
    }
    ASSERT_OK(job->Finish());
  });

  Tensor rows = first_rows.clone().requires_grad_();
  torch::nn::Linear net = MakeNet(0.3f);
  for (int step = 0; step < kSteps; ++step) {
    const Tensor ids = Ids(step, 0, 10);
    LossOf(net, at::embedding(rows, ids), ids).backward();
    for (Tensor p : {rows, net->weight, net->bias}) {
      p.data().sub_(p.grad(), 0.1);
      p.mutable_grad().reset();
    }
  }
  EXPECT_TRUE(at::allclose(last_rows, rows.detach(), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(last_weight, net->weight.detach(), 1e-5, 1e-6));
}

class RemoteModes : public ::testing::TestWithParam<PsMode> {};

TEST_P(RemoteModes, Learn) {
  PsCluster cluster(2, 2);
  RunWorkers(2, [&](int index) {
    auto job = Connect(cluster, index, GetParam());
    RemoteEmbedding embedding(*job, Rows());
    torch::nn::Linear net = MakeNet(0.3f);
    RemoteParameters parameters(*job, net->named_parameters(), Sgd(0.1));
    double first = 0;
    double last = 0;
    for (int step = 0; step < 300; ++step) {
      net->zero_grad();
      const Tensor ids = Ids(step % 4, 5 * index, 5);
      const Tensor loss = LossOf(net, embedding(ids), ids);
      loss.backward();
      if (GetParam() == PsMode::kGeo) {
        const at::NoGradGuard no_history;
        for (Tensor p : net->parameters()) p.sub_(p.grad(), 0.1);
      }
      parameters.EndStep();
      if (step < 4) first += loss.item<double>() / 4;
      if (step >= 296) last += loss.item<double>() / 4;
    }
    EXPECT_LT(last, first / 3) << "worker " << index;
    ASSERT_OK(job->Finish());
  });
}

INSTANTIATE_TEST_SUITE_P(RemoteEmbedding, RemoteModes,
                         ::testing::Values(PsMode::kSync, PsMode::kHalfAsync,
                                           PsMode::kAsync, PsMode::kGeo),
                         [](const auto& info) {
                           return std::string(plan::ToString(info.param));
                         });

TEST(RemoteEmbedding, EvalChangesNothingAndHasNoHistory) {
  PsCluster cluster(1, 1);
  auto job = Connect(cluster, 0, PsMode::kSync);
  RemoteEmbedding embedding(*job, Rows());
  embedding->eval();
  const Tensor rows = embedding(Ids(0, 0, 4).view({2, 2}));
  EXPECT_EQ(rows.sizes().vec(), (std::vector<int64_t>{2, 2, kDim}));
  EXPECT_FALSE(rows.requires_grad());
  ASSERT_OK_AND_ASSIGN(auto stats, job->servers().TableStats("emb"));
  EXPECT_EQ(stats.num_rows, 0u);
}

TEST(RemoteEmbedding, FailuresAreExceptionsThatNameTheTable) {
  PsCluster cluster(1, 1);
  auto job = Connect(cluster, 0, PsMode::kAsync);
  RemoteEmbedding embedding(*job, Rows());
  try {
    embedding(at::full({2}, kIds, at::kLong));
    FAIL() << "an id that is none";
  } catch (const sync::ExchangeError& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("emb"));
    EXPECT_THAT(error.what(), HasSubstr("20"));
  }
}

}  // namespace
}  // namespace fleet
