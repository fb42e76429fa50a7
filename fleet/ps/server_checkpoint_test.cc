// SPDX-License-Identifier: Apache-2.0

// Checkpoints of servers with a log, and what is left of the log after them.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fleet/ps/request_log.h"
#include "fleet/testing/server_log_fixtures.h"

namespace fleet::ps {
namespace {

using testing::HasSubstr;

// Segments that nobody needs go, whether or not there were steps, and whether
// or not the server was started again.
TEST_F(ServerLog, IsCutByCheckpoints) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(1);
  const auto num_segments = [&] {
    const auto names = base::ListFolder(log_folder_).value();
    return std::ranges::count_if(names, [](const std::string& name) {
      return name.starts_with("log.");
    });
  };
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) {
      const Batch batch(random, 20);
      ASSERT_OK(client->Push(kEmb, batch.keys, batch.gradients, Soon(), 1));
      ASSERT_OK(server().CheckpointIfDue());
      EXPECT_EQ(num_segments(), 1) << i << ", " << k;
    }
    End();
    Start();
  }
  // What a killed server left, and while a save is under way nothing is begun.
  ASSERT_OK(base::AtomicWriteFile(log_folder_ / ".checkpoint.17.2.tmp", "x"));
  const auto before = base::ListFolder(log_folder_).value();
  const auto channel = server().ConnectInProcess("worker 1");
  ASSERT_OK(SayHello(*channel, 1));
  RequestHead head;
  head.op = Op::kBeginSave;
  const std::string saves = (temporary_.path() / "saves").string();
  ASSERT_OK(Ask(*channel, head,
                channel::MessageWriter().U64(5).Text(saves).Take(), Soon())
                .status());
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_EQ(base::ListFolder(log_folder_).value(), before);
  head.op = Op::kEndSave;
  ASSERT_OK(Ask(*channel, head,
                channel::MessageWriter().U64(5).U8(0).U64(0).Text("").Take(),
                Soon())
                .status());
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_FALSE(base::Exists(log_folder_ / ".checkpoint.17.2.tmp"));
  End();
}

// No step ends in async training: nothing of old segments is waited for.
TEST_F(ServerLog, CheckpointsCutTheLogAlsoAfterARestart) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(1);
  for (int life = 0; life < 4; ++life) {
    PushSome(*client, random, 3);
    ASSERT_OK(server().CheckpointIfDue());
    EXPECT_THAT(Named("log."), testing::SizeIs(1)) << life;
    EXPECT_THAT(Named("base."), testing::SizeIs(1)) << life;
    PushSome(*client, random, 3);
    End();
    Start();
  }
  End();
}

