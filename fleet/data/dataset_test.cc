// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/dataset.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/deadlines.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;
using testing::Soon;

// Files whose samples are the numbers from 0 on.
class DatasetTest : public ::testing::Test {
 protected:
  ~DatasetTest() override {
    for (const std::string& path : files_) std::remove(path.c_str());
  }

  void WriteFiles(int num_files, int num_lines) {
    int64_t next = 0;
    for (int i = 0; i < num_files; ++i) {
      files_.push_back(
          ::testing::TempDir() + "/dataset_" +
          ::testing::UnitTest::GetInstance()->current_test_info()->name() +
          std::to_string(i));
      std::ofstream file(files_.back());
      for (int line = 0; line < num_lines; ++line, ++next) {
        file << "1 " << next << " 2 " << next << " " << next * 0.5 << "\n";
      }
    }
  }
  static DatasetOptions Options(int num_threads = 1) {
    return {.slots = {{.name = "id", .ragged = true},
                      {.name = "x", .type = SlotType::kFloat32, .dims = {2}}},
            .num_threads = num_threads};
  }
  std::unique_ptr<InMemoryDataset> Loaded(DatasetOptions options) {
    auto dataset = *InMemoryDataset::Make(std::move(options));
    dataset->SetFiles(files_);
    EXPECT_OK(dataset->Load({}));
    return dataset;
  }

