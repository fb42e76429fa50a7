// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/synchronizer.h"

#include <algorithm>
#include <cmath>
#include <latch>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/ps_cluster.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::served {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::HasSubstr;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr TableId kBias{2};

std::vector<ServedTable> Tables(const optim::UpdateRule& rule = {},
                                double rate = 0.5) {
  return {SparseServed(0, "emb", 2, rule, rate),
          DenseServed(1, "w", 3000, rule, rate),
          DenseServed(2, "b", 2, rule, rate)};
}

// A worker with everything it needs.
struct Worker {
  Worker(PsCluster& cluster, int index, SynchronizerOptions options,
         std::vector<ServedTable> tables = Tables(),
         const ps::PsClientOptions& client_options = {})
      : client(cluster.Client(index, client_options)) {
    if (options.mode == PsMode::kGeo) {
      std::get<table::SparseTableOptions>(tables[0].spec.table)
          .num_geo_workers = cluster.num_workers();
    }
    options.worker = index;
    options.num_workers = cluster.num_workers();
    options.timeout = 30s;
    std::vector<ps::TableSpec> specs;
    for (const ServedTable& table : tables) specs.push_back(table.spec);
    EXPECT_OK(client->CreateTables(specs, Soon()));
    auto made = Synchronizer::Make(*client, tables, options);
    EXPECT_OK(made.status());
    sync = std::move(made).value();
  }

  std::vector<DenseValues> values() {
    return {{kWeights, weights}, {kBias, bias}};
  }
  std::vector<float> Rows(const std::vector<int64_t>& ids,
                          const LookupOptions& options = {}) {
    std::vector<float> rows(ids.size() * 2);
    const RowsOfIds lookup{ids, rows};
    EXPECT_OK(sync->Fetch(kRows, {&lookup, 1}, options));
    return rows;
  }
  Status Offer(const std::vector<int64_t>& ids,
               const std::vector<float>& gradients,
               const LookupOptions& options = {}) {
    const GradientsOfIds given{ids, gradients};
    return sync->Offer(kRows, {&given, 1}, options);
  }
  Status OfferDense(float weight_gradient, float bias_gradient) {
    const std::vector<float> w(weights.size(), weight_gradient);
    const std::vector<float> b(bias.size(), bias_gradient);
    const std::vector<DenseGradient> given = {{kWeights, w}, {kBias, b}};
    return sync->OfferDense(given);
  }
  Status EndStep() { return sync->EndStep(values(), &held); }

  std::unique_ptr<ps::PsClient> client;
  std::unique_ptr<Synchronizer> sync;
  std::vector<float> weights = std::vector<float>(3000, 4.0f);
  std::vector<float> bias = {1.0f, 2.0f};
  HeldValues held;
};

SynchronizerOptions Mode(PsMode mode) {
  SynchronizerOptions options;
  options.mode = mode;
  return options;
}

TEST(SyncMode, AppliesTheMeanOfAllWorkers) {
  PsCluster cluster(2, 2);
  RunWorkers(2, [&](int index) {
    Worker worker(cluster, index, Mode(PsMode::kSync));
    ASSERT_OK(worker.sync->Initialize(worker.values()));
    EXPECT_THAT(worker.Rows({7, 8}), ElementsAre(1, 1, 1, 1));
    // Worker 0 gives 1, worker 1 gives 3: the mean is 2, and the rate 0.5.
    const auto gradient = static_cast<float>(1 + 2 * index);
    ASSERT_OK(worker.Offer({7, 7}, {gradient, 0, 0, gradient}));
    ASSERT_OK(worker.OfferDense(gradient, 2 * gradient));
    ASSERT_OK(worker.EndStep());
    EXPECT_THAT(worker.Rows({7, 8}), ElementsAre(0, 0, 1, 1));
    EXPECT_THAT(worker.weights, Each(3.0f));
    EXPECT_THAT(worker.bias, ElementsAre(-1, 0));
    EXPECT_EQ(worker.sync->stats().steps, 1u);
    ASSERT_OK(worker.sync->Stop(worker.values()));
    ASSERT_OK(worker.client->Stop(Soon()));
  });
  EXPECT_OK(cluster.server(0).WaitUntilStopped(Soon()));
}

