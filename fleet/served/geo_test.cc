// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/geo.h"

#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet::served {
namespace {

using ::testing::Each;
using testing::RequestFault;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr TableId kBias{2};
// Some requests to each server.
constexpr size_t kNumRows = 40'000;
constexpr size_t kNumWeights = 300'000;

struct Worker {
  Worker(PsCluster& cluster, int index,
         std::vector<ServedTable> tables = {SparseServed(0, "emb", 2),
                                            DenseServed(1, "w", kNumWeights),
                                            DenseServed(2, "b", 2)},
         const ps::PsClientOptions& client_options = {})
      : client(cluster.Client(index, client_options)) {
    std::get<table::SparseTableOptions>(tables[0].spec.table).num_geo_workers =
        cluster.num_workers();
    SynchronizerOptions options;
    options.mode = PsMode::kGeo;
    options.worker = index;
    options.num_workers = cluster.num_workers();
    options.geo_steps = 1;
    std::vector<ps::TableSpec> specs;
    for (const ServedTable& table : tables) specs.push_back(table.spec);
    EXPECT_OK(client->CreateTables(specs, Soon()));
    auto made = Synchronizer::Make(*client, tables, options);
    EXPECT_OK(made.status());
    sync = std::move(made).value();
    ids.resize(kNumRows);
    std::iota(ids.begin(), ids.end(), 0);
    rows.resize(kNumRows * 2);
  }

  std::vector<DenseValues> values() {
    return {{kWeights, weights}, {kBias, bias}};
  }
  void Look() {
    const RowsOfIds lookup{ids, rows};
    EXPECT_OK(sync->Fetch(kRows, {&lookup, 1}, {}));
  }
  // Every number is `by` less.
  Status Step(float by) {
    Look();
    const std::vector<float> gradients(rows.size(), 2 * by);  // the rate is 0.5
    const GradientsOfIds given{ids, gradients};
    RETURN_IF_ERROR(sync->Offer(kRows, {&given, 1}, {}));
    for (float& value : weights) value -= by;
    for (float& value : bias) value -= by;
    return sync->EndStep(values());
  }
  // What the servers have.
  void Ask() {
    const std::vector<table::Key> keys(ids.begin(), ids.end());
    ps::PsClient::PullOptions pull;
    pull.training = false;
    EXPECT_OK(client->Pull(kRows, keys, rows, pull, Soon()));
    EXPECT_OK(client->PullDenseMany(values(), Soon()));
  }

  std::unique_ptr<ps::PsClient> client;
  std::unique_ptr<Synchronizer> sync;
  std::vector<int64_t> ids;
  std::vector<float> rows;
  std::vector<float> weights = std::vector<float>(kNumWeights, 1.0f);
  std::vector<float> bias = {1.0f, 1.0f};
};

struct Case {
  RequestFault fault;
  // Dense values are added first: three requests to each of two servers.
  int after;
};

class FailedExchange : public ::testing::TestWithParam<Case> {};

TEST_P(FailedExchange, IsMadeUpForByTheNextOne) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  ASSERT_OK(worker.Step(1));
  const auto& [fault, after] = GetParam();
  cluster.faults().Arm(ps::Op::kAdd, fault, after);
  EXPECT_FALSE(worker.Step(2).ok());
  ASSERT_FALSE(cluster.faults().armed());
  ASSERT_OK(worker.Step(4));
  worker.Look();
  EXPECT_THAT(worker.rows, Each(-6.0f));
  EXPECT_THAT(worker.weights, Each(-6.0f));
  worker.Ask();
  EXPECT_THAT(worker.rows, Each(-6.0f));
  EXPECT_THAT(worker.weights, Each(-6.0f));
  EXPECT_THAT(worker.bias, Each(-6.0f));
}

