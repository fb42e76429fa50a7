// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "fleet/base/status_matchers.h"
#include "fleet/ops/eager/backward.h"
#include "fleet/ops/eager/eager.h"
#include "fleet/ops/gemm.h"
#include "fleet/ops/kernels.h"
#include "fleet/testing/ranks_as_threads.h"

namespace fleet::sync {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using comm::Communicator;
using testing::HasSubstr;
using Overlap = ReducerOptions::Overlap;
using testing::RunRanks;

// Deterministic values, the same in every rank.
Tensor Values(at::IntArrayRef shape, int seed,
              at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  std::vector<double> values;
  uint64_t state = 88172645463325252ull + 2862933555777941757ull * seed;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    values.push_back(static_cast<double>(state >> 40) / (1 << 23) - 1.0);
  }
  return at::tensor(values, at::kDouble).view(shape).to(type);
}

Tensor Leaf(at::IntArrayRef shape, int seed, at::ScalarType type = at::kFloat) {
  return Values(shape, seed, type).set_requires_grad(true);
}

// 6-8-3 with a tanh between.
struct Net {
  explicit Net(int seed = 1)
      : w1(Leaf({6, 8}, seed)),
        b1(Leaf({8}, seed + 1)),
        w2(Leaf({8, 3}, seed + 2)),
        b2(Leaf({3}, seed + 3)) {}

  Tensor Loss(const Tensor& x, const Tensor& y) const {
    Tensor hidden = at::tanh(at::matmul(x, w1) + b1);
    return at::mse_loss(at::matmul(hidden, w2) + b2, y);
  }
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2}; }
  std::vector<NamedTensor> named() const {
    return {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}};
  }
  void ClearGradients() const {
    for (Tensor p : parameters()) p.mutable_grad().reset();
  }

  Tensor w1, b1, w2, b2;
};

struct Batch {
  Batch(int64_t size, int seed)
      : x(Values({size, 6}, seed)), y(Values({size, 3}, seed + 1)) {}

  Tensor x, y;
};

void Backward(const Tensor& loss, bool with_engine = false) {
  if (with_engine) {
    loss.backward();
  } else {
    ops::Backward({loss}, {at::ones_like(loss)}, false);
  }
}

std::unique_ptr<Reducer> MakeReducer(Communicator& c,
                                     std::vector<NamedTensor> parameters,
                                     ReducerOptions options = {}) {
  options.timeout = 20s;
  auto made = Reducer::Make(c, std::move(parameters), {}, options);
  if (!made.ok()) throw std::runtime_error(made.status().ToString());
  return std::move(made).value();
}

// |a - b| against the largest of b.
double Distance(const Tensor& a, const Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

enum class Rule { kSgd, kMomentum, kAdam, kAdagrad };

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(
    Rule rule, const std::vector<Tensor>& parameters) {
  using namespace torch::optim;
  switch (rule) {
    case Rule::kSgd:
      return std::make_unique<SGD>(parameters, SGDOptions(0.1));
    case Rule::kMomentum:
      return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.9));
    case Rule::kAdam:
      return std::make_unique<Adam>(parameters, AdamOptions(0.01));
    case Rule::kAdagrad:
      return std::make_unique<Adagrad>(parameters, AdagradOptions(0.05));
  }
  return nullptr;
}

struct Way {
  Rule rule;
  bool with_engine;
  Overlap overlap;
  int size;
};

class Training : public testing::TestWithParam<Way> {};