TEST(SyncMode, AppliesTheMeanOfWorkersAndTheirThreads) {
  PsCluster cluster(2, 2);
  RunWorkers(2, [&](int index) {
    Worker worker(cluster, index, Mode(PsMode::kSync));
    ASSERT_OK(worker.sync->Initialize(worker.values()));
    worker.sync->BeginThreads(2);
    std::vector<float> other_weights(3000);
    std::vector<float> other_bias(2);
    std::thread other([&] {
      // Parameters of its own: the result is copied there.
      const std::vector<DenseValues> values = {{kWeights, other_weights},
                                               {kBias, other_bias}};
      for (int step = 0; step < 2; ++step) {
        EXPECT_OK(worker.Offer({7}, {4, 0}));
        EXPECT_OK(worker.OfferDense(4, 0));
        EXPECT_OK(worker.sync->EndStep(values));
      }
      worker.sync->EndThread();
    });
    for (int step = 0; step < 3; ++step) {
      // With the other thread 2; alone, in the third step, 0.
      ASSERT_OK(worker.Offer({7}, {0, 4}));
      ASSERT_OK(worker.OfferDense(0, 4));
      ASSERT_OK(worker.EndStep());
    }
    other.join();
    EXPECT_THAT(worker.Rows({7}),
                ElementsAre(1 - 2 * 0.5 * 2, 1 - 2 * 0.5 * 2 - 0.5 * 4));
    EXPECT_THAT(worker.weights, Each(4.0f - 2));
    EXPECT_THAT(worker.bias, ElementsAre(1 - 4, 2 - 4));
    EXPECT_THAT(other_weights, Each(2.0f));
    EXPECT_THAT(other_bias, ElementsAre(-1, 0));
    ASSERT_OK(worker.client->Stop(Soon()));
  });
}

TEST(SyncMode, NamesAWorkerThatIsLost) {
  PsCluster cluster(1, 2);
  Worker stays(cluster, 0, Mode(PsMode::kSync));
  {
    Worker goes(cluster, 1, Mode(PsMode::kSync));
  }
  ASSERT_OK(stays.OfferDense(1, 1));
  const Status status = stays.EndStep();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("worker 1"));
}

TEST(SyncMode, GoesOnWithoutALostWorkerWhenTheServersDo) {
  ps::PsServerOptions options;
  options.go_on_without_lost_workers = true;
  PsCluster cluster(2, 2, options);
  Worker stays(cluster, 0, Mode(PsMode::kSync));
  {
    Worker goes(cluster, 1, Mode(PsMode::kSync));
    ASSERT_OK(goes.Offer({7}, {1, 1}));
  }
  ASSERT_OK(stays.Offer({8}, {2, 0}));
  ASSERT_OK(stays.EndStep());
  // The mean is over those who are there.
  EXPECT_THAT(stays.Rows({8}), ElementsAre(0, 1));
}

TEST(HalfAsyncMode, WaitsForNobodyElse) {
  PsCluster cluster(2, 2);
  Worker first(cluster, 0, Mode(PsMode::kHalfAsync));
  Worker second(cluster, 1, Mode(PsMode::kHalfAsync));
  std::thread also(
      [&] { ASSERT_OK(second.sync->Initialize(second.values())); });
  ASSERT_OK(first.sync->Initialize(first.values()));
  also.join();
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK(first.Offer({7}, {1, 0}));
    ASSERT_OK(first.OfferDense(1, 0));
    ASSERT_OK(first.EndStep());
  }
  EXPECT_THAT(first.weights, Each(4.0f - 1.5f));
  // The second sees it when its own step ends.
  EXPECT_THAT(second.weights, Each(4.0f));
  ASSERT_OK(second.OfferDense(1, 0));
  ASSERT_OK(second.EndStep());
  EXPECT_THAT(second.weights, Each(4.0f - 2.0f));
  EXPECT_THAT(second.Rows({7}), ElementsAre(1 - 1.5f, 1));
}

TEST(HalfAsyncMode, SendsTheMeanOfItsThreads) {
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, Mode(PsMode::kHalfAsync));
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  constexpr int kThreads = 3;
  worker.sync->BeginThreads(kThreads);
  RunWorkers(kThreads, [&](int thread) {
    const auto gradient = static_cast<float>(thread);
    ASSERT_OK(worker.Offer({7}, {gradient, 0}));
    ASSERT_OK(worker.OfferDense(gradient, 0));
    ASSERT_OK(worker.EndStep());
    worker.sync->EndThread();
  });
  EXPECT_THAT(worker.Rows({7}), ElementsAre(0.5f, 1));
  EXPECT_THAT(worker.weights, Each(3.5f));
}

TEST(HalfAsyncMode, AdvancesTheRateOfTheServers) {
  std::vector<ServedTable> tables = Tables();
  table::LearningRate halves;
  halves.base = 1.0;
  halves.schedule = table::ExponentialDecay{0.5, 1.0, false};
  std::get<table::SparseTableOptions>(tables[0].spec.table)
      .update.learning_rate = halves;
  std::get<table::DenseSpec>(tables[2].spec.table).update.learning_rate =
      halves;
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(PsMode::kHalfAsync), tables);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK(worker.Offer({7, 8}, {1, 1, 1, 1}));
    ASSERT_OK(worker.OfferDense(0, 1));
    ASSERT_OK(worker.EndStep());
  }
  // 1 + 1/2 + 1/4, also on the server that has one of the keys only.
  EXPECT_THAT(worker.Rows({7, 8}), Each(FloatNear(1 - 1.75f, 1e-6)));
  EXPECT_THAT(worker.bias, ElementsAre(FloatNear(1 - 1.75f, 1e-6),
                                       FloatNear(2 - 1.75f, 1e-6)));
}