TEST_F(ServerLog, SegmentsAreUsedAgainAndTheDiskHoldsTwoBasesAndTheLimit) {
  checkpoint_byte_size_ = 100 << 20;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  const std::vector<float> wide(100'000, 1.0f);
  uint64_t largest = 0;
  uint64_t base = 0;
  int num_spares = 0;
  for (int i = 0; i < 1500; ++i) {
    ASSERT_OK(client->PushDenseMany(One(kWide, wide), Soon(), 1));
    if (i % 50 != 0) continue;
    ASSERT_OK(server().CheckpointIfDue());
    uint64_t all = 0;
    base = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(log_folder_)) {
      if (!entry.is_regular_file()) continue;
      all += entry.file_size();
      if (entry.path().string().find("base.") != std::string::npos) {
        base += entry.file_size();
      }
    }
    num_spares += static_cast<int>(Named("spare.").size());
    largest = std::max(largest, all);
  }
  // 600 MB were pushed. The limit is looked at between pushes, and a segment is
  // taken as a whole.
  EXPECT_GT(base, 400'000u);
  const uint64_t limit = checkpoint_byte_size_;
  EXPECT_LE(largest, limit + 50 * 400'000 + limit / 8 + 2 * base);
  EXPECT_GT(num_spares, 0);
  End();
}

// The marks of changed rows are the save's until it ends; meanwhile the log
// does not grow faster than workers push.
TEST_F(ServerLog, ACheckpointWaitsForASaveAndNotForOneThatNobodyEnds) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  auto saving = Raw(1);
  RequestHead head;
  head.op = Op::kBeginSave;
  const std::string folder = (temporary_.path() / "model").string();
  ASSERT_OK(Ask(*saving, head,
                channel::MessageWriter().U64(7).Text(folder).Take(), Soon()));
  for (int i = 0; i < 5; ++i) ASSERT_OK(server().CheckpointIfDue());
  EXPECT_THAT(Named("log."), testing::SizeIs(1));
  EXPECT_THAT(Named("checkpoint"), testing::IsEmpty());
  // The worker was started again: it does not know of the save.
  const auto again = Raw(1);
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_THAT(Named("checkpoint"), testing::SizeIs(1));
  End();
}

TEST_F(ServerLog, ACheckpointThatFailsLeavesNothing) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(base::MakeFolders(log_folder_ / kCheckpointFile / "in the way"));
  EXPECT_THAT(server().CheckpointIfDue().ToString(),
              HasSubstr(kCheckpointFile));
  EXPECT_THAT(Named("base."), testing::IsEmpty());
  const auto segments = Named("log.");
  // It is not tried again and again: each takes a segment.
  for (int i = 0; i < 5; ++i) EXPECT_OK(server().CheckpointIfDue());
  EXPECT_EQ(Named("log."), segments);
  End();
  std::filesystem::remove_all(log_folder_ / kCheckpointFile);
  // Nor does what was cut off stay.
  ASSERT_OK(base::MakeFolders(log_folder_ / "base.77"));
  Start();
  EXPECT_THAT(Named("base."), testing::IsEmpty());
  End();
}

