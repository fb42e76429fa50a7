// SPDX-License-Identifier: Apache-2.0

#include <random>

#include "fleet/table/cold_store.h"
#include "fleet/table/table_conformance.h"

namespace fleet::table {
namespace {

// Hardly any row stays in memory.
Backend OnDisk(uint32_t num_shards) {
  return {base::Concat("disk in ", num_shards, " shards"),
          [num_shards](SparseTableOptions& options, const base::Path& folder) {
            options.num_shards = num_shards;
            options.disk = DiskOptions{folder.string(), 1024};
          }};
}

INSTANTIATE_TEST_SUITE_P(Disk, SparseTableConformance,
                         testing::Values(OnDisk(1), OnDisk(3)));
INSTANTIATE_TEST_SUITE_P(Disk, ExpiryConformance,
                         testing::Values(OnDisk(1), OnDisk(3)));
INSTANTIATE_TEST_SUITE_P(Disk, SaveConformance,
                         testing::Values(OnDisk(1), OnDisk(3)));

TEST(RocksDbTable, EqualsATableInMemoryUnderRandomCalls) {
  TemporaryFolder folder;
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 3;
  options.initializer = NormalInit{};
  options.update.rule = optim::Adam();
  options.count_unseen_days = true;
  auto in_memory = SparseTable::Make(options);
  ASSERT_OK(in_memory);
  // A quarter of the rows fit.
  options.disk = DiskOptions{(folder.path() / "db").string(), 1000 * 72};
  auto on_disk = SparseTable::Make(options);
  ASSERT_OK(on_disk);
  std::mt19937_64 random(8);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 100; ++round) {
    std::vector<Key> keys(100 + random() % 200);
    for (Key& key : keys) key = random() % 4000;
    std::vector<float> gradients(keys.size() * 3);
    for (float& g : gradients) g = normal(random);
    std::vector<float> a(keys.size() * 3);
    std::vector<float> b(keys.size() * 3);
    ASSERT_OK((*in_memory)->Pull(keys, a));
    ASSERT_OK((*on_disk)->Pull(keys, b));
    ASSERT_EQ(a, b) << round;
    ASSERT_OK((*in_memory)->Push(keys, gradients));
    ASSERT_OK((*on_disk)->Push(keys, gradients));
    if (round % 10 == 9) {
      ASSERT_OK_AND_ASSIGN(const uint64_t erased, (*in_memory)->Shrink(3));
      ASSERT_OK_AND_ASSIGN(const uint64_t too, (*on_disk)->Shrink(3));
      EXPECT_EQ(erased, too);
    }
    ASSERT_EQ((*in_memory)->stats().num_rows, (*on_disk)->stats().num_rows);
  }
  EXPECT_LE((*on_disk)->stats().num_rows_in_memory, 1100u);
  EXPECT_GT((*on_disk)->stats().num_rows, 2500u);
  SaveOptions save;
  save.text_file = folder.path() / "a.txt";
  ASSERT_OK((*in_memory)->Save(folder.path(), save));
  save.text_file = folder.path() / "b.txt";
  ASSERT_OK((*on_disk)->Save(folder.path(), save));
  EXPECT_EQ(*base::ReadFile(folder.path() / "a.txt"),
            *base::ReadFile(folder.path() / "b.txt"));
}

TEST(RocksDbTable, BeginsEmptyInAFolderThatWasUsed) {
  TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    auto stores = OpenRocksDb(folder.path().string(), 1, 2);
    ASSERT_OK(stores);
    const Key key = 1;
    std::vector<float> row{1, 2};
    float* into = row.data();
    bool found = true;
    ASSERT_OK((*stores)[0]->Get(std::span(&key, 1), std::span(&into, 1),
                                std::span(&found, 1)));
    EXPECT_FALSE(found);
    const float* from = row.data();
    ASSERT_OK((*stores)[0]->Put(std::span(&key, 1), std::span(&from, 1)));
  }
}

TEST(RocksDbTable, SaysWhichFolderItCannotOpen) {
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 1;
  options.disk = DiskOptions{"/proc/nowhere", 1024};
  const auto table = SparseTable::Make(options);
  EXPECT_FALSE(table.ok());
  EXPECT_THAT(table.status().message(), HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace fleet::table