// Many steps whose gradients are small integers, so that sums are exact.
TEST(AsyncMode, EveryGradientArrivesOnceAndNoneIsLeftAtTheEnd) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 200;
  PsCluster cluster(2, kWorkers);
  RunWorkers(kWorkers, [&](int index) {
    SynchronizerOptions options = Mode(PsMode::kAsync);
    options.max_merge = 4;
    options.queue_size = 6;
    Worker worker(cluster, index, options);
    ASSERT_OK(worker.sync->Initialize(worker.values()));
    for (int step = 0; step < kSteps; ++step) {
      const auto value = static_cast<float>(1 + (step + index) % 3);
      ASSERT_OK(worker.Offer({step % 5, 100 + index, step % 5},
                             {value, 0, 1, 1, value, 2}));
      ASSERT_OK(worker.OfferDense(value, 1));
      ASSERT_OK(worker.EndStep());
    }
    ASSERT_OK(worker.sync->Stop(worker.values()));
    const SynchronizerStats stats = worker.sync->stats();
    EXPECT_EQ(stats.steps, static_cast<uint64_t>(kSteps));
    EXPECT_EQ(stats.queued, 0u);
    EXPECT_LE(stats.max_queued, 6u);
    EXPECT_EQ(stats.pushed, 2u * kSteps);
    EXPECT_LE(stats.pushes, stats.pushed);
    EXPECT_LE(stats.max_staleness, 6u + 4u);
    ASSERT_OK(worker.client->Barrier("all have stopped", Soon()));

    double dense = 0;
    std::vector<double> rows(5);
    for (int i = 0; i < kWorkers; ++i) {
      for (int step = 0; step < kSteps; ++step) {
        const int value = 1 + (step + i) % 3;
        dense += value;
        rows[step % 5] += 2 * value;
      }
    }
    ASSERT_OK(worker.sync->PullDense(worker.values()));
    EXPECT_THAT(worker.weights, Each(static_cast<float>(4 - 0.5 * dense)));
    EXPECT_EQ(worker.bias[0], 1 - 0.5f * kWorkers * kSteps);
    std::vector<float> held(10);
    const std::vector<table::Key> keys = {0, 1, 2, 3, 4};
    ASSERT_OK(worker.client->Pull(kRows, keys, held, {}, Soon()));
    for (int key = 0; key < 5; ++key) {
      EXPECT_EQ(held[key * 2], static_cast<float>(1 - 0.5 * rows[key]));
      EXPECT_EQ(held[key * 2 + 1], 1 - 0.5f * 2 * kWorkers * kSteps / 5);
    }
    const std::vector<table::Key> own = {static_cast<table::Key>(100 + index)};
    held.resize(2);
    ASSERT_OK(worker.client->Pull(kRows, own, held, {}, Soon()));
    EXPECT_THAT(held, Each(1 - 0.5f * kSteps));
    ASSERT_OK(worker.client->Stop(Soon()));
  });
}

TEST(AsyncMode, WaitsWhenTheServersAreSlowAndSaysSo) {
  PsCluster cluster(1, 1);
  cluster.faults().Delay(100ms);
  SynchronizerOptions options = Mode(PsMode::kAsync);
  options.max_merge = 1;
  options.queue_size = 2;
  Worker worker(cluster, 0, options);
  for (int step = 0; step < 8; ++step) {
    ASSERT_OK(worker.Offer({step}, {1, 1}));
    ASSERT_OK(worker.EndStep());
  }
  const SynchronizerStats stats = worker.sync->stats();
  // Two wait and one is under way; others had to wait.
  EXPECT_GE(stats.waits, 1u);
  EXPECT_GT(stats.waited_seconds, 0.0);
  EXPECT_EQ(stats.max_queued, 2u);
  ASSERT_OK(worker.sync->Stop({}));
  EXPECT_EQ(worker.sync->stats().pushes, 8u);
}

TEST(AsyncMode, MergesWhatWaitsIntoOneUpdate) {
  PsCluster cluster(1, 1);
  cluster.faults().Delay(30ms);
  SynchronizerOptions options = Mode(PsMode::kAsync);
  options.max_merge = 100;
  options.queue_size = 100;
  // A rule for which two updates are not their sum.
  Worker worker(cluster, 0, options, Tables(optim::Adagrad{.epsilon = 0}, 1.0));
  for (int step = 0; step < 50; ++step) {
    ASSERT_OK(worker.Offer({7, 7}, {1, 0, 1, 0}));
    ASSERT_OK(worker.EndStep());
  }
  ASSERT_OK(worker.sync->Flush({}));
  const SynchronizerStats stats = worker.sync->stats();
  EXPECT_EQ(stats.waits, 0u);
  EXPECT_EQ(stats.pushed, 50u);
  EXPECT_LT(stats.pushes, 50u);
  ASSERT_OK(worker.sync->Stop({}));
}