  // The ids of all batches; sizes_ are those of the batches.
  Ints Ids(BatchSource& pass) {
    Ints ids;
    sizes_.clear();
    Batch batch;
    while (true) {
      Result<bool> more = pass.Next(batch, Soon());
      EXPECT_OK(more.status());
      if (!more.ok() || !*more) return ids;
      const Ints& of_batch = batch.columns()[0].ints;
      ids.insert(ids.end(), of_batch.begin(), of_batch.end());
      sizes_.push_back(batch.num_samples());
      EXPECT_EQ(batch.number, sizes_.size());
      for (size_t i = 0; i < of_batch.size(); ++i) {
        EXPECT_EQ(batch.columns()[1].floats[2 * i + 1],
                  static_cast<float>(of_batch[i]) * 0.5f);
      }
    }
  }
  static Ints UpTo(int64_t count) {
    Ints all;
    for (int64_t i = 0; i < count; ++i) all.push_back(i);
    return all;
  }
  static Ints Sorted(Ints ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  std::vector<std::string> files_;
  std::vector<size_t> sizes_;
};

TEST_F(DatasetTest, MemoryIsInTheOrderOfTheFilesWithAnyNumberOfThreads) {
  WriteFiles(5, 1000);
  for (int threads : {1, 3, 9}) {
    auto dataset = Loaded(Options(threads));
    EXPECT_EQ(dataset->num_samples(), 5000u);
    EXPECT_EQ(Ids(*dataset->BeginPass({.batch_size = 64})), UpTo(5000))
        << threads;
    EXPECT_EQ(sizes_.size(), 79u);
    EXPECT_EQ(sizes_.back(), 8u);
  }
}

TEST_F(DatasetTest, TheLastBatchIsLeftOutWhenAsked) {
  WriteFiles(1, 10);
  DatasetOptions options = Options();
  EXPECT_EQ(
      Ids(*Loaded(options)->BeginPass({.batch_size = 4, .drop_last = true})),
      UpTo(8));
  auto queue = *QueueDataset::Make(options);
  queue->SetFiles(files_);
  EXPECT_EQ(Ids(*queue->BeginPass({.batch_size = 4, .drop_last = true})),
            UpTo(8));
}

TEST_F(DatasetTest, AShuffleDependsOnItsSeedOnly) {
  WriteFiles(2, 500);
  auto shuffled = [&](uint64_t seed, int threads) {
    auto dataset = Loaded(Options(threads));
    dataset->LocalShuffle(seed);
    return Ids(*dataset->BeginPass({.batch_size = 32}));
  };
  const Ints ids = shuffled(7, 1);
  EXPECT_EQ(shuffled(7, 2), ids);
  EXPECT_NE(shuffled(8, 1), ids);
  EXPECT_NE(ids, UpTo(1000));
  EXPECT_EQ(Sorted(ids), UpTo(1000));
}

TEST_F(DatasetTest, APassKeepsWhatItBeganWith) {
  WriteFiles(1, 100);
  auto dataset = Loaded(Options());
  auto pass = dataset->BeginPass({.batch_size = 10});
  Batch batch;
  ASSERT_TRUE(*pass->Next(batch, Soon()));
  dataset->LocalShuffle(1);
  dataset->Release();
  EXPECT_EQ(dataset->num_samples(), 0u);
  Ints rest;
  for (int64_t i = 10; i < 100; ++i) rest.push_back(i);
  Ints got;
  while (*pass->Next(batch, Soon())) {
    got.insert(got.end(), batch.columns()[0].ints.begin(),
               batch.columns()[0].ints.end());
  }
  EXPECT_EQ(got, rest);
}

TEST_F(DatasetTest, PreloadRunsInTheBackground) {
  WriteFiles(3, 100);
  auto dataset = *InMemoryDataset::Make(Options());
  EXPECT_THAT(dataset->WaitPreloaded({}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("preload")));
  EXPECT_THAT(dataset->Preload(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("filelist")));
  dataset->SetFiles(files_);
  ASSERT_OK(dataset->Preload(2));
  EXPECT_THAT(dataset->Preload(), HasCode(StatusCode::kFailedPrecondition));
  ASSERT_OK(dataset->WaitPreloaded({}));
  EXPECT_EQ(Ids(*dataset->BeginPass({.batch_size = 10})), UpTo(300));
  EXPECT_EQ(dataset->stats().num_lines, 300u);
  EXPECT_GT(dataset->byte_size(), 300u * 8);
}

TEST_F(DatasetTest, NoFilesAreNoSamples) {
  EXPECT_EQ(Loaded(Options(3))->num_samples(), 0u);
  auto queue = *QueueDataset::Make(Options());
  queue->SetFiles({});
  EXPECT_EQ(Ids(*queue->BeginPass({.batch_size = 2})), UpTo(0));
}

TEST_F(DatasetTest, ALoadThatFailsLeavesWhatWasThere) {
  WriteFiles(1, 10);
  auto dataset = Loaded(Options());
  dataset->SetFiles({files_[0], "/no/such/file"});
  EXPECT_THAT(dataset->Load({}), HasCode(StatusCode::kNotFound));
  EXPECT_EQ(dataset->num_samples(), 10u);
}

TEST_F(DatasetTest, ALoadCanBeInterrupted) {
  WriteFiles(1, 10);
  DatasetOptions options = Options();
  options.pipe_command = "sleep 60";
  auto dataset = *InMemoryDataset::Make(options);
  dataset->SetFiles(files_);
  int asked = 0;
  EXPECT_THAT(dataset->Load(
                  [&] { return ++asked < 3 ? OkStatus() : Unavailable("^C"); }),
              StatusIs(StatusCode::kUnavailable, HasSubstr("^C")));
}

TEST_F(DatasetTest, SlotsAreShuffledEachForItself) {
  WriteFiles(1, 200);
  auto dataset = Loaded(Options());
  EXPECT_THAT(dataset->ShuffleSlots({"nothing"}, 1),
              HasCode(StatusCode::kInvalidArgument));
  ASSERT_OK(dataset->ShuffleSlots({"x"}, 1));
  Batch batch;
  auto pass = dataset->BeginPass({.batch_size = 200});
  ASSERT_TRUE(*pass->Next(batch, Soon()));
  EXPECT_EQ(batch.columns()[0].ints, UpTo(200));
  Ints firsts;
  for (size_t i = 0; i < 200; ++i) {
    const float first = batch.columns()[1].floats[2 * i];
    EXPECT_EQ(batch.columns()[1].floats[2 * i + 1], first * 0.5f);
    firsts.push_back(static_cast<int64_t>(first));
  }
  EXPECT_NE(firsts, UpTo(200));
  EXPECT_EQ(Sorted(firsts), UpTo(200));
}

TEST_F(DatasetTest, AQueueReadsInOrderWithOneThread) {
  WriteFiles(4, 3000);
  auto dataset = *QueueDataset::Make(Options());
  dataset->SetFiles(files_);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(Ids(*dataset->BeginPass({.batch_size = 50})), UpTo(12000));
  }
}

