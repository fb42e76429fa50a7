// SPDX-License-Identifier: Apache-2.0

// Rows with a time to live on a server, by a clock that the tests drive.

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "fleet/testing/ps_fixtures.h"

namespace fleet::ps {
namespace {

using std::chrono::seconds;

class ExpiryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/expiry_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    Start({});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // In place of the server that was there.
  void Start(PsServerOptions options) {
    client_.reset();
    options.num_workers = 1;
    options.worker_grace = 50ms;
    server_ = std::make_unique<PsServer>(options);
    auto client = PsClient::Connect(
        1,
        [this](uint32_t,
               Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return server_->ConnectInProcess("worker 0");
        },
        {}, Soon());
    ASSERT_OK(client);
    client_ = std::move(client).value();
  }

  void MakeTable(TableId id, seconds time_to_live) {
    table::SparseTableOptions options;
    options.name = base::Concat("emb", static_cast<uint32_t>(id));
    options.dim = 2;
    options.num_shards = 2;
    options.initializer = table::ConstantInit{1.0f};
    options.update.learning_rate.base = 0.5;
    options.time_to_live = time_to_live;
    ASSERT_OK(client_->CreateTables({{id, options}}, Soon()));
    // The server sees it for the first time.
    ASSERT_OK(server_->ExpireRows(now_).status());
  }

  void Push(TableId id, Key key) {
    ASSERT_OK(client_->Push(id, std::vector<Key>{key}, std::vector<float>{1, 1},
                            Soon()));
  }

  table::SparseTableStats Stats(TableId id) {
    auto stats = client_->Stats(id, Soon());
    EXPECT_OK(stats.status());
    return std::move(stats).value();
  }

  // A second of training, of keys that stay.
  void Second(const std::vector<TableId>& tables) {
    for (const TableId id : tables) Push(id, kStays);
    now_ += 1s;
    ASSERT_OK(server_->ExpireRows(now_).status());
  }

  static constexpr Key kStays = 99;
  std::string folder_;
  std::unique_ptr<PsServer> server_;
  std::unique_ptr<PsClient> client_;
  Deadline::TimePoint now_{};
};

TEST_F(ExpiryTest, ErasesRowsOfEachTableAfterItsTime) {
  const std::vector<TableId> tables = {TableId{0}, TableId{1}, TableId{2}};
  MakeTable(tables[0], 8s);
  MakeTable(tables[1], 40s);
  MakeTable(tables[2], 0s);
  for (const TableId id : tables) Push(id, 1);
  std::map<TableId, int> gone;
  for (int second = 1; second <= 100; ++second) {
    Second(tables);
    for (const TableId id : tables) {
      if (Stats(id).num_rows == 1) gone.try_emplace(id, second);
    }
  }
  // The fifth look that comes after the row was touched.
  EXPECT_THAT(gone, testing::ElementsAre(testing::Pair(tables[0], 10),
                                         testing::Pair(tables[1], 50)));
  EXPECT_EQ(Stats(tables[0]).num_expired, 1u);
  EXPECT_EQ(Stats(tables[2]).num_expired, 0u);
  EXPECT_EQ(server_->holdings().num_expired, 2u);
  EXPECT_EQ(server_->holdings().num_rows, 4u);
}

TEST_F(ExpiryTest, ALookThatIsLateCountsAsOne) {
  MakeTable(TableId{0}, 8s);
  Push(TableId{0}, 1);
  now_ += 1000s;
  ASSERT_OK(server_->ExpireRows(now_).status());
  EXPECT_EQ(Stats(TableId{0}).num_rows, 1u);
  for (int i = 0; i < 8; ++i) Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 1u);  // the other one
}

TEST_F(ExpiryTest, ErasesNothingDuringASave) {
  MakeTable(TableId{0}, 8s);
  Push(TableId{0}, 1);
  for (int i = 0; i < 9; ++i) Second({TableId{0}});
  ASSERT_OK_AND_ASSIGN(const uint64_t cut, client_->BeginCut(Soon()));
  for (int i = 0; i < 50; ++i) Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 2u);
  ASSERT_OK(client_->EndCut(cut));
  Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 1u);
}

TEST_F(ExpiryTest, AServerThatBeginsAgainGoesOnWithTheTimesOfItsSave) {
  MakeTable(TableId{0}, 8s);
  Push(TableId{0}, 1);
  for (int i = 0; i < 6; ++i) Second({TableId{0}});
  ASSERT_OK(client_->Save(folder_, {}, Soon()));
  PsServerOptions again;
  again.load_folder = folder_;
  Start(again);
  now_ += 1000s;  // nobody held the rows meanwhile
  MakeTable(TableId{0}, 8s);
  for (int i = 0; i < 3; ++i) Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 2u);
  Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 1u);
}

TEST_F(ExpiryTest, GoesTogetherWithRequestsAndSaves) {
  MakeTable(TableId{0}, 1s);
  constexpr Key kKeys = 200;
  std::atomic<bool> done = false;
  std::thread training([&] {
    for (int round = 0; round < 100; ++round) {
      std::vector<Key> keys;
      for (Key key = round % 2; key < kKeys; key += 2) keys.push_back(key);
      std::vector<float> rows(keys.size() * 2);
      EXPECT_OK(client_->Pull(TableId{0}, keys, rows, {}, Soon()));
      EXPECT_OK(client_->Push(TableId{0}, keys, rows, Soon()));
      if (round % 20 == 0) {
        EXPECT_OK(client_->Save(folder_, {}, Soon()));
      }
    }
    done = true;
  });
  while (!done) {
    now_ += 1s;
    EXPECT_OK(server_->ExpireRows(now_).status());
  }
  training.join();
  EXPECT_LE(Stats(TableId{0}).num_rows, kKeys);
  Push(TableId{0}, kStays);
  for (int i = 0; i < 3; ++i) Second({TableId{0}});
  EXPECT_EQ(Stats(TableId{0}).num_rows, 1u);
}

}  // namespace
}  // namespace fleet::ps