TEST(AsyncMode, TakesNewValuesAndCountsHowOldTheyAre) {
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, Mode(PsMode::kAsync));
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  ASSERT_OK(worker.OfferDense(2, 2));
  ASSERT_OK(worker.sync->Flush({}));
  ASSERT_OK(worker.EndStep());
  EXPECT_THAT(worker.weights, Each(3.0f));
  EXPECT_THAT(worker.bias, ElementsAre(0, 1));
  EXPECT_EQ(worker.sync->stats().staleness, 0u);
  // Values are not taken twice: what the script does to them stays.
  worker.bias = {9, 9};
  ASSERT_OK(worker.EndStep());
  EXPECT_THAT(worker.bias, ElementsAre(9, 9));
  // Memory of which nobody knows what it holds is filled, wherever it is.
  worker.held = {};
  ASSERT_OK(worker.EndStep());
  EXPECT_THAT(worker.bias, ElementsAre(0, 1));
}

// Threads copy values that came while the next ones arrive. All weights get the
// same gradients, so values of one moment are all equal.
TEST(AsyncMode, ThreadsTakeValuesOfOneMoment) {
  PsCluster cluster(2, 1);
  SynchronizerOptions options = Mode(PsMode::kAsync);
  options.send_pause = 0us;
  Worker worker(cluster, 0, options);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  constexpr int kThreads = 3;
  worker.sync->BeginThreads(kThreads);
  RunWorkers(kThreads, [&](int) {
    std::vector<float> weights(worker.weights.size(), 4.0f);
    std::vector<float> bias = {1.0f, 2.0f};
    const std::vector<DenseValues> values = {{kWeights, weights},
                                             {kBias, bias}};
    for (int step = 0; step < 100; ++step) {
      ASSERT_OK(worker.OfferDense(1, 1));
      ASSERT_OK(worker.sync->EndStep(values));
      ASSERT_THAT(weights, Each(weights[0]));
      ASSERT_EQ(bias[0] + 1, bias[1]);
    }
    worker.sync->EndThread();
  });
  ASSERT_OK(worker.sync->Stop(worker.values()));
  EXPECT_THAT(worker.weights, Each(4.0f - 0.5f * 100 * kThreads));
}

TEST(AsyncMode, AnErrorOfTheBackgroundComesOutOfTheNextCall) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(PsMode::kAsync));
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  cluster.server(1).Abort(Unavailable("the test ends it"));
  Status status;
  const auto patience = Soon();
  while (status.ok() && !patience.expired()) {
    status = worker.OfferDense(1, 1);
    if (status.ok()) status = worker.EndStep();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("server 1"));
  EXPECT_THAT(status.message(), HasSubstr("w"));
  EXPECT_FALSE(worker.sync->Flush({}).ok());
  EXPECT_FALSE(worker.sync->Stop({}).ok());
}

TEST(AsyncMode, SaysWhatWasNotSentAtTheEnd) {
  PsCluster cluster(1, 1);
  cluster.faults().Delay(50ms);
  SynchronizerOptions options = Mode(PsMode::kAsync);
  Worker worker(cluster, 0, options);
  for (int step = 0; step < 5; ++step) {
    ASSERT_OK(worker.Offer({step}, {1, 1}));
  }
  worker.sync.reset();  // without Stop: does not wait for them
}

class AllModes : public ::testing::TestWithParam<PsMode> {};

TEST_P(AllModes, RefuseIdsOutsideABoundedTableBeforeAnythingIsSent) {
  std::vector<ServedTable> tables = Tables();
  tables[0].bounded = true;
  tables[0].shape = {10, 2};
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, Mode(GetParam()), tables);
  std::vector<float> rows(6);
  for (int64_t wrong : {int64_t{10}, int64_t{-3}}) {
    const std::vector<int64_t> ids = {1, wrong, 2};
    const RowsOfIds lookup{ids, rows};
    const Status status = worker.sync->Fetch(kRows, {&lookup, 1}, {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("emb"));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(wrong)));
    EXPECT_EQ(worker.Offer(ids, rows).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(cluster.server(0).counters().num_pulled_keys, 0u);
  EXPECT_EQ(cluster.server(0).counters().num_pushed_keys, 0u);
  EXPECT_THAT(worker.Rows({9, 0}), Each(1.0f));
}

