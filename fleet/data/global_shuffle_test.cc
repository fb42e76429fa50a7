// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/global_shuffle.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/data/dataset.h"
#include "fleet/testing/deadlines.h"

namespace fleet::data {
namespace {

using ::testing::HasSubstr;

// Workers that are threads meet over what each gave.
class Table final {
 public:
  explicit Table(int size) : size_(size), given_(size) {}

  Status AllToAll(int rank, std::span<const std::byte> from,
                  std::span<std::byte> to, Deadline deadline) {
    base::MutexLock lock(mutex_);
    given_[rank] = from;
    ++num_given_;
    changed_.NotifyAll();
    while (num_given_ < size_) {
      if (!changed_.WaitUntil(mutex_, deadline) && deadline.expired()) {
        return DeadlineExceeded("a worker is missing");
      }
    }
    const size_t part = from.size() / size_;
    for (int i = 0; i < size_; ++i) {
      EXPECT_EQ(given_[i].size(), from.size());
      std::memcpy(to.data() + i * part, given_[i].data() + rank * part, part);
    }
    // Nobody leaves before all have taken.
    const uint64_t round = round_;
    if (++num_taken_ == size_) {
      num_taken_ = num_given_ = 0;
      ++round_;
      changed_.NotifyAll();
    }
    while (round_ == round) {
      if (!changed_.WaitUntil(mutex_, deadline) && deadline.expired()) {
        return DeadlineExceeded("a worker is missing");
      }
    }
    return OkStatus();
  }
  uint64_t num_rounds() {
    base::MutexLock lock(mutex_);
    return round_;
  }

 private:
  const int size_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::span<const std::byte>> given_ GUARDED_BY(mutex_);
  int num_given_ GUARDED_BY(mutex_) = 0;
  int num_taken_ GUARDED_BY(mutex_) = 0;
  uint64_t round_ GUARDED_BY(mutex_) = 0;
};

class TableExchange final : public Exchange {
 public:
  TableExchange(Table& table, int rank, int size)
      : table_(table), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status AllToAll(std::span<const std::byte> from, std::span<std::byte> to,
                  Deadline deadline) override {
    return table_.AllToAll(rank_, from, to, deadline);
  }

 private:
  Table& table_;
  const int rank_;
  const int size_;
};

using testing::Soon;

using Ints = std::vector<int64_t>;

// The dataset of a worker: the numbers from `begin` to `end`, each with as many
// copies as its remainder by `copies`, or very many for one of them.
std::unique_ptr<InMemoryDataset> Numbers(int64_t begin, int64_t end,
                                         int64_t copies, int64_t huge = -1) {
  const std::string path = ::testing::TempDir() + "/global_shuffle_" +
                           std::to_string(begin) + "_" + std::to_string(end);
  std::ofstream file(path);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t count = i == huge ? 500'000 : 1 + i % copies;
    file << count;
    for (int64_t k = 0; k < count; ++k) file << ' ' << i;
    file << " 1 " << i << "\n";
  }
  file.close();
  auto dataset = *InMemoryDataset::Make(
      {.slots = {{.name = "copies", .ragged = true},
                 {.name = "x", .type = SlotType::kFloat32, .dims = {1}}}});
  dataset->SetFiles({path});
  EXPECT_OK(dataset->Load({}));
  std::remove(path.c_str());
  return dataset;
}

Ints Content(const InMemoryDataset& dataset) {
  Ints all;
  Batch batch;
  auto pass = dataset.BeginPass({.batch_size = 100});
  while (*pass->Next(batch, Soon())) {
    const Column& copies = batch.columns()[0];
    for (size_t i = 0; i < batch.num_samples(); ++i) {
      const int64_t value = copies.ints[copies.offsets[i]];
      EXPECT_EQ(copies.ints[copies.offsets[i + 1] - 1], value);
      EXPECT_EQ(batch.columns()[1].floats[i], static_cast<float>(value));
      all.push_back(value);
    }
  }
  return all;
}

void RunWorkers(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back([&, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(GlobalShuffle, EverySampleComesToOneWorkerOnce) {
  for (int size : {1, 2, 3}) {
    Table table(size);
    std::vector<std::unique_ptr<InMemoryDataset>> datasets;
    // Unequal shares: the last has nothing.
    const std::vector<int64_t> ends = {0, 9000, 20000, 20000};
    for (int i = 0; i < size; ++i) {
      datasets.push_back(Numbers(ends[i], ends[i + 1], 30));
    }
    const int64_t total = ends[size];
    RunWorkers(size, [&](int rank) {
      TableExchange exchange(table, rank, size);
      EXPECT_OK(datasets[rank]->GlobalShuffle(exchange, 5, Soon()));
    });
    Ints all;
    for (auto& dataset : datasets) {
      const Ints content = Content(*dataset);
      EXPECT_LE(total / size, static_cast<int64_t>(content.size()));
      EXPECT_GE(total / size + 1, static_cast<int64_t>(content.size()));
      EXPECT_FALSE(std::is_sorted(content.begin(), content.end()));
      all.insert(all.end(), content.begin(), content.end());
    }
    std::sort(all.begin(), all.end());
    Ints wanted(total);
    for (int64_t i = 0; i < total; ++i) wanted[i] = i;
    EXPECT_EQ(all, wanted) << size;
    EXPECT_GE(table.num_rounds(), 3u) << "it should take several parts";
  }
}

TEST(GlobalShuffle, IsTheSameForTheSameSeed) {
  auto run = [](uint64_t seed) {
    Table table(2);
    std::vector<std::unique_ptr<InMemoryDataset>> datasets;
    datasets.push_back(Numbers(0, 500, 3));
    datasets.push_back(Numbers(500, 1000, 3));
    RunWorkers(2, [&](int rank) {
      TableExchange exchange(table, rank, 2);
      EXPECT_OK(datasets[rank]->GlobalShuffle(exchange, seed, Soon()));
    });
    return Content(*datasets[0]);
  };
  const Ints first = run(1);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
}

TEST(GlobalShuffle, ASampleMayBeLargerThanAPart) {
  Table table(2);
  std::vector<std::unique_ptr<InMemoryDataset>> datasets;
  datasets.push_back(Numbers(0, 50, 3, 17));
  datasets.push_back(Numbers(50, 60, 3));
  RunWorkers(2, [&](int rank) {
    TableExchange exchange(table, rank, 2);
    EXPECT_OK(datasets[rank]->GlobalShuffle(exchange, 3, Soon()));
  });
  Ints all = Content(*datasets[0]);
  const Ints other = Content(*datasets[1]);
  all.insert(all.end(), other.begin(), other.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), 60u);
  EXPECT_TRUE(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST(GlobalShuffle, WorkersWithOtherSlotsAreTold) {
  Table table(2);
  RunWorkers(2, [&](int rank) {
    auto dataset = *InMemoryDataset::Make(
        {.slots = {{.name = rank == 0 ? "a" : "b", .dims = {1}}}});
    TableExchange exchange(table, rank, 2);
    EXPECT_THAT(
        dataset->GlobalShuffle(exchange, 1, Soon()),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("reads other slots")));
  });
}

TEST(GlobalShuffle, AMissingWorkerIsAnErrorInTime) {
  Table table(2);
  auto dataset = Numbers(0, 10, 2);
  TableExchange exchange(table, 0, 2);
  EXPECT_THAT(dataset->GlobalShuffle(
                  exchange, 1, Deadline::After(std::chrono::milliseconds(50))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("load it")));
  EXPECT_EQ(dataset->num_samples(), 0u);
}

}  // namespace
}  // namespace fleet::data