TEST_P(Training, EqualsOneProcessWithTheJoinedBatch) {
  const Way way = GetParam();
  constexpr int kSteps = 20, kBatch = 8;
  Net alone;
  auto optimizer = MakeOptimizer(way.rule, alone.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    Batch batch(kBatch * way.size, 100 + step);
    alone.Loss(batch.x, batch.y).backward();
    optimizer->step();
  }

  std::vector<Net> nets(way.size);
  RunRanks(way.size, [&](Communicator& c) {
    Net& net = nets[c.rank()];
    // Buckets of one or two gradients.
    auto reducer = MakeReducer(
        c, net.named(),
        {.bucket_bytes = 256, .last_bucket_bytes = 64, .overlap = way.overlap});
    EXPECT_GT(reducer->stats().num_buckets, 1);
    auto rank_optimizer = MakeOptimizer(way.rule, net.parameters());
    for (int step = 0; step < kSteps; ++step) {
      rank_optimizer->zero_grad();
      Batch batch(kBatch * way.size, 100 + step);
      Tensor x = batch.x.narrow(0, kBatch * c.rank(), kBatch);
      Tensor y = batch.y.narrow(0, kBatch * c.rank(), kBatch);
      Backward(net.Loss(x, y), way.with_engine);
      rank_optimizer->step();
    }
    EXPECT_EQ(reducer->stats().rounds, 20u);
  });
  const double tolerance =
      way.rule == Rule::kSgd || way.rule == Rule::kMomentum ? 1e-6 : 1e-5;
  for (int i = 0; i < 4; ++i) {
    EXPECT_LE(Distance(nets[0].parameters()[i], alone.parameters()[i]),
              tolerance)
        << "parameter " << i;
    for (const Net& net : nets) {
      EXPECT_TRUE(at::equal(net.parameters()[i], nets[0].parameters()[i]))
          << "parameter " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reducer, Training,
    testing::Values(Way{Rule::kSgd, false, Overlap::kNo, 2},
                    Way{Rule::kSgd, true, Overlap::kNo, 2},
                    Way{Rule::kSgd, false, Overlap::kYes, 2},
                    Way{Rule::kSgd, true, Overlap::kYes, 3},
                    Way{Rule::kMomentum, false, Overlap::kNo, 3},
                    Way{Rule::kAdam, false, Overlap::kNo, 2},
                    Way{Rule::kAdagrad, false, Overlap::kYes, 2}));

TEST(Reducer, MakesParametersAndBuffersThoseOfRankZero) {
  std::vector<Net> nets = {Net(1), Net(50), Net(60)};
  std::vector<Tensor> large, counts;
  for (int i = 0; i < 3; ++i) {
    large.push_back(Leaf({600, 600}, i));
    counts.push_back(at::full({2}, i, at::kLong));
  }
  RunRanks(3, [&](Communicator& c) {
    auto parameters = nets[c.rank()].named();
    parameters.push_back({"large", large[c.rank()]});
    auto made = Reducer::Make(c, parameters,
                              {{"count", counts[c.rank()]}, {"none", {}}}, {});
    ASSERT_OK(made.status());
  });
  Net first(1);
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(at::equal(nets[rank].parameters()[i], first.parameters()[i]));
    }
    EXPECT_TRUE(at::equal(large[rank], Values({600, 600}, 0)));
    EXPECT_TRUE(at::equal(counts[rank], at::full({2}, 0, at::kLong)));
  }
}

TEST(Reducer, NamesTheParameterThatDiffersOnAllRanks) {
  RunRanks(3, [](Communicator& c) {
    Net net;
    auto parameters = net.named();
    if (c.rank() == 2) parameters[2].tensor = Leaf({8, 4}, 5);
    Status status = Reducer::Make(c, parameters, {}, {}).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                 HasSubstr("parameter 2 of rank 0 is 'w2', "
                                           "Float [8, 3], trainable; that of "
                                           "rank 2 is 'w2', Float [8, 4]")));
  });
  RunRanks(2, [](Communicator& c) {
    Net net;
    auto parameters = net.named();
    if (c.rank() == 1) parameters.pop_back();
    Status status = Reducer::Make(c, parameters, {}, {}).status();
    EXPECT_THAT(status,
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("'b2', Float [3], trainable; that of rank 1 "
                                   "is none")));
  });
  RunRanks(2, [](Communicator& c) {
    Tensor w = Values({4, 4}, 1);
    if (c.rank() == 1) w = w.t();
    Status status =
        Reducer::Make(c, {{"w", w.detach().requires_grad_()}}, {}, {}).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                 HasSubstr("strides [1, 4]")));
  });
}