TEST_F(DatasetTest, AQueueGivesEverySampleToOneOfItsUsers) {
  WriteFiles(4, 3000);
  auto dataset = *QueueDataset::Make(Options(3));
  dataset->SetFiles(files_);
  auto pass = dataset->BeginPass({.batch_size = 7});
  std::vector<Ints> got(3);
  std::vector<std::thread> users;
  for (Ints& mine : got) {
    users.emplace_back([&] {
      Batch batch;
      while (*pass->Next(batch, Soon())) {
        mine.insert(mine.end(), batch.columns()[0].ints.begin(),
                    batch.columns()[0].ints.end());
      }
    });
  }
  for (std::thread& user : users) user.join();
  Ints all;
  for (const Ints& mine : got) all.insert(all.end(), mine.begin(), mine.end());
  EXPECT_EQ(Sorted(all), UpTo(12000));
}

TEST_F(DatasetTest, AQueueIsBounded) {
  WriteFiles(1, 10);
  DatasetOptions options = Options();
  options.pipe_command = "yes '1 5 2 1 2'";
  options.max_waiting_blocks = 2;
  auto dataset = *QueueDataset::Make(options);
  dataset->SetFiles(files_);
  auto pass = dataset->BeginPass({.batch_size = 1000});
  Batch batch;
  // The command never ends: only what is asked for is read, and the end of the
  // pass ends the command.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(*pass->Next(batch, Soon()));
}

TEST_F(DatasetTest, AQueueReportsWhatWentWrong) {
  WriteFiles(1, 10);
  auto dataset = *QueueDataset::Make(Options());
  dataset->SetFiles({files_[0], "/no/such/file"});
  auto pass = dataset->BeginPass({.batch_size = 100});
  Batch batch;
  EXPECT_THAT(pass->Next(batch, Soon()).status(),
              StatusIs(StatusCode::kNotFound, HasSubstr("/no/such/file")));
}

TEST_F(DatasetTest, WaitingForAQueueEndsAtItsDeadlineAndLosesNothing) {
  WriteFiles(1, 10);
  DatasetOptions options = Options();
  options.pipe_command = "sh -c 'head -n 3; sleep 1; cat'";
  auto dataset = *QueueDataset::Make(options);
  dataset->SetFiles(files_);
  auto pass = dataset->BeginPass({.batch_size = 10});
  Batch batch;
  const auto moment = std::chrono::milliseconds(20);
  Result<bool> more = pass->Next(batch, Deadline::After(moment));
  EXPECT_EQ(more.status().code(), StatusCode::kDeadlineExceeded);
  while (more.status().code() == StatusCode::kDeadlineExceeded) {
    more = pass->Next(batch, Deadline::After(moment));
  }
  ASSERT_OK(more.status());
  EXPECT_EQ(batch.columns()[0].ints[0], 0);
}

TEST_F(DatasetTest, AbortEndsAPass) {
  WriteFiles(1, 10);
  DatasetOptions options = Options();
  options.pipe_command = "sleep 60";
  auto dataset = *QueueDataset::Make(options);
  dataset->SetFiles(files_);
  auto pass = dataset->BeginPass({.batch_size = 10});
  testing::SleepingThreads waiters;
  waiters.Enter();
  std::thread other([&] {
    waiters.Await(1);
    pass->Abort(Unavailable("enough"));
  });
  Batch batch;
  EXPECT_THAT(pass->Next(batch, Soon()).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("enough")));
  other.join();
}

TEST(PlanDataset, RefusesWhatMakesNoSense) {
  const std::vector<Slot> slots = {{.name = "a"}};
  EXPECT_THAT(PlanDataset({}).status().message(), HasSubstr("no slots"));
  EXPECT_THAT(
      PlanDataset({.slots = slots, .num_threads = 0}).status().message(),
      HasSubstr("threads"));
  EXPECT_THAT(
      PlanDataset({.slots = slots, .pipe_command = "a | b"}).status().message(),
      HasSubstr("sh -c 'a | b'"));
}

}  // namespace
}  // namespace fleet::data
