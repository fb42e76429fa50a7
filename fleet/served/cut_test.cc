// SPDX-License-Identifier: Apache-2.0

// A save is one cut: what belongs to one step of a worker is in it for all
// tables and on all servers, or not at all, however fast workers push.

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status_matchers.h"
#include "fleet/served/synchronizer.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/ps_cluster.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::served {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr TableId kLeft{0};
constexpr TableId kRight{1};
constexpr TableId kWeights{2};
constexpr size_t kNumWeights = 3000;
constexpr int kWorkers = 4;

// The keys of one worker, which lie on both servers.
std::vector<int64_t> KeysOf(int worker) {
  std::vector<int64_t> keys;
  for (int i = 0; i < 8; ++i) keys.push_back(100 * worker + i);
  return keys;
}

// Rows begin with 1 and weights with 0; the rate is 0.5.
std::vector<ServedTable> Tables(PsMode mode) {
  std::vector<ServedTable> tables = {SparseServed(0, "left", 1),
                                     SparseServed(1, "right", 1),
                                     DenseServed(2, "w", kNumWeights)};
  if (mode == PsMode::kGeo) {
    for (size_t i : {0, 1}) {
      std::get<table::SparseTableOptions>(tables[i].spec.table)
          .num_geo_workers = kWorkers;
    }
  }
  return tables;
}

// Each of its steps adds 1 to its keys in both tables, and in the modes in
// which dense gradients leave, to a weight on each server.
class Counting {
 public:
  Counting(PsCluster& cluster, int index, PsMode mode)
      : index_(index), mode_(mode), client_(cluster.Client(index)) {
    SynchronizerOptions options;
    options.mode = mode;
    options.worker = index;
    options.num_workers = cluster.num_workers();
    options.timeout = 30s;
    options.geo_steps = 1;
    options.max_merge = 3;
    options.queue_size = 5;
    options.send_pause = {};
    const std::vector<ServedTable> tables = Tables(mode);
    std::vector<ps::TableSpec> specs;
    for (const ServedTable& table : tables) specs.push_back(table.spec);
    EXPECT_OK(client_->CreateTables(specs, Soon()));
    auto made = Synchronizer::Make(*client_, tables, options);
    EXPECT_OK(made.status());
    sync_ = std::move(made).value();
  }

  Status Start() { return sync_->Initialize(values()); }

  // Threads that share a worker do not take the weights.
  Status Step(bool take_weights = true) {
    const std::vector<int64_t> ids = KeysOf(index_);
    std::vector<float> rows(ids.size());
    const RowsOfIds lookup{ids, rows};
    const std::vector<float> minus_two(ids.size(), -2.0f);
    const GradientsOfIds given{ids, minus_two};
    for (TableId table : {kLeft, kRight}) {
      RETURN_IF_ERROR(sync_->Fetch(table, {&lookup, 1}, {}));
    }
    RETURN_IF_ERROR(sync_->Offer(kLeft, {&given, 1}, {}));
    RETURN_IF_ERROR(sync_->Offer(kRight, {&given, 1}, {}));
    if (mode_ != PsMode::kGeo) {
      std::vector<float> gradient(kNumWeights);
      gradient[static_cast<size_t>(index_)] = -2.0f;
      gradient[kNumWeights - 1 - static_cast<size_t>(index_)] = -2.0f;
      const DenseGradient dense{kWeights, gradient};
      RETURN_IF_ERROR(sync_->OfferDense({&dense, 1}));
    }
    return sync_->EndStep(take_weights ? values() : std::vector<DenseValues>());
  }

  Status Save(const std::string& folder) {
    RETURN_IF_ERROR(sync_->Flush(values()));
    return client_->Save(folder, {}, Soon());
  }
  Status Stop() {
    RETURN_IF_ERROR(sync_->Stop(values()));
    return client_->Stop(Soon());
  }

  ps::PsClient& client() { return *client_; }
  Synchronizer& sync() { return *sync_; }