TEST(Reducer, AParameterThatIsNoLeafIsRefused) {
  RunRanks(1, [](Communicator& c) {
    Tensor w = Leaf({2}, 1);
    EXPECT_THAT(Reducer::Make(c, {{"w", w * 2}}, {}, {}).status(),
                HasCode(StatusCode::kInvalidArgument));
  });
}

TEST(Reducer, GradientsAreViewsThatStayWhereTheyAre) {
  RunRanks(2, [](Communicator& c) {
    Net net;
    auto reducer = MakeReducer(c, net.named());
    Batch batch(4, c.rank());
    Backward(net.Loss(batch.x, batch.y));
    const void* where = net.w1.grad().data_ptr();
    net.ClearGradients();
    Backward(net.Loss(batch.x, batch.y));
    EXPECT_EQ(net.w1.grad().data_ptr(), where);
    EXPECT_TRUE(net.w1.grad().is_contiguous());
    EXPECT_FALSE(net.w1.grad().requires_grad());
    // They outlive the reducer.
    reducer.reset();
    EXPECT_GT(net.w1.grad().abs().max().item<float>(), 0);
  });
}

TEST(Reducer, OurKernelsComputeGradientsInTheBucket) {
  static const ops::OpLibrary library;
  RunRanks(2, [](Communicator& c) {
    Tensor w = Leaf({6, 3}, 1), b = Leaf({3}, 2);
    auto reducer = MakeReducer(c, {{"w", w}, {"b", b}});
    Tensor x = Values({4, 6}, 10 + c.rank());
    for (int step = 1; step <= 3; ++step) {
      const Tensor inputs[] = {x, w, b};
      const uint32_t ends[] = {1, 2, 3};
      const ops::Op& fc = *library.Find("fc");
      auto out = ops::RunEager(fc, inputs, ends, fc.def->DefaultAttrs(), {});
      ASSERT_OK(out.status());
      Backward(at::sum((*out)[0]));
      Tensor sums = (at::sum(Values({4, 6}, 10), {0}) +
                     at::sum(Values({4, 6}, 11), {0})) /
                    2;
      EXPECT_LE(Distance(w.grad().select(1, 0), sums), 1e-6);
      EXPECT_LE(Distance(b.grad(), at::full({3}, 4.0)), 1e-6);
      w.mutable_grad().reset();
      b.mutable_grad().reset();
      if (ops::GemmIsFast()) {
        EXPECT_EQ(reducer->stats().in_place, 2u * step);
        EXPECT_EQ(reducer->stats().copied, 0u);
      }
    }
  });
}

TEST(Reducer, AddsToGradientsThatWereNotCleared) {
  RunRanks(2, [](Communicator& c) {
    Tensor w = Leaf({3}, 1);
    auto reducer = MakeReducer(c, {{"w", w}});
    for (int step = 0; step < 3; ++step) {
      Backward(at::sum(w * (c.rank() + 1.0)), step == 1);
    }
    EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 4.5)));
  });
}

TEST(Reducer, WithoutSyncGradientsStayOnTheirRank) {
  for (bool with_engine : {false, true}) {
    RunRanks(2, [&](Communicator& c) {
      Tensor w = Leaf({3}, 1), other = Leaf({2}, 1);
      auto reducer = MakeReducer(c, {{"w", w}, {"other", other}});
      reducer->set_sync(false);
      Backward(at::sum(w * (c.rank() + 1.0)) + at::sum(other * 4), with_engine);
      EXPECT_EQ(reducer->stats().rounds, 0u);
      EXPECT_TRUE(at::equal(w.grad(), at::full({3}, c.rank() + 1.0)));
      reducer->set_sync(true);
      // `other` is not reached now, but was before.
      Backward(at::sum(w * (c.rank() + 1.0)), with_engine);
      EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 3.0)));
      EXPECT_TRUE(at::equal(other.grad(), at::full({2}, 4.0)));
    });
  }
}