TEST_P(FailedExchange, ThatFailsTwiceIsMadeUpForAsWell) {
  PsCluster cluster(2, 1);
  Worker worker(cluster, 0);
  ASSERT_OK(worker.sync->Initialize(worker.values()));
  const auto& [fault, after] = GetParam();
  for (const float by : {1.0f, 2.0f}) {
    cluster.faults().Arm(ps::Op::kAdd, fault, by == 1.0f ? after : 0);
    EXPECT_FALSE(worker.Step(by).ok());
    ASSERT_FALSE(cluster.faults().armed());
  }
  ASSERT_OK(worker.sync->Flush(worker.values()));
  worker.Ask();
  EXPECT_THAT(worker.rows, Each(-2.0f));
  EXPECT_THAT(worker.weights, Each(-2.0f));
  EXPECT_THAT(worker.bias, Each(-2.0f));
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const int after : {0, 1, 3, 8, 11, 15}) {
    cases.push_back({RequestFault::kLost, after});
    cases.push_back({RequestFault::kAnswerLost, after});
    cases.push_back({RequestFault::kRefused, after});
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  const char* const names[] = {"Lost", "AnswerLost", "Refused"};
  return names[static_cast<int>(info.param.fault)] +
         std::to_string(info.param.after);
}

INSTANTIATE_TEST_SUITE_P(Geo, FailedExchange, ::testing::ValuesIn(AllCases()),
                         NameOf);

// The servers name a key that others changed once.
TEST(GeoMode, LearnsOfTheOthersChangesWhenTheirRowsDidNotCome) {
  for (const ps::Op op : {ps::Op::kTakeChanges, ps::Op::kPull}) {
    PsCluster cluster(2, 2);
    RunWorkers(2, [&](int index) {
      Worker worker(cluster, index);
      ASSERT_OK(worker.sync->Initialize(worker.values()));
      worker.Look();
      ASSERT_OK(worker.client->Barrier("both are here", Soon()));
      if (index == 0) {
        ASSERT_OK(worker.Step(2));
      }
      ASSERT_OK(worker.client->Barrier("one has changed rows", Soon()));
      if (index == 0) return;
      // The answer that names them, or the pull behind that of dense values.
      cluster.faults().Arm(op, RequestFault::kAnswerLost,
                           op == ps::Op::kPull ? 6 : 0);
      EXPECT_FALSE(worker.sync->Flush(worker.values()).ok());
      ASSERT_FALSE(cluster.faults().armed());
      ASSERT_OK(worker.sync->Flush(worker.values()));
      worker.Look();
      EXPECT_THAT(worker.rows, Each(0.0f));
    });
  }
}

TEST(GeoMode, HasTheRowsOfAServerThatHasLostUpdates) {
  PsCluster cluster(1, 1);
  Worker worker(cluster, 0, {SparseServed(0, "emb", 2)},
                {.reconnect_for = std::chrono::seconds(30),
                 .on_data_loss = ps::OnDataLoss::kGoOn});
  const auto step = [&](float by) {
    worker.Look();
    const std::vector<float> gradients(worker.rows.size(), 2 * by);
    const GradientsOfIds given{worker.ids, gradients};
    EXPECT_OK(worker.sync->Offer(kRows, {&given, 1}, {}));
    return worker.sync->EndStep({});
  };
  ASSERT_OK(step(4));
  cluster.End(0);
  cluster.Start(0, {.epoch = 2});
  ASSERT_OK(step(2));
  EXPECT_GT(worker.client->num_lost_updates(), 0u);
  ASSERT_OK(step(1));
  // Rows begin with one, and the first step is lost.
  worker.Look();
  EXPECT_THAT(worker.rows, Each(-2.0f));
  const std::vector<table::Key> keys(worker.ids.begin(), worker.ids.end());
  ASSERT_OK(worker.client->Pull(kRows, keys, worker.rows, {}, Soon()));
  EXPECT_THAT(worker.rows, Each(-2.0f));
}

}  // namespace
}  // namespace fleet::served