// A table that begins with a save is not there, without its values, where the
// server ends before its log has them.
TEST_F(ServerLog, ATableThatIsLoadedIsThereWithItsValuesOrNotAtAll) {
  const std::string model = (temporary_.path() / "model").string();
  Start(Durability::kNone);
  {
    auto client = Client(0);
    ASSERT_OK(client->CreateTables(Specs(optim::Adam{}), Soon()));
    for (const auto& [id, size] : {std::pair(kDense, 10), {kWide, 100'000}}) {
      ASSERT_OK(client->InitializeDense(
          id, std::vector<float>(static_cast<size_t>(size), 1.0f), Soon()));
    }
    ASSERT_OK(client->Refresh(Soon()));
    std::mt19937 random(4);
    PushSome(*client, random, 5);
    ASSERT_OK(client->Save(model, {}, Soon()));
  }
  const auto before = Everything();
  End();
  load_folder_ = model;
  Start();
  ASSERT_OK(base::MakeFolders(log_folder_ / kCheckpointFile / "in the way"));
  EXPECT_THAT(Client(0)->CreateTables(Specs(optim::Adam{}), Soon()).ToString(),
              HasSubstr(kCheckpointFile));
  End();
  std::filesystem::remove_all(log_folder_ / kCheckpointFile);
  Start();
  ASSERT_OK(Client(0)->CreateTables(Specs(optim::Adam{}), Soon()));
  EXPECT_TRUE(Everything() == before);
  End();
  std::filesystem::remove_all(model);
  Start();
  EXPECT_TRUE(Everything() == before);
  End();
}

// Who pushes to a dense table whose values nobody has set has pushed to zeros.
TEST_F(ServerLog, ADenseTableThatNobodyInitializedKeepsWhatWasPushed) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Adam{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(3);
  for (int life = 0; life < 3; ++life) {
    PushSome(*client, random, 10);
    ASSERT_OK(server().CheckpointIfDue());
    PushSome(*client, random, 2);
    const auto before = Everything();
    End();
    Start();
    EXPECT_TRUE(Everything() == before) << life;
    EXPECT_FALSE(server().dense(kWide)->initialized());
  }
  const std::vector<float> first(100'000, 2.0f);
  ASSERT_OK(client->InitializeDense(kWide, first, Soon()));
  std::vector<float> values(first.size());
  ASSERT_OK(client->PullDense(kWide, values, Soon()));
  EXPECT_EQ(values, first);
  ASSERT_OK(server().CheckpointIfDue());
  End();
  Start();
  EXPECT_TRUE(server().dense(kWide)->initialized());
  ASSERT_OK(client->PullDense(kWide, values, Soon()));
  EXPECT_EQ(values, first);
  End();
}

// What a checkpoint has of a table is that of one moment, and a table that is
// not in it is in the log that stays.
TEST_F(ServerLog, TablesThatBeginWhileCheckpointsAreWrittenAreThere) {
  constexpr uint32_t kTogether = 50;
  checkpoint_byte_size_ = 1;
  std::vector<TableSpec> specs;
  for (uint32_t i = 0; i < 10 * kTogether; ++i) {
    specs.push_back(DenseSpecOf(TableId{i}, base::Concat("w", i), 10,
                                optim::UpdateRule(optim::Sgd{})));
  }
  const std::vector<float> ones(10, 1.0f);
  Start();
  auto client = Client(0);
  std::atomic<bool> done = false;
  std::jthread beginning([&] {
    for (auto at = specs.begin(); at != specs.end(); at += kTogether) {
      const std::vector<TableSpec> some(at, at + kTogether);
      EXPECT_OK(client->CreateTables(some, Soon()));
      EXPECT_OK(client->Refresh(Soon()));
      for (const TableSpec& spec : some) {
        EXPECT_OK(client->InitializeDense(spec.id, ones, Soon()));
      }
    }
    done = true;
  });
  // The server ends after a checkpoint, again and again.
  for (int life = 0; !done || life < 3; ++life) {
    for (int i = 0; i <= life % 8; ++i) ASSERT_OK(server().CheckpointIfDue());
    End();
    Start();
  }
  beginning.join();
  for (const TableSpec& spec : specs) {
    table::DenseTable* const table = server().dense(spec.id);
    ASSERT_NE(table, nullptr) << static_cast<uint32_t>(spec.id);
    EXPECT_TRUE(table->initialized()) << table->name();
    std::vector<float> values(ones.size());
    ASSERT_OK(table->Pull(values));
    EXPECT_EQ(values, ones) << table->name();
  }
  End();
}

// Not one for each of them, which would have all tables before it again.
TEST_F(ServerLog, TablesThatAreLoadedTogetherTakeOneCheckpoint) {
  const std::string model = (temporary_.path() / "model").string();
  std::vector<TableSpec> specs;
  for (uint32_t i = 0; i < 8; ++i) {
    specs.push_back(DenseSpecOf(TableId{i}, base::Concat("w", i), 10,
                                optim::UpdateRule(optim::Sgd{})));
  }
  Start(Durability::kNone);
  {
    auto client = Client(0);
    ASSERT_OK(client->CreateTables(specs, Soon()));
    for (const TableSpec& spec : specs) {
      ASSERT_OK(client->InitializeDense(spec.id, std::vector<float>(10, 1.0f),
                                        Soon()));
    }
    ASSERT_OK(client->Save(model, {}, Soon()));
  }
  End();
  load_folder_ = model;
  Start();
  ASSERT_OK(Client(0)->CreateTables(specs, Soon()));
  EXPECT_THAT(Named("base."), testing::ElementsAre("base.2.1"));
  // Another worker says the same.
  ASSERT_OK(Client(1)->CreateTables(specs, Soon()));
  EXPECT_THAT(Named("base."), testing::ElementsAre("base.2.1"));
  End();
}

}  // namespace
}  // namespace fleet::ps