TEST(Reducer, AParameterThatOneRankDoesNotUseCountsAsZeroThere) {
  for (Overlap overlap : {Overlap::kNo, Overlap::kYes}) {
    RunRanks(2, [&](Communicator& c) {
      Tensor a = Leaf({3}, 1), b = Leaf({4}, 2), d = Leaf({2}, 3);
      auto reducer = MakeReducer(c, {{"a", a}, {"b", b}, {"d", d}},
                                 {.bucket_bytes = 16, .overlap = overlap});
      for (int step = 0; step < 3; ++step) {
        Tensor loss = at::sum(a * 2);
        if (c.rank() == 0) loss = loss + at::sum(b * 6);
        Backward(loss);
        EXPECT_TRUE(at::equal(a.grad(), at::full({3}, 2.0)));
        EXPECT_TRUE(at::equal(b.grad(), at::full({4}, 3.0)));
        EXPECT_FALSE(d.grad().defined());
        a.mutable_grad().reset();
        b.mutable_grad().reset();
      }
    });
  }
}

TEST(Reducer, AParameterThatNoRankUsesKeepsItsGradient) {
  RunRanks(2, [](Communicator& c) {
    Tensor a = Leaf({3}, 1), b = Leaf({4}, 2);
    auto reducer = MakeReducer(c, {{"a", a}, {"b", b}});
    Backward(at::sum(a) + at::sum(b * (1.0 + c.rank())));
    EXPECT_TRUE(at::equal(b.grad(), at::full({4}, 1.5)));
    Backward(at::sum(a));
    EXPECT_TRUE(at::equal(a.grad(), at::full({3}, 2.0)));
    EXPECT_TRUE(at::equal(b.grad(), at::full({4}, 1.5)));
    // And takes part with it when one rank uses it again.
    Backward(c.rank() == 0 ? at::sum(a) + at::sum(b) : at::sum(a));
    EXPECT_TRUE(at::equal(b.grad(), at::full({4}, 2.0)));
  });
}

TEST(Reducer, MixesTypesAndLayouts) {
  RunRanks(2, [](Communicator& c) {
    Tensor f = Leaf({3, 2, 2, 2}, 1)
                   .detach()
                   .contiguous(at::MemoryFormat::ChannelsLast)
                   .set_requires_grad(true);
    Tensor d = Leaf({5}, 2, at::kDouble), h = Leaf({7}, 3, at::kBFloat16);
    auto reducer = MakeReducer(c, {{"f", f}, {"d", d}, {"h", h}});
    EXPECT_EQ(reducer->stats().num_buckets, 3);
    const double factor = c.rank() == 0 ? 1.0 : 3.0;
    Backward(at::sum(f * factor) + at::sum(d * factor) +
             at::sum(h * factor).to(at::kFloat));
    EXPECT_TRUE(at::equal(f.grad(), at::full({3, 2, 2, 2}, 2.0)));
    EXPECT_EQ(f.grad().strides(), f.strides());
    EXPECT_TRUE(at::equal(d.grad(), at::full({5}, 2.0, at::kDouble)));
    EXPECT_TRUE(at::equal(h.grad(), at::full({7}, 2.0, at::kBFloat16)));
  });
}

// The gradient of an embedding with sparse=True: rows of `table` by `ids`.
Tensor Lookup(const Tensor& table, std::vector<int64_t> ids) {
  static const ops::OpLibrary library;
  const ops::Op& op = *library.Find("lookup_table_v2");
  ops::Attrs attrs = op.def->DefaultAttrs();
  for (size_t i = 0; i < op.def->attrs.size(); ++i) {
    if (op.def->attrs[i].name == "is_sparse") attrs[i] = true;
  }
  const Tensor inputs[] = {table, at::tensor(ids, at::kLong)};
  const uint32_t ends[] = {1, 2};
  auto out = ops::RunEager(op, inputs, ends, attrs, {});
  return out.value()[0];
}