 private:
  std::vector<DenseValues> values() { return {{kWeights, weights_}}; }

  const int index_;
  const PsMode mode_;
  std::unique_ptr<ps::PsClient> client_;
  std::unique_ptr<Synchronizer> sync_;
  std::vector<float> weights_ = std::vector<float>(kNumWeights);
};

// How far a save has each worker's counters, all of which must agree.
void ExpectOneCut(const std::string& folder, PsMode mode) {
  const std::vector<ServedTable> tables = Tables(mode);
  std::vector<std::unique_ptr<table::SparseTable>> sparse;
  for (size_t i : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(
        auto loaded,
        table::SparseTable::Make(
            std::get<table::SparseTableOptions>(tables[i].spec.table)));
    ASSERT_OK(loaded->Load(folder, 0, 1).status());
    sparse.push_back(std::move(loaded));
  }
  table::DenseTableOptions options;
  options.name = "w";
  options.size = kNumWeights;
  options.part = {0, kNumWeights};
  ASSERT_OK_AND_ASSIGN(auto dense, table::DenseTable::Make(options));
  ASSERT_OK(dense->Load(folder).status());
  std::vector<float> weights(kNumWeights);
  ASSERT_OK(dense->PullFrom(0, weights));
  for (int worker = 0; worker < kWorkers; ++worker) {
    const std::vector<int64_t> ids = KeysOf(worker);
    const std::vector<table::Key> keys(ids.begin(), ids.end());
    std::vector<float> left(keys.size()), right(keys.size());
    table::PullOptions as_is;
    as_is.training = false;
    ASSERT_OK(sparse[0]->Pull(keys, left, as_is));
    ASSERT_OK(sparse[1]->Pull(keys, right, as_is));
    EXPECT_THAT(left, Each(left[0])) << "worker " << worker;
    EXPECT_EQ(left, right) << "worker " << worker;
    if (mode == PsMode::kGeo) continue;
    EXPECT_EQ(left[0], 1 + weights[static_cast<size_t>(worker)]);
    EXPECT_EQ(left[0],
              1 + weights[kNumWeights - 1 - static_cast<size_t>(worker)]);
  }
}

class Cut : public ::testing::TestWithParam<PsMode> {};

TEST_P(Cut, ASaveHasWholeStepsOfWorkersThatPushMeanwhile) {
  constexpr int kSaves = 12;
  const testing::TemporaryFolder folder;
  PsCluster cluster(2, kWorkers);
  std::atomic<bool> saved = false;
  RunWorkers(kWorkers, [&](int index) {
    Counting worker(cluster, index, GetParam());
    ASSERT_OK(worker.Start());
    if (index < kWorkers - 1) {
      while (!saved) ASSERT_OK(worker.Step());
    } else {
      for (int i = 0; i < kSaves; ++i) {
        ASSERT_OK(worker.Step());
        ASSERT_OK(worker.Save(folder.path().string()));
        ExpectOneCut(folder.path().string(), GetParam());
      }
      saved = true;
    }
    ASSERT_OK(worker.Stop());
  });
}

INSTANTIATE_TEST_SUITE_P(Synchronizer, Cut,
                         ::testing::Values(PsMode::kSync, PsMode::kHalfAsync,
                                           PsMode::kAsync, PsMode::kGeo),
                         [](const auto& info) {
                           return std::string(plan::ToString(info.param));
                         });

TEST(AsyncCut, TrainerThreadsAreCutBetweenTheirSteps) {
  const testing::TemporaryFolder folder;
  PsCluster cluster(2, kWorkers);
  std::atomic<bool> saved = false;
  RunWorkers(2, [&](int index) {
    Counting worker(cluster, index, PsMode::kAsync);
    if (index == 0) {
      constexpr int kThreads = 3;
      worker.sync().BeginThreads(kThreads);
      RunWorkers(kThreads, [&](int) {
        while (!saved) ASSERT_OK(worker.Step(false));
        worker.sync().EndThread();
      });
      return;
    }
    for (int i = 0; i < 8; ++i) {
      ASSERT_OK(worker.Step());
      ASSERT_OK(worker.Save(folder.path().string()));
      ExpectOneCut(folder.path().string(), PsMode::kAsync);
    }
    saved = true;
  });
}

