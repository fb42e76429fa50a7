// SPDX-License-Identifier: Apache-2.0
#include "fleet/distributed_model.h"

#include <future>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include "fleet/base/status_matchers.h"
#include "fleet/distributed_sampler.h"
#include "fleet/testing/job_fixtures.h"

namespace fleet {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;
using torch::Tensor;

struct NetImpl : torch::nn::Module {
  NetImpl() : words(torch::nn::EmbeddingOptions(20, 4).sparse(true)), fc(4, 2) {
    register_module("words", words);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& ids) { return fc(words(ids).mean(1)); }

  torch::nn::Embedding words;
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

void Start(Net& net) {
  const torch::NoGradGuard no_grad;
  for (Tensor& p : net->parameters()) {
    p.copy_(torch::linspace(-0.5, 0.5, p.numel()).view(p.sizes()));
  }
}

Tensor Loss(const Tensor& out, const Tensor& y) {
  return torch::cross_entropy_loss(out, y);
}

TEST(DistributedModel, TrainsAsOneProcessWithTheJoinedBatch) {
  Tensor ids = torch::arange(40).remainder(20).view({8, 5});
  Tensor y = torch::arange(8).remainder(2);
  Net alone;
  Start(alone);
  torch::optim::SGD sgd(alone->parameters(), 0.5);
  for (int step = 0; step < 20; ++step) {
    sgd.zero_grad();
    Loss(alone(ids), y).backward();
    sgd.step();
  }
  std::vector<std::vector<Tensor>> results(2);
  RunJob(2, [&](Job& job) {
    Net net;
    if (job.rank() == 0) Start(net);
    DistributedModel model(job, net);
    DistributedOptimizer optimizer(job,
                                   torch::optim::SGD(model->parameters(), 0.5));
    EXPECT_EQ(optimizer.get_lr(), 0.5);
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      Tensor out = model(ids.narrow(0, 4 * job.rank(), 4));
      Loss(out, y.narrow(0, 4 * job.rank(), 4)).backward();
      EXPECT_TRUE(net->words->weight.grad().is_sparse());
      optimizer.step();
    }
    results[job.rank()] = model->parameters();
  });
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(results[0][i], results[1][i]));
    EXPECT_TRUE(
        torch::allclose(results[0][i], alone->parameters()[i], 1e-6, 1e-6));
  }
}

TEST(DistributedModel, HoldsBackGradientsAndTakesPartWithoutData) {
  RunJob(2, [](Job& job) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(3, 1);
    DistributedModel model(job, linear);
    Tensor x = torch::full({1, 3}, job.rank() + 1.0);
    model.NoSync([&] { model(x).sum().backward(); });
    EXPECT_EQ(linear->weight.grad()[0][0].item<float>(), job.rank() + 1.0f);
    model(x).sum().backward();
    EXPECT_EQ(linear->weight.grad()[0][0].item<float>(), 3.0f);
    if (job.rank() == 0) model(x).sum().backward();
    model.Join();
  });
}

TEST(DistributedOptimizer, ExchangesWhatWasHeldBackBeforeItsStep) {
  RunJob(2, [](Job& job) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(
        torch::nn::LinearOptions(3, 1).bias(false));
    {
      const torch::NoGradGuard no_grad;
      linear->weight.zero_();
    }
    DistributedModel model(job, linear);
    DistributedOptimizer optimizer(job,
                                   torch::optim::SGD(model->parameters(), 1.0));
    const Tensor x = torch::full({1, 3}, job.rank() + 1.0);
    auto weight = [&] { return linear->weight[0][0].item<float>(); };
    model.NoSync([&] {
      model(x).sum().backward();
      model(x).sum().backward();
    });
    // Two batches of 1 on rank 0, of 2 on rank 1: the mean is 3.
    optimizer.step();
    EXPECT_EQ(weight(), -3.0f);
    EXPECT_EQ(linear->weight.grad()[0][0].item<float>(), 3.0f);
    // What was exchanged is not exchanged again.
    const uint64_t rounds = model.reducer().stats().rounds;
    optimizer.step();
    EXPECT_EQ(weight(), -6.0f);
    // What was dropped neither.
    model.NoSync([&] { model(x).sum().backward(); });
    optimizer.zero_grad();
    optimizer.step();
    EXPECT_EQ(weight(), -6.0f);
    EXPECT_EQ(model.reducer().stats().rounds, rounds);
  });
}

TEST(DistributedModel, KeepsTheTimeoutThatItWasGiven) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  RunJob(2, [&](Job& job) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(3, 1);
    sync::ReducerOptions options;
    // Long enough for setting up, and no half hour.
    options.timeout = std::chrono::seconds(3);
    DistributedModel<torch::nn::LinearImpl> model(job, linear, options);
    if (job.rank() == 1) {
      EXPECT_EQ(is_over.wait_for(std::chrono::minutes(2)),
                std::future_status::ready);
      return;
    }
    try {
      model(torch::ones({1, 3})).sum().backward();
      ADD_FAILURE() << "an exchange with nobody";
    } catch (const sync::ExchangeError& error) {
      EXPECT_EQ(error.status().code(), StatusCode::kDeadlineExceeded)
          << error.status();
    }
    over.set_value();
  });
}

TEST(SyncBatchNorm, IsLibTorchsOnTheJoinedBatch) {
  torch::manual_seed(3);
  Tensor x = torch::randn({8, 3, 4, 4});
  torch::nn::BatchNorm2d norm(3);
  Tensor want = norm(x);
  norm->eval();
  Tensor want_later = norm(x);
  RunJob(2, [&](Job& job) {
    SyncBatchNorm mine(job, 3);
    Tensor part = x.narrow(0, 4 * job.rank(), 4);
    EXPECT_TRUE(torch::allclose(mine(part), want.narrow(0, 4 * job.rank(), 4),
                                1e-5, 1e-6));
    mine->eval();
    EXPECT_TRUE(torch::allclose(mine(x), want_later, 1e-5, 1e-6));
  });
}

std::vector<size_t> All(DistributedSampler& sampler) {
  std::vector<size_t> all;
  while (auto batch = sampler.next(2)) {
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

TEST(DistributedSampler, RanksShareTheExamplesOfAnEpoch) {
  std::vector<size_t> all;
  for (int rank = 0; rank < 2; ++rank) {
    DistributedSampler sampler(rank, 2, 5, {});
    EXPECT_EQ(sampler.size(), 3u);
    auto mine = All(sampler);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 6u);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4));
}

TEST(DistributedSampler, DropsOrRepeatsTheLast) {
  DistributedSampler drop(1, 2, 5, {.shuffle = false, .drop_last = true});
  EXPECT_THAT(All(drop), ElementsAre(1, 3));
  DistributedSampler repeat(1, 2, 5, {.shuffle = false});
  EXPECT_THAT(All(repeat), ElementsAre(1, 3, 0));
}

TEST(DistributedSampler, AnEpochHasItsOrder) {
  DistributedSampler sampler(0, 1, 50, {});
  sampler.reset();
  auto first = All(sampler);
  sampler.reset();
  auto second = All(sampler);
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  sampler.reset();
  EXPECT_EQ(All(sampler), first);
}

TEST(DistributedSampler, GoesOnWhereItWasSaved) {
  DistributedSampler sampler(0, 1, 9, {});
  sampler.reset();
  sampler.reset();
  sampler.next(4);
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(stream);
  auto rest = All(sampler);
  DistributedSampler other(0, 1, 9, {});
  torch::serialize::InputArchive in;
  in.load_from(stream);
  other.load(in);
  EXPECT_EQ(All(other), rest);
}

}  // namespace
}  // namespace fleet
