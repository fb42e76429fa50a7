// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/sync_batch_norm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/round.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fleet/sync/reducer.h"
#include "fleet/testing/ranks_as_threads.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using comm::Communicator;
using testing::HasSubstr;
using testing::RunRanks;

double Distance(const Tensor& a, const Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

struct Case {
  std::vector<int64_t> rest;  // extents behind the channels
  std::vector<int64_t> batch_sizes;
  bool channels_last = false;
  bool affine = true;
};

class SyncBatchNormCases : public testing::TestWithParam<Case> {};

TEST_P(SyncBatchNormCases, EqualsBatchNormOfTheJoinedBatch) {
  const Case& c = GetParam();
  constexpr int64_t kChannels = 3;
  std::vector<int64_t> shape = {0, kChannels};
  shape.insert(shape.end(), c.rest.begin(), c.rest.end());
  std::vector<Tensor> parts, weights;
  at::Generator random = at::detail::createCPUGenerator(7);
  for (int64_t size : c.batch_sizes) {
    shape[0] = size;
    // Far from zero: sums of squares would cancel. In steps of 1/64, so that
    // sums are exact in whatever order.
    parts.push_back(at::round(at::randn(shape, random) * 128) / 64 + 30);
    weights.push_back(at::randn(shape, random));
  }
  Tensor x = at::cat(parts).set_requires_grad(true);
  Tensor w = at::full({kChannels}, 1.5).set_requires_grad(c.affine);
  Tensor b = at::full({kChannels}, 0.5).set_requires_grad(c.affine);
  Tensor mean = at::zeros({kChannels}), var = at::ones({kChannels});
  Tensor want =
      at::batch_norm(x, c.affine ? w : Tensor(), c.affine ? b : Tensor(), mean,
                     var, true, 0.1, 1e-5, false);
  at::sum(want * at::cat(weights)).backward();

  const int size = static_cast<int>(parts.size());
  std::vector<Tensor> outs(size), dxs(size), dws(size), dbs(size), means(size),
      vars(size);
  RunRanks(size, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    Tensor mine = parts[rank].clone().set_requires_grad(true);
    Tensor rank_w = w.detach().clone().set_requires_grad(c.affine);
    Tensor rank_b = b.detach().clone().set_requires_grad(c.affine);
    means[rank] = at::zeros({kChannels});
    vars[rank] = at::ones({kChannels});
    SyncBatchNormOptions options{.unbiased = true};
    Tensor in = mine;
    if (c.channels_last) {
      in = mine.movedim(1, -1).contiguous();
      options.channel_axis = in.dim() - 1;
    }
    Tensor out = SyncBatchNorm(communicator, in, c.affine ? rank_w : Tensor(),
                               c.affine ? rank_b : Tensor(), means[rank],
                               vars[rank], options);
    if (c.channels_last) out = out.movedim(-1, 1);
    at::sum(out * weights[rank]).backward();
    outs[rank] = out.detach();
    dxs[rank] = mine.grad();
    dws[rank] = rank_w.grad();
    dbs[rank] = rank_b.grad();
  });
  EXPECT_LE(Distance(at::cat(outs), want), 1e-6);
  EXPECT_LE(Distance(at::cat(dxs), x.grad()), 1e-5);
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_LE(Distance(means[rank], mean), 1e-6);
    EXPECT_LE(Distance(vars[rank], var), 1e-6);
    EXPECT_TRUE(at::equal(means[rank], means[0]));
  }
  if (c.affine) {
    EXPECT_LE(Distance(at::sum(at::stack(dws), {0}), w.grad()), 1e-5);
    EXPECT_LE(Distance(at::sum(at::stack(dbs), {0}), b.grad()), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(SyncBatchNorm, SyncBatchNormCases,
                         testing::Values(Case{{5, 4}, {8, 8}}, Case{{}, {6, 6}},
                                         Case{{5, 4}, {3, 7, 2}},
                                         Case{{5, 4}, {4, 0}},
                                         Case{{5, 4}, {4, 4}, true},
                                         Case{{7}, {4, 4}, false, false},
                                         Case{{5, 4}, {8}}));

TEST(SyncBatchNorm, RunningVarianceIsThatOfTheBatchForPaddle) {
  RunRanks(2, [](Communicator& c) {
    Tensor x = at::full({1, 1}, c.rank() == 0 ? 1.0 : 3.0);
    Tensor mean = at::zeros({1}), var = at::zeros({1});
    SyncBatchNorm(c, x, {}, {}, mean, var, {.momentum = 0.0});
    EXPECT_EQ(mean.item<float>(), 2.0f);
    EXPECT_EQ(var.item<float>(), 1.0f);
  });
}

TEST(SyncBatchNorm, SumsHalfTypesInFloat) {
  RunRanks(2, [](Communicator& c) {
    Tensor x = at::randn({64, 2, 3}).to(at::kBFloat16);
    Tensor out = SyncBatchNorm(c, x, {}, {}, {}, {}, {});
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    EXPECT_LE(out.to(at::kFloat).abs().max().item<float>(), 10.0f);
  });
}

TEST(SyncBatchNorm, AWrongShapeIsRefusedBeforeAnythingIsSent) {
  RunRanks(1, [](Communicator& c) {
    EXPECT_ANY_THROW(SyncBatchNorm(c, at::zeros({3}), {}, {}, {}, {}, {}));
    EXPECT_ANY_THROW(
        SyncBatchNorm(c, at::zeros({3, 2}), at::ones({3}), {}, {}, {}, {}));
  });
}

TEST(SyncBatchNorm, AFailedExchangeIsThrown) {
  RunRanks(2, [](Communicator& c) {
    if (c.rank() == 1) {
      c.Abort(Unavailable("rank 1 had enough"));
      return;
    }
    try {
      SyncBatchNorm(c, at::zeros({3, 2}), {}, {}, {}, {}, {});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ExchangeError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 had enough"));
    }
  });
}

}  // namespace
}  // namespace fleet::sync