TEST(Reducer, ExchangesRowsOfSparseGradients) {
  std::vector<Tensor> results(2);
  RunRanks(2, [&](Communicator& c) {
    Tensor table = Leaf({10, 2}, 1), unused = Leaf({10, 2}, 2);
    Tensor w = Leaf({2}, 3);
    auto reducer = MakeReducer(
        c, {{"table", table, true}, {"w", w}, {"unused", unused, true}});
    for (int step = 0; step < 2; ++step) {
      Tensor rows =
          c.rank() == 0 ? Lookup(table, {1, 1, 4}) : Lookup(table, {4});
      Backward(at::sum(rows) + at::sum(w));
      ASSERT_EQ(table.grad().layout(), at::kSparse);
      Tensor want = at::zeros({10, 2});
      want[1].fill_(1.0);
      want[4].fill_(1.0);
      EXPECT_TRUE(at::equal(table.grad().to_dense(), want));
      EXPECT_FALSE(unused.grad().defined());
      results[c.rank()] = table.grad()._values().clone();
      table.mutable_grad().reset();
    }
  });
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

TEST(Reducer, AnUndeclaredSparseGradientBecomesDense) {
  RunRanks(2, [](Communicator& c) {
    Tensor table = Leaf({10, 2}, 1);
    auto reducer = MakeReducer(c, {{"table", table}});
    Backward(at::sum(Lookup(table, {2L + c.rank()})));
    Tensor want = at::zeros({10, 2});
    want[2].fill_(0.5);
    want[3].fill_(0.5);
    EXPECT_TRUE(at::equal(table.grad(), want));
  });
}

TEST(Reducer, ARankWithoutDataTakesPartUntilAllHaveJoined) {
  for (Overlap overlap : {Overlap::kNo, Overlap::kYes}) {
    std::vector<Net> nets(3);
    std::vector<Tensor> tables;
    for (int i = 0; i < 3; ++i) tables.push_back(Leaf({10, 2}, 9));
    RunRanks(3, [&](Communicator& c) {
      Net& net = nets[c.rank()];
      Tensor& table = tables[c.rank()];
      auto parameters = net.named();
      parameters.push_back({"table", table, true});
      auto reducer = MakeReducer(c, parameters, {.overlap = overlap});
      for (int epoch = 0; epoch < 2; ++epoch) {
        // Rank 1 has the most.
        const int steps = c.rank() == 1 ? 6 : 2 + c.rank();
        for (int step = 0; step < steps; ++step) {
          Batch batch(4, 10 * step + c.rank());
          Backward(net.Loss(batch.x, batch.y) + at::sum(Lookup(table, {1})));
          for (Tensor p : net.parameters()) {
            p.detach().sub_(p.grad() * 0.1);
          }
          net.ClearGradients();
          if (step >= 4) {  // two ranks took part with zeros
            EXPECT_LE(
                Distance(table.grad().to_dense()[1], at::full({2}, 1.0 / 3.0)),
                1e-6);
          }
          table.mutable_grad().reset();
        }
        ASSERT_OK(reducer->Join());
      }
    });
    for (int rank = 0; rank < 3; ++rank) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(
            at::equal(nets[rank].parameters()[i], nets[1].parameters()[i]));
      }
    }
    EXPECT_FALSE(at::equal(nets[0].w1, Net().w1));
  }
}

TEST(Reducer, AFailedExchangeIsThrownByBackward) {
  for (bool with_engine : {false, true}) {
    for (Overlap overlap : {Overlap::kNo, Overlap::kYes}) {
      RunRanks(2, [&](Communicator& c) {
        Net net;
        auto reducer = MakeReducer(c, net.named(), {.overlap = overlap});
        Batch batch(4, 1);
        Tensor loss = net.Loss(batch.x, batch.y);
        if (c.rank() == 1) {
          c.Abort(Unavailable("rank 1 had enough"));
          return;
        }
        try {
          Backward(loss, with_engine);
          ADD_FAILURE() << "nothing was thrown";
        } catch (const ExchangeError& error) {
          EXPECT_EQ(error.status().code(), StatusCode::kUnavailable);
          EXPECT_THAT(error.what(), HasSubstr("rank 1 had enough"));
        }
        // The next backward fails in the same way: no hang and no crash.
        EXPECT_THROW(Backward(net.Loss(batch.x, batch.y), with_engine),
                     ExchangeError);
        EXPECT_THAT(reducer->Join(), HasCode(StatusCode::kUnavailable));
      });
    }
  }
}