TEST(AsyncCut, AWorkerInTheMiddleOfAStepIsNamed) {
  PsCluster cluster(2, 2);
  Counting steps(cluster, 0, PsMode::kAsync);
  Counting saves(cluster, 1, PsMode::kAsync);
  const std::vector<int64_t> ids = KeysOf(0);
  const std::vector<float> gradients(ids.size(), 1.0f);
  const GradientsOfIds given{ids, gradients};
  ASSERT_OK(steps.sync().Offer(kLeft, {&given, 1}, {}));
  const testing::TemporaryFolder folder;
  // As soon as the gradients are on their way.
  const base::Deadline patience = Soon();
  while (cluster.server(0).counters().num_pushed_keys == 0 &&
         !patience.expired()) {
    std::this_thread::yield();
  }
  const Status late = saves.client().Save(folder.path().string(), {},
                                          base::Deadline::After(100ms));
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(late.message(), HasSubstr("worker 0 is in the middle of a step"));
  // Nobody waits for the save that was given up.
  ASSERT_OK(steps.sync().Offer(kRight, {&given, 1}, {}));
  ASSERT_OK(steps.sync().EndStep({}));
  ASSERT_OK(steps.sync().Flush({}));
  ASSERT_OK(saves.client().Save(folder.path().string(), {}, Soon()));
}

TEST(AsyncCut, AWorkerThatIsLostInTheMiddleOfAStepHoldsUpNobody) {
  const testing::TemporaryFolder folder;
  PsCluster cluster(2, 2);
  Counting saves(cluster, 1, PsMode::kAsync);
  {
    Counting dies(cluster, 0, PsMode::kAsync);
    ASSERT_OK(dies.client().BeginTurn(Soon()).status());
  }
  ASSERT_OK(saves.client().Save(folder.path().string(), {}, Soon()));
  // And one that dies while it saves.
  {
    auto dies = cluster.Client(0);
    ASSERT_OK(dies->BeginCut(Soon()).status());
  }
  ASSERT_OK(saves.Step());
  ASSERT_OK(saves.sync().Flush({}));
}

TEST(AsyncCut, PullsAndSavesInsideOfOneCutAgree) {
  PsCluster cluster(2, 2);
  std::atomic<bool> done = false;
  RunWorkers(2, [&](int index) {
    Counting worker(cluster, index, PsMode::kAsync);
    if (index == 0) {
      while (!done) ASSERT_OK(worker.Step());
      ASSERT_OK(worker.Stop());
      return;
    }
    const std::vector<int64_t> ids = KeysOf(0);
    const std::vector<table::Key> keys(ids.begin(), ids.end());
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK_AND_ASSIGN(const uint64_t cut,
                           worker.client().BeginCut(Soon()));
      std::vector<float> left(keys.size()), right(keys.size());
      std::vector<float> weights(kNumWeights);
      ASSERT_OK(worker.client().Pull(kLeft, keys, left, {}, Soon()));
      ASSERT_OK(worker.client().PullDense(kWeights, weights, Soon()));
      ASSERT_OK(worker.client().Pull(kRight, keys, right, {}, Soon()));
      ASSERT_OK(worker.client().EndCut(cut));
      EXPECT_THAT(left, Each(1 + weights[0]));
      EXPECT_THAT(right, Each(1 + weights[0]));
      EXPECT_EQ(weights[0], weights[kNumWeights - 1]);
    }
    done = true;
    ASSERT_OK(worker.Stop());
  });
}

}  // namespace
}  // namespace fleet::served
