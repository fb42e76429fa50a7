// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sparse_table.h"

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "fleet/base/cores.h"
#include "fleet/table/table_conformance.h"

namespace fleet::table {
namespace {

Backend InShards(uint32_t num_shards) {
  return {base::Concat("memory in ", num_shards, " shards"),
          [num_shards](SparseTableOptions& options, const base::Path&) {
            options.num_shards = num_shards;
          }};
}

INSTANTIATE_TEST_SUITE_P(Memory, SparseTableConformance,
                         testing::Values(InShards(1), InShards(5)));
INSTANTIATE_TEST_SUITE_P(Memory, ExpiryConformance,
                         testing::Values(InShards(1), InShards(5)));
INSTANTIATE_TEST_SUITE_P(Memory, SaveConformance,
                         testing::Values(InShards(1), InShards(5)));

SparseTableOptions Small() {
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 4;
  return options;
}

TEST(SparseTable, NamesWhatIsWrongWithItsOptions) {
  SparseTableOptions options = Small();
  options.dim = 0;
  EXPECT_THAT(SparseTable::Make(options),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("table emb: rows of 0 values")));
  options = Small();
  options.entry = AdmitByProbability{1.5};
  EXPECT_THAT(SparseTable::Make(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1.5")));
  options = Small();
  options.num_shards = kMaxShards + 1;
  EXPECT_THAT(SparseTable::Make(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("257 shards")));
}

TEST(SparseTable, HasAShardForEachCoreUnlessToldOtherwise) {
  auto made = SparseTable::Make(Small());
  ASSERT_OK(made);
  EXPECT_EQ((*made)->options().num_shards, ShardsOnCores(base::NumCores()));
  EXPECT_EQ(ShardsOnCores(1), 1u);
  EXPECT_EQ(ShardsOnCores(2), 1u);
  EXPECT_EQ(ShardsOnCores(3), 3u);
  EXPECT_EQ(ShardsOnCores(16), 16u);
  EXPECT_EQ(ShardsOnCores(1000), kMaxShards);
}

TEST(SparseTable, RefusesRowsBeyondItsLimitAndKeepsWhatItHas) {
  SparseTableOptions options = Small();
  options.num_shards = 1;
  options.max_byte_size = 1 << 20;
  auto made = SparseTable::Make(options);
  ASSERT_OK(made);
  SparseTable& table = **made;
  std::vector<Key> keys(100'000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> rows(keys.size() * 4);
  EXPECT_THAT(table.Pull(keys, rows),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("table emb: pull (100000 keys): no memory")));
  const SparseTableStats stats = table.stats();
  EXPECT_GT(stats.num_rows, 10'000u);
  EXPECT_LT(stats.byte_size, 2u << 20);
  // Rows that are there still serve.
  rows.resize(4);
  EXPECT_OK(table.Pull(std::vector<Key>{1}, rows));
  EXPECT_OK(table.Push(std::vector<Key>{1}, rows));
  EXPECT_THAT(table.Push(std::vector<Key>{99'999}, rows),
              HasCode(StatusCode::kUnavailable));
}

TEST(SparseTable, TakesFewBytesForARowOf16) {
  SparseTableOptions options = Small();
  options.num_shards = 1;
  options.dim = 16;
  auto made = SparseTable::Make(options);
  ASSERT_OK(made);
  std::vector<Key> keys(10'000);
  std::vector<float> rows(keys.size() * 16);
  for (int i = 0; i < 50; ++i) {
    std::iota(keys.begin(), keys.end(), static_cast<Key>(i) * 10'000);
    ASSERT_OK((*made)->Pull(keys, rows));
    const SparseTableStats stats = (*made)->stats();
    EXPECT_LE(stats.byte_size, 90 * stats.num_rows + 20'000) << i;
  }
}

TEST(SparseTable, ServesSeveralThreads) {
  SparseTableOptions options = Small();
  options.num_shards = 4;
  options.update.learning_rate.base = 1.0;
  auto made = SparseTable::Make(options);
  ASSERT_OK(made);
  SparseTable& table = **made;
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::atomic<bool> torn = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const std::vector<float> gradients(keys.size() * 4, -1.0f);
      std::vector<float> rows(keys.size() * 4);
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_OK(table.Push(keys, gradients));
        EXPECT_OK(table.Pull(keys, rows));
        for (size_t k = 0; k < keys.size(); ++k) {
          if (rows[4 * k] != rows[4 * k + 3]) torn = true;
        }
        if (i % 10 == 0) table.EndStep();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(torn);
  std::vector<float> rows(keys.size() * 4);
  ASSERT_OK(table.Pull(keys, rows));
  for (float x : rows) ASSERT_EQ(x, kThreads * kRounds);
}

// Steps end while others push, and each push has a rate of the schedule.
TEST(SparseTable, CountsStepsThatEndInSeveralThreads) {
  SparseTableOptions options = Small();
  options.num_shards = 7;
  options.update.learning_rate.base = 1.0;
  options.update.learning_rate.schedule = PiecewiseDecay{{1000}, {1.0, 0.5}};
  auto made = SparseTable::Make(options);
  ASSERT_OK(made);
  SparseTable& table = **made;
  constexpr uint64_t kSteps = 250;
  std::vector<Key> keys(100);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> gradients(keys.size() * 4, -1.0f);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kSteps; ++i) {
        EXPECT_OK(table.Push(keys, gradients));
        table.EndStep();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.stats().step, 4 * kSteps);
  std::vector<float> rows(keys.size() * 4);
  ASSERT_OK(table.Pull(keys, rows));
  EXPECT_THAT(rows, testing::Each(4.0f * kSteps));
  // Step 1000 is here, and the rate is half.
  ASSERT_OK(table.Push(keys, gradients));
  ASSERT_OK(table.Pull(keys, rows));
  EXPECT_THAT(rows, testing::Each(4.0f * kSteps + 0.5f));
}

TEST(SparseTable, LoadsWhateverNumberOfShardsWroteIt) {
  std::vector<Key> keys(5000);
  std::iota(keys.begin(), keys.end(), 1);
  std::vector<float> rows(keys.size() * 4);
  std::iota(rows.begin(), rows.end(), 0.0f);
  const std::vector<Key> changed{3, 4000};
  const std::vector<float> ones(8, 1.0f);
  for (const uint32_t wrote : {1u, 3u, 16u}) {
    TemporaryFolder folder;
    SparseTableOptions options = Small();
    options.num_shards = wrote;
    auto writer = SparseTable::Make(options);
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->Assign(keys, rows));
    ASSERT_OK((*writer)->Save(folder.path(), {}));
    ASSERT_OK((*writer)->Assign(changed, ones));
    SaveOptions delta;
    delta.id.number = 1;
    delta.id.kind = SaveKind::kDelta;
    ASSERT_OK((*writer)->Save(folder.path(), delta));
    std::vector<float> wanted(rows.size());
    ASSERT_OK((*writer)->Pull(keys, wanted));
    for (const uint32_t reads : {1u, 3u, 16u}) {
      options.num_shards = reads;
      auto reader = SparseTable::Make(options);
      ASSERT_OK(reader);
      ASSERT_OK((*reader)->Load(folder.path(), 0, 1));
      EXPECT_EQ((*reader)->stats().num_rows, keys.size());
      std::vector<float> got(rows.size());
      ASSERT_OK((*reader)->Pull(keys, got));
      EXPECT_EQ(got, wanted) << wrote << " wrote, " << reads << " read";
    }
  }
}

TEST(SparseTable, TakesLittleMemoryForASaveWhileItGrowsByMillions) {
  testing::TemporaryFolder folder;
  auto table = SparseTable::Make(Small());
  ASSERT_OK(table);
  const auto pull = [&](Key first, size_t count) {
    std::vector<Key> keys(count);
    std::iota(keys.begin(), keys.end(), first);
    std::vector<float> rows(count * 4);
    ASSERT_OK((*table)->Pull(keys, rows));
    ASSERT_OK((*table)->Push(keys, rows));
  };
  pull(0, 1000);
  ASSERT_OK((*table)->BeginSave({{.number = 1}}));
  for (Key first = 1000; first < 2'001'000; first += 10'000) {
    pull(first, 10'000);
  }
  EXPECT_EQ((*table)->stats().num_rows, 2'001'000u);
  // Its list has room for a thousand keys, and nothing was put aside.
  EXPECT_LT((*table)->stats().save_byte_size, 100'000u);
  ASSERT_OK_AND_ASSIGN(const WrittenTable written,
                       (*table)->WriteRows(folder.path()));
  EXPECT_EQ(written.stats.num_rows, 1000u);
  EXPECT_EQ(written.stats.num_put_aside, 0u);
  (*table)->EndSave(true);
}

TEST(SparseTable, EmptiesItself) {
  auto made = SparseTable::Make(Small());
  ASSERT_OK(made);
  std::vector<float> row(4);
  ASSERT_OK((*made)->Push(std::vector<Key>{1}, std::vector<float>(4, 1.0f)));
  ASSERT_OK((*made)->Clear());
  EXPECT_EQ((*made)->stats().num_rows, 0u);
  ASSERT_OK((*made)->Pull(std::vector<Key>{1}, row));
  EXPECT_THAT(row, ElementsAre(0, 0, 0, 0));
}

// Reading refuses keys that do not ascend.
// So many that keys enter the index in parts, and parts more than once.
class LoadOfManyRows : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr size_t kNumRows = 400'000;

  std::unique_ptr<SparseTable> Make(uint32_t num_shards,
                                    uint64_t max_byte_size = 0) {
    SparseTableOptions options;
    options.name = "emb";
    options.dim = 1;
    options.num_shards = num_shards;
    options.max_byte_size = max_byte_size;
    auto table = SparseTable::Make(options);
    EXPECT_OK(table);
    return std::move(table).value();
  }
  // Keys from `begin` on, each with a value of its own.
  static std::vector<Key> Keys(size_t begin) {
    std::vector<Key> keys(kNumRows);
    for (size_t i = 0; i < kNumRows; ++i) keys[i] = HashKey(begin + i);
    return keys;
  }
  void Save(size_t begin, float factor, SaveId id) {
    auto table = Make(1);
    std::vector<float> values(kNumRows);
    for (size_t i = 0; i < kNumRows; ++i) {
      values[i] = factor * static_cast<float>(begin + i);
    }
    ASSERT_OK(table->Assign(Keys(begin), values));
    ASSERT_OK(table->Save(folder_.path(), {id}));
  }
  const base::Path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Shards, LoadOfManyRows, testing::Values(1, 3));

TEST_P(LoadOfManyRows, FindsEachUnderItsKey) {
  Save(0, 1.0f, {});
  auto table = Make(GetParam());
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, table->Load(folder(), 0, 1));
  EXPECT_EQ(loaded.num_rows, kNumRows);
  std::vector<float> values(kNumRows);
  ASSERT_OK(table->Pull(Keys(0), values, {.training = false}));
  for (size_t i = 0; i < kNumRows; ++i) {
    ASSERT_EQ(values[i], static_cast<float>(i)) << i;
  }
  EXPECT_EQ(table->stats().num_rows, kNumRows);
  // Nothing changed since the save.
  ASSERT_OK_AND_ASSIGN(
      const SaveStats delta,
      table->Save(folder(), {{.number = 1, .kind = SaveKind::kDelta}}));
  EXPECT_EQ(delta.num_rows, 0u);
}

TEST_P(LoadOfManyRows, TakesTheLaterOfTwoFilesThatHaveAKey) {
  Save(0, 1.0f, {.server = 0, .num_servers = 2});
  Save(kNumRows / 2, 2.0f, {.server = 1, .num_servers = 2});
  auto table = Make(GetParam());
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, table->Load(folder(), 0, 1));
  EXPECT_EQ(loaded.num_rows, kNumRows + kNumRows / 2);
  std::vector<float> values(kNumRows);
  ASSERT_OK(table->Pull(Keys(0), values, {.training = false}));
  for (size_t i = 0; i < kNumRows; ++i) {
    const float factor = i < kNumRows / 2 ? 1.0f : 2.0f;
    ASSERT_EQ(values[i], factor * static_cast<float>(i)) << i;
  }
}

TEST_P(LoadOfManyRows, LeavesNothingWhereTheyHaveNoRoom) {
  Save(0, 1.0f, {});
  auto table = Make(GetParam(), 1 << 20);
  EXPECT_THAT(
      table->Load(folder(), 0, 1),
      StatusIs(StatusCode::kUnavailable, HasSubstr("no memory for more rows")));
  EXPECT_EQ(table->stats().num_rows, 0u);
}

TEST(SparseTable, SavesKeysOfAnyKindInTheirOrder) {
  std::mt19937_64 random(5);
  for (const int kind : {0, 1, 2, 3}) {
    std::vector<Key> keys(30'000);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::array<Key, 4> kinds = {
          i,                             // dense
          random(),                      // all 64 bits
          i << 40 | 7,                   // few bits, far up
          i % 3 == 0 ? ~Key{0} - i : i,  // two crowds
      };
      keys[i] = kinds[kind];
    }
    SparseTableOptions options;
    options.name = "emb";
    options.dim = 2;
    options.initializer = UniformInit{-1.0f, 1.0f};
    ASSERT_OK_AND_ASSIGN(auto table, SparseTable::Make(options));
    std::vector<float> rows(keys.size() * 2);
    ASSERT_OK(table->Pull(keys, rows));
    TemporaryFolder folder;
    ASSERT_OK(table->Save(folder.path(), {{.number = 1}}));
    options.initializer = ConstantInit{9.0f};
    ASSERT_OK_AND_ASSIGN(auto other, SparseTable::Make(options));
    ASSERT_OK_AND_ASSIGN(const LoadStats loaded,
                         other->Load(folder.path(), 0, 1));
    EXPECT_EQ(loaded.num_rows, table->stats().num_rows);
    std::vector<float> read(rows.size());
    ASSERT_OK(other->Pull(keys, read));
    EXPECT_EQ(read, rows) << kind;
  }
}

}  // namespace
}  // namespace fleet::table