TEST(Reducer, ARankThatIsLateIsNamedByBackward) {
  for (Overlap overlap : {Overlap::kNo, Overlap::kYes}) {
    RunRanks(2, [&](Communicator& c) {
      Net net;
      ReducerOptions options;
      options.overlap = overlap;
      options.timeout = 2s;
      options.interrupt = [] { return OkStatus(); };
      auto reducer = Reducer::Make(c, net.named(), {}, options);
      ASSERT_OK(reducer);
      if (c.rank() == 1) return;  // and never has a gradient
      Batch batch(4, 1);
      try {
        Backward(net.Loss(batch.x, batch.y), /*with_engine=*/true);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const ExchangeError& error) {
        EXPECT_EQ(error.status().code(), StatusCode::kDeadlineExceeded);
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
      }
    });
  }
}

TEST(Reducer, ABackwardThatFailsCanBeRepeated) {
  for (bool with_engine : {false, true}) {
    RunRanks(2, [&](Communicator& c) {
      Tensor a = Leaf({3}, 1), b = Leaf({3}, 2);
      auto reducer = MakeReducer(c, {{"a", a}, {"b", b}});
      bool fail = true;
      for (int step = 0; step < 2; ++step) {
        Tensor left = a * 2;
        left.register_hook([&](Tensor g) {
          TORCH_CHECK(!fail, "not now");
          return g;
        });
        // The gradient of b comes first.
        Tensor loss = at::sum(left) + at::sum(b * (1.0 + c.rank()));
        if (fail) {
          EXPECT_ANY_THROW(Backward(loss, with_engine));
          b.mutable_grad().reset();
        } else {
          Backward(loss, with_engine);
          EXPECT_TRUE(at::equal(b.grad(), at::full({3}, 1.5)));
        }
        fail = false;
      }
    });
  }
}

TEST(Reducer, AParameterThatAsksForGradientsLaterIsRefused) {
  RunRanks(2, [](Communicator& c) {
    Tensor a = Leaf({3}, 1), frozen = Values({3}, 2);
    auto reducer = MakeReducer(c, {{"a", a}, {"frozen", frozen}});
    Backward(at::sum(a * frozen));
    EXPECT_FALSE(frozen.grad().defined());
    frozen.set_requires_grad(true);
    try {
      Backward(at::sum(frozen));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ExchangeError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'frozen' got a gradient"));
    }
  });
}

TEST(Reducer, TheLaterOfTwoReducersCounts) {
  RunRanks(2, [](Communicator& c) {
    Net net;
    auto first = MakeReducer(c, net.named());
    auto second = MakeReducer(c, net.named());
    Batch batch(4, c.rank());
    Backward(net.Loss(batch.x, batch.y));
    first.reset();
    Backward(net.Loss(batch.x, batch.y));
    EXPECT_EQ(second->stats().rounds, 2u);
  });
}

TEST(Reducer, ASharedParameterIsOne) {
  RunRanks(2, [](Communicator& c) {
    Tensor w = Leaf({3}, 1);
    auto reducer = MakeReducer(c, {{"in", w}, {"out", w}});
    Backward(at::sum(w * (c.rank() + 1.0) + w));
    EXPECT_TRUE(at::equal(w.grad(), at::full({3}, 2.5)));
  });
}

TEST(Reducer, ARankAloneKeepsItsGradientsWhereTheyAre) {
  RunRanks(1, [](Communicator& c) {
    Net net;
    auto reducer = MakeReducer(c, net.named());
    Batch batch(4, 1);
    Backward(net.Loss(batch.x, batch.y));
    EXPECT_TRUE(net.w1.grad().defined());
    EXPECT_EQ(reducer->stats().rounds, 0u);
    EXPECT_OK(reducer->Join());
    auto thorough = MakeReducer(c, net.named(), {.even_alone = true});
    net.ClearGradients();
    Backward(net.Loss(batch.x, batch.y));
    EXPECT_EQ(thorough->stats().rounds, 1u);
  });
}

}  // namespace
}  // namespace fleet::sync