TEST_P(AllModes, PaddingReadsAsZerosAndDoesNotLearn) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(GetParam()));
  const LookupOptions options{.training = true, .padding = 3};
  EXPECT_THAT(worker.Rows({3, 5, 3}, options), ElementsAre(0, 0, 1, 1, 0, 0));
  ASSERT_OK(worker.Offer({3, 5, 3}, {7, 7, 2, 2, 7, 7}, options));
  ASSERT_OK(worker.sync->EndStep({}));
  ASSERT_OK(worker.sync->Flush({}));
  EXPECT_THAT(worker.Rows({3, 5}, options), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(worker.Rows({3}), ElementsAre(1, 1));
}

TEST_P(AllModes, SeveralListsOfIdsAreOneLookup) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(GetParam()));
  const std::vector<int64_t> first = {1, 2};
  const std::vector<int64_t> second = {2};
  std::vector<float> first_rows(4), second_rows(2);
  const std::vector<RowsOfIds> lookups = {{first, first_rows},
                                          {second, second_rows}};
  ASSERT_OK(worker.sync->Fetch(kRows, lookups, {}));
  const std::vector<float> first_gradients = {1, 0, 0, 1};
  const std::vector<float> second_gradients = {1, 1};
  const std::vector<GradientsOfIds> gradients = {{first, first_gradients},
                                                 {second, second_gradients}};
  ASSERT_OK(worker.sync->Offer(kRows, gradients, {}));
  ASSERT_OK(worker.sync->EndStep({}));
  ASSERT_OK(worker.sync->Flush({}));
  ASSERT_OK(worker.sync->Fetch(kRows, lookups, {}));
  EXPECT_THAT(first_rows, ElementsAre(0.5f, 1, 0.5f, 0));
  EXPECT_THAT(second_rows, ElementsAre(0.5f, 0));
}

TEST_P(AllModes, LookingUpForATestMakesNoRows) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(GetParam()));
  EXPECT_THAT(worker.Rows({1, 2}, {.training = false}), Each(1.0f));
  ASSERT_OK_AND_ASSIGN(auto stats, worker.client->Stats(kRows, Soon()));
  EXPECT_EQ(stats.num_rows, 0u);
}

TEST_P(AllModes, ServersThatHaveValuesKeepThem) {
  PsCluster cluster(2, 2);
  RunWorkers(2, [&](int index) {
    Worker worker(cluster, index, Mode(GetParam()));
    // Only worker 0's count.
    if (index == 1) std::fill(worker.weights.begin(), worker.weights.end(), 8);
    ASSERT_OK(worker.sync->Initialize(worker.values()));
    EXPECT_THAT(worker.weights, Each(4.0f));
    worker.bias = {5, 5};
    ASSERT_OK(worker.sync->Initialize(worker.values()));
    EXPECT_THAT(worker.bias, ElementsAre(1, 2));
    ASSERT_OK(worker.sync->Stop(worker.values()));
    ASSERT_OK(worker.client->Stop(Soon()));
  });
}

TEST_P(AllModes, CountGradientsThatAreNotFiniteAndDropThemWhenAsked) {
  if (GetParam() == PsMode::kGeo) return;  // they do not reach the servers
  std::vector<ServedTable> tables = Tables();
  std::get<table::SparseTableOptions>(tables[0].spec.table)
      .update.drop_nonfinite = true;
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, Mode(GetParam()), tables);
  ASSERT_OK(worker.Offer({1, 2}, {NAN, 1, 1, 1}));
  ASSERT_OK(worker.sync->EndStep({}));
  ASSERT_OK(worker.sync->Flush({}));
  EXPECT_THAT(worker.Rows({1, 2}), ElementsAre(1, 1, 0.5f, 0.5f));
  ASSERT_OK_AND_ASSIGN(auto stats, worker.client->Stats(kRows, Soon()));
  EXPECT_EQ(stats.num_nonfinite, 1u);
}

TEST_P(AllModes, RowsThatTrainingNoLongerTouchesBeginAnew) {
  std::vector<ServedTable> tables = Tables();
  std::get<table::SparseTableOptions>(tables[0].spec.table).time_to_live = 4s;
  PsCluster cluster(1, 1);
  SynchronizerOptions options = Mode(GetParam());
  options.geo_steps = 1;
  Worker worker(cluster, 0, options, tables);
  auto train = [&](const std::vector<int64_t>& ids) {
    worker.Rows(ids);
    EXPECT_OK(worker.Offer(ids, std::vector<float>(ids.size() * 2, 1.0f)));
    EXPECT_OK(worker.sync->EndStep({}));
    EXPECT_OK(worker.sync->Flush({}));
  };
  ps::PsServer& server = cluster.server(0);
  base::Deadline::TimePoint now{};
  train({1, 2});
  EXPECT_OK(server.ExpireRows(now).status());  // time begins
  const LookupOptions as_they_are{.training = false};
  EXPECT_THAT(worker.Rows({1}, as_they_are), ElementsAre(0.5f, 0.5f));
  for (int second = 1; second <= 5; ++second) {
    EXPECT_EQ(server.holdings().num_rows, 2u) << second;
    train({2});
    EXPECT_OK(server.ExpireRows(now += 1s).status());
  }
  EXPECT_EQ(server.holdings().num_rows, 1u);
  train({2});
  EXPECT_THAT(worker.Rows({1, 2}, as_they_are),
              ElementsAre(1, 1, -2.5f, -2.5f));
  ASSERT_OK(worker.sync->Stop({}));
  ASSERT_OK(worker.client->Stop(Soon()));
}

TEST_P(AllModes, AServerThatIsGoneIsNamed) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0, Mode(GetParam()));
  cluster.server(0).Abort(Unavailable("the test ends it"));
  cluster.server(1).Abort(Unavailable("the test ends it"));
  std::vector<float> rows(2);
  const std::vector<int64_t> ids = {1};
  const RowsOfIds lookup{ids, rows};
  const Status status = worker.sync->Fetch(kRows, {&lookup, 1}, {});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("server"));
  EXPECT_THAT(status.message(), HasSubstr("emb"));
}

// A worker that is started again, alone, takes part from where the others are.
TEST_P(AllModes, TakeAWorkerThatIsStartedAgain) {
  ps::PsServerOptions go_on;
  go_on.go_on_without_lost_workers = true;
  PsCluster cluster(2, 2, go_on);
  SynchronizerOptions options = Mode(GetParam());
  options.geo_steps = 1;
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  auto step = [&](Worker& worker) -> Status {
    worker.Rows(ids);
    RETURN_IF_ERROR(worker.Offer(ids, std::vector<float>(16, 1.0f)));
    if (GetParam() == PsMode::kGeo) {
      for (float& weight : worker.weights) weight -= 0.5f;
    } else {
      RETURN_IF_ERROR(worker.OfferDense(1, 0));
    }
    RETURN_IF_ERROR(worker.EndStep());
    return worker.sync->Flush(worker.values());
  };
  std::latch is_gone(1);
  std::latch has_gone_on(1);
  std::latch is_back(1);
  RunWorkers(2, [&](int index) {
    auto worker = std::make_unique<Worker>(cluster, index, options);
    ASSERT_OK(worker->sync->Initialize(worker->values()));
    for (int i = 0; i < 3; ++i) ASSERT_OK(step(*worker));
    if (index == 1) {
      worker.reset();
      is_gone.count_down();
      has_gone_on.wait();
      worker = std::make_unique<Worker>(cluster, index, options);
      ASSERT_OK(worker->sync->Initialize(worker->values()));
      is_back.count_down();
    } else {
      is_gone.wait();
      for (int i = 0; i < 2; ++i) ASSERT_OK(step(*worker));
      has_gone_on.count_down();
      is_back.wait();
      // The step that was the present one when it joined ends without it.
      ASSERT_OK(step(*worker));
    }
    for (int i = 0; i < 3; ++i) ASSERT_OK(step(*worker));
    ASSERT_OK(worker->sync->EndPass());
    if (GetParam() == PsMode::kSync) {
      // A mean of 1 at a rate of 0.5, in 3 + 2 + 1 + 3 steps.
      EXPECT_THAT(worker->Rows({1, 8}), Each(1.0f - 4.5f));
    }
    ASSERT_OK(worker->sync->Stop(worker->values()));
    ASSERT_OK(worker->client->Stop(Soon()));
  });
}

TEST_P(AllModes, GoOnWithAServerThatCameBackFromItsLastSave) {
  const testing::TemporaryFolder temporary;
  const base::Path& folder = temporary.path();
  PsCluster cluster(2, 1);
  ps::PsClientOptions patient;
  patient.reconnect_for = 30s;
  patient.on_data_loss = ps::OnDataLoss::kGoOn;
  SynchronizerOptions options = Mode(GetParam());
  options.geo_steps = 1;
  Worker worker(cluster, 0, options, Tables(), patient);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  // Keys of both servers.
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  auto step = [&]() -> Status {
    worker.Rows(ids);
    RETURN_IF_ERROR(worker.Offer(ids, std::vector<float>(16, 1.0f)));
    if (GetParam() == PsMode::kGeo) {
      for (float& weight : worker.weights) weight -= 0.5f;
    } else {
      RETURN_IF_ERROR(worker.OfferDense(1, 0));
    }
    RETURN_IF_ERROR(worker.EndStep());
    return worker.sync->Flush(worker.values());
  };
  ASSERT_OK(step());
  ASSERT_OK(worker.client->Save(folder.string(), {}, Soon()));
  std::thread restart([&] {
    cluster.End(1);
    ps::PsServerOptions again;
    again.load_folder = folder.string();
    cluster.Start(1, again);
  });
  for (int i = 0; i < 3; ++i) ASSERT_OK(step());
  restart.join();
  for (int i = 0; i < 3; ++i) ASSERT_OK(step());
  ASSERT_OK(worker.sync->Stop(worker.values()));
  // Steps of the time when it was away may be missing on that server; none of
  // those before the save and after its return.
  std::vector<float> held(16);
  const std::vector<table::Key> keys(ids.begin(), ids.end());
  ASSERT_OK(worker.client->Pull(kRows, keys, held, {}, Soon()));
  for (float value : held) {
    EXPECT_LE(value, 1 - 0.5f * 4);
    EXPECT_GE(value, 1 - 0.5f * 7);
  }
  ASSERT_OK(worker.client->Stop(Soon()));
}

INSTANTIATE_TEST_SUITE_P(Synchronizer, AllModes,
                         ::testing::Values(PsMode::kSync, PsMode::kHalfAsync,
                                           PsMode::kAsync, PsMode::kGeo),
                         [](const auto& info) {
                           return std::string(plan::ToString(info.param));
                         });

// Two workers' geo training by hand: plain vectors, one key after the other.
class GeoByHand {
 public:
  struct Parameter {
    float latest, old;
  };

  float Get(int worker, int64_t key) { return Meet(worker, key).latest; }
  void Learn(int worker, int64_t key, float gradient) {
    Meet(worker, key).latest -= 0.5f * gradient;
    changed_[worker].insert(key);
  }
  void SendChanges(int worker) {
    for (int64_t key : changed_[worker]) {
      Parameter& mine = Meet(worker, key);
      const float delta = (mine.latest - mine.old) / 2;
      mine.old += delta;
      servers_[key] += delta;
      dirty_[1 - worker].insert(key);
    }
    changed_[worker].clear();
  }
  void TakeChanges(int worker) {
    for (int64_t key : dirty_[worker]) {
      if (!workers_[worker].contains(key)) continue;
      Parameter& mine = workers_[worker][key];
      mine.latest += servers_[key] - mine.old;
      mine.old = servers_[key];
    }
    dirty_[worker].clear();
  }
  float server(int64_t key) { return servers_[key]; }
  void SetServer(int64_t key, float value) { servers_[key] = value; }

 private:
  Parameter& Meet(int worker, int64_t key) {
    if (!servers_.contains(key)) servers_[key] = 1.0f;
    auto [it, is_new] = workers_[worker].try_emplace(key);
    if (is_new) it->second = {servers_[key], servers_[key]};
    return it->second;
  }

  std::map<int64_t, float> servers_;
  std::map<int64_t, Parameter> workers_[2];
  std::set<int64_t> changed_[2];
  std::set<int64_t> dirty_[2];
};

TEST(GeoMode, ExchangesAsByHandAndAllAgreeInTheEnd) {
  constexpr int kSteps = 12;
  constexpr int kEvery = 3;
  PsCluster cluster(2, 2);
  SynchronizerOptions options = Mode(PsMode::kGeo);
  options.geo_steps = kEvery;
  Worker worker0(cluster, 0, options);
  Worker worker1(cluster, 1, options);
  Worker* workers[2] = {&worker0, &worker1};
  RunWorkers(2, [&](int i) {
    ASSERT_OK(workers[i]->sync->Initialize(workers[i]->values()));
  });

  // One worker after the other, so that the order is known.
  GeoByHand by_hand;
  constexpr int64_t kBiasKey = 1000;  // the bias is a row like others there
  by_hand.SetServer(kBiasKey, 1.0f);
  for (int step = 0; step < kSteps; ++step) {
    for (int w = 0; w < 2; ++w) {
      Worker& worker = *workers[w];
      const int64_t shared = 7;
      const int64_t own = 20 + w;
      const int64_t late = step > 5 ? 20 + (1 - w) : shared;
      const std::vector<int64_t> ids = {shared, own, late};
      const std::vector<float> rows = worker.Rows(ids);
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_NEAR(rows[i * 2], by_hand.Get(w, ids[i]), 1e-5)
            << "step " << step << " worker " << w << " id " << ids[i];
      }
      const auto g = static_cast<float>(1 + (step + w) % 3) / 8;
      ASSERT_OK(worker.Offer(ids, {g, g, 2 * g, 2 * g, -g, -g}));
      by_hand.Learn(w, shared, g);
      by_hand.Learn(w, own, 2 * g);
      by_hand.Learn(w, late, -g);
      // The worker's own optimizer.
      worker.bias[0] -= 0.5f * g;
      by_hand.Learn(w, kBiasKey, g);
      ASSERT_OK(worker.EndStep());
      if ((step + 1) % kEvery == 0) {
        by_hand.SendChanges(w);
        by_hand.TakeChanges(w);
      }
      EXPECT_NEAR(worker.bias[0], by_hand.Get(w, kBiasKey), 1e-5);
    }
  }
  EXPECT_EQ(worker0.sync->stats().exchanges,
            static_cast<uint64_t>(kSteps / kEvery));
  RunWorkers(2, [&](int i) {
    ASSERT_OK(workers[i]->sync->Stop(workers[i]->values()));
  });
  // Dense parameters are exchanged whole, whatever changed since.
  by_hand.Learn(0, kBiasKey, 0);
  by_hand.Learn(1, kBiasKey, 0);
  by_hand.SendChanges(0);
  by_hand.SendChanges(1);
  std::vector<float> held(6);
  const std::vector<table::Key> keys = {7, 20, 21};
  ASSERT_OK(worker0.client->Pull(kRows, keys, held, {}, Soon()));
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_NEAR(held[i * 2], by_hand.server(static_cast<int64_t>(keys[i])),
                1e-5);
  }
  EXPECT_NEAR(worker0.bias[0], by_hand.server(kBiasKey), 1e-5);
  EXPECT_EQ(worker0.weights, worker1.weights);
  EXPECT_EQ(worker0.bias, worker1.bias);
  EXPECT_THAT(worker0.Rows({7, 20, 21}), ElementsAreArray(held));
  EXPECT_THAT(worker1.Rows({7, 20, 21}), ElementsAreArray(held));
}

// One thread's exchange waits for a cut to end; the others train on.
TEST(GeoMode, AThreadThatExchangesDoesNotHoldUpTheOthers) {
  PsCluster cluster(1, 1);
  SynchronizerOptions options = Mode(PsMode::kGeo);
  options.geo_steps = 1;
  Worker worker(cluster, 0, options);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  worker.Rows({7});
  ASSERT_OK_AND_ASSIGN(const uint64_t cut, worker.client->BeginCut(Soon()));
  const uint64_t before = cluster.server(0).counters().num_requests;
  std::thread exchanges([&] { EXPECT_OK(worker.EndStep()); });
  const base::Deadline patience = Soon();
  while (cluster.server(0).counters().num_requests == before &&
         !patience.expired()) {
    std::this_thread::yield();
  }
  EXPECT_THAT(worker.Rows({7}), ElementsAre(1, 1));
  // A row that is new comes from the servers meanwhile.
  EXPECT_THAT(worker.Rows({8}), ElementsAre(1, 1));
  EXPECT_OK(worker.Offer({7, 8}, {1, 1, 2, 2}));
  EXPECT_THAT(worker.Rows({7, 8}), ElementsAre(0.5f, 0.5f, 0, 0));
  ASSERT_OK(worker.client->EndCut(cut));
  exchanges.join();
  ASSERT_OK(worker.sync->Stop(worker.values()));
}

TEST(GeoMode, SendsNothingBeforeTheKthStep) {
  PsCluster cluster(1, 1);
  SynchronizerOptions options = Mode(PsMode::kGeo);
  options.geo_steps = 3;
  Worker worker(cluster, 0, options);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  worker.Rows({1});
  for (int step = 0; step < 2; ++step) {
    ASSERT_OK(worker.Offer({1}, {1, 1}));
    ASSERT_OK(worker.EndStep());
  }
  EXPECT_EQ(cluster.server(0).counters().num_pushed_keys, 0u);
  EXPECT_EQ(worker.sync->stats().staleness, 2u);
  ASSERT_OK(worker.Offer({1}, {1, 1}));
  ASSERT_OK(worker.EndStep());
  EXPECT_EQ(cluster.server(0).counters().num_pushed_keys, 1u);
  EXPECT_EQ(worker.sync->stats().staleness, 0u);
  std::vector<float> held(2);
  const std::vector<table::Key> keys = {1};
  ASSERT_OK(worker.client->Pull(kRows, keys, held, {}, Soon()));
  EXPECT_THAT(held, Each(1 - 1.5f));
}

TEST(Synchronizer, RefusesOptionsThatMakeNoSense) {
  PsCluster cluster(1, 1);
  auto client = cluster.Client(0);
  SynchronizerOptions options;
  options.queue_size = 0;
  EXPECT_EQ(Synchronizer::Make(*client, {}, options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Synchronizer, RefusesATableThatItDoesNotKnow) {
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, Mode(PsMode::kSync));
  std::vector<float> rows(2);
  const std::vector<int64_t> ids = {1};
  const RowsOfIds lookup{ids, rows};
  EXPECT_EQ(worker.sync->Fetch(TableId{9}, {&lookup, 1}, {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.sync->Fetch(kWeights, {&lookup, 1}, {}).code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fleet::served
