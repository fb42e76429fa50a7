// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/log_file.h"

#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/bytes.h"
#include "fleet/base/status_matchers.h"
#include "fleet/testing/deadlines.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

// Bytes before each record.
constexpr size_t kHead = 24;

class Log : public testing::Test {
 protected:
  std::unique_ptr<LogFile> Open() {
    return LogFile::Open({.folder = folder_, .segment_byte_size = 4096})
        .value();
  }
  static Status Append(LogFile& log, std::string_view text) {
    ASSIGN_OR_RETURN(LogFile::Room room, log.Reserve(text.size()));
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    return log.Append(std::move(room), {&part, 1});
  }
  std::vector<std::string> Read(uint64_t first = 0) {
    const LogRecords records = LogRecords::Read(folder_, first).value();
    std::vector<std::string> texts;
    for (const auto& record : records.all()) texts.emplace_back(TextOf(record));
    return texts;
  }
  // Changes one byte of a file.
  void Damage(const Path& path, size_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int old = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 1));
  }

  testing::TemporaryFolder temporary_;
  const Path folder_ = temporary_.path() / "log";
};

TEST_F(Log, WhatIsAppendedIsRead) {
  EXPECT_THAT(Read(), IsEmpty());
  {
    const auto log = Open();
    ASSERT_OK(Append(*log, "one"));
    ASSERT_OK(Append(*log, ""));
    ASSERT_OK(Append(*log, std::string(20, '3')));
    ASSERT_OK(log->Sync());
  }
  EXPECT_THAT(Read(), ElementsAre("one", "", std::string(20, '3')));
}

TEST_F(Log, ARecordMayHavePartsAndBeSmallerThanItsRoom) {
  const auto log = Open();
  ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(100));
  const std::string_view a = "ab";
  const std::string_view b = "cde";
  const std::array parts = {std::as_bytes(std::span(a)),
                            std::span<const std::byte>(),
                            std::as_bytes(std::span(b))};
  ASSERT_OK(log->Append(std::move(room), parts));
  ASSERT_OK(Append(*log, "next"));
  ASSERT_OK_AND_ASSIGN(LogFile::Room small, log->Reserve(4));
  EXPECT_THAT(log->Append(std::move(small), parts),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("5 bytes")));
  EXPECT_THAT(Read(), ElementsAre("abcde", "next"));
}

TEST_F(Log, WhatRecordsDoNotUseOfTheirRoomsIsThereForOthers) {
  const auto log = Open();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(log->Reserve(3000));
    ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(3000));
    const std::string_view text = "abc";
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    ASSERT_OK(log->Append(std::move(room), {&part, 1}));
  }
  EXPECT_EQ(log->byte_size(), 20 * (kHead + 8));
  EXPECT_EQ(log->segment(), 1u);
  EXPECT_THAT(Read(), testing::SizeIs(20));
}

TEST_F(Log, SegmentsFollowOneAnother) {
  std::vector<std::string> texts;
  {
    const auto log = Open();
    for (int i = 0; i < 100; ++i) {
      texts.push_back(Concat(i, std::string(1000, 'x')));
      ASSERT_OK(Append(*log, texts.back()));
    }
    // Larger than a segment.
    texts.emplace_back(10'000, 'y');
    ASSERT_OK(Append(*log, texts.back()));
    ASSERT_OK(log->Sync());
  }
  EXPECT_EQ(Read(), texts);
  // Opened again, it goes on behind them.
  {
    const auto log = Open();
    texts.emplace_back("after");
    ASSERT_OK(Append(*log, "after"));
  }
  EXPECT_EQ(Read(), texts);
}

TEST_F(Log, WhatAKilledProcessAppendedIsThere) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto log = Open();
    for (int i = 0; i < 50; ++i) {
      if (!Append(*log, Concat("record ", i)).ok()) _exit(1);
    }
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::vector<std::string> texts = Read();
  ASSERT_EQ(texts.size(), 50u);
  EXPECT_EQ(texts.back(), "record 49");
}

TEST_F(Log, ARecordThatIsNotWholeIsTheEnd) {
  {
    const auto log = Open();
    ASSERT_OK(Append(*log, "first"));
    ASSERT_OK(Append(*log, "second"));
  }
  Damage(folder_ / "log.1", kHead + 8 + kHead + 3);
  EXPECT_THAT(Read(), ElementsAre("first"));
}

// A host that fails may have written the pages of a file in any order.
TEST_F(Log, WhatDidNotReachTheDiskIsTheEndWithWhatFollows) {
  {
    const auto log = Open();
    ASSERT_OK(Append(*log, "synced"));
    ASSERT_OK(log->Sync());
    for (const char* text : {"lost", "kept", "kept, too"}) {
      ASSERT_OK(Append(*log, text));
    }
  }
  Damage(folder_ / "log.1", kHead + 8 + kHead + 3);
  EXPECT_THAT(Read(), ElementsAre("synced"));
  {
    const auto log = Open();
    ASSERT_OK(Append(*log, "after"));
  }
  EXPECT_THAT(Read(), ElementsAre("synced", "after"));
}

TEST_F(Log, ASegmentThatIsMissingIsAnError) {
  {
    const auto log = Open();
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(Append(*log, "text"));
      ASSERT_OK(log->Rotate(testing::Soon()));
    }
  }
  EXPECT_EQ(Read(1).size(), 3u);
  EXPECT_THAT(LogRecords::Read(folder_, 5),
              StatusIs(StatusCode::kDataLoss, HasSubstr("log.5 is missing")));
  ASSERT_OK(Remove(folder_ / "log.2"));
  EXPECT_THAT(LogRecords::Read(folder_, 1),
              StatusIs(StatusCode::kDataLoss, HasSubstr("log.2 is missing")));
  EXPECT_EQ(Read(3).size(), 1u);
  ASSERT_OK(Remove(folder_ / "log.1"));
  EXPECT_THAT(LogRecords::Read(folder_, 1),
              StatusIs(StatusCode::kDataLoss, HasSubstr("log.1 is missing")));
}

TEST_F(Log, ADamagedRecordBeforeOthersIsAnError) {
  {
    const auto log = Open();
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(Append(*log, "text"));
      ASSERT_OK(log->Sync());
    }
  }
  // Every byte of the first record and of its head, but for the padding.
  for (size_t at = 0; at < kHead + 4; ++at) {
    Damage(folder_ / "log.1", at);
    EXPECT_THAT(LogRecords::Read(folder_, 0),
                StatusIs(StatusCode::kDataLoss, HasSubstr("log.1")))
        << at;
    Damage(folder_ / "log.1", at);
  }
  EXPECT_THAT(Read(), ElementsAre("text", "text", "text"));
}

TEST_F(Log, RemovedSegmentsAreWrittenOver) {
  const auto log = Open();
  ASSERT_OK(Append(*log, "old, and longer than what comes"));
  ASSERT_OK_AND_ASSIGN(const uint64_t second, log->Rotate(testing::Soon()));
  ASSERT_OK(Append(*log, "kept"));
  ASSERT_OK(log->RemoveBefore(second));
  EXPECT_THAT(Read(), ElementsAre("kept"));
  ASSERT_OK_AND_ASSIGN(const uint64_t third, log->Rotate(testing::Soon()));
  // It has the file of the first, and nothing of its records.
  EXPECT_EQ(ListFolder(folder_).value().size(), 2u);
  EXPECT_THAT(Read(third), IsEmpty());
  ASSERT_OK(Append(*log, "new"));
  EXPECT_THAT(Read(third), ElementsAre("new"));
  EXPECT_THAT(Read(), ElementsAre("kept", "new"));
}

TEST_F(Log, TakesNoFileFromTheDiskOnceItHasBeenAsLongAsItGets) {
  constexpr int kSegments = 9;
  const auto log = Open();
  const auto fill = [&] {
    for (int i = 1; i < kSegments; ++i) {
      ASSERT_OK(log->Rotate(testing::Soon()));
    }
    ASSERT_OK_AND_ASSIGN(const uint64_t last, log->Rotate(testing::Soon()));
    ASSERT_OK(log->RemoveBefore(last));
  };
  const auto files = [&] {
    std::set<ino_t> all;
    const std::vector<std::string> names = ListFolder(folder_).value();
    for (const std::string& name : names) {
      struct stat info = {};
      EXPECT_EQ(::stat((folder_ / name).c_str(), &info), 0);
      all.insert(info.st_ino);
    }
    return all;
  };
  fill();
  const std::set<ino_t> first = files();
  EXPECT_EQ(first.size(), kSegments + 1u);
  for (int i = 0; i < 3; ++i) fill();
  EXPECT_EQ(files(), first);
}

TEST_F(Log, RotateGoesOnInThePresentSegmentWhereThereIsNoRoom) {
  const auto log = Open();
  ASSERT_OK(Append(*log, "old"));
  ASSERT_OK_AND_ASSIGN(const uint64_t second, log->Rotate(testing::Soon()));
  ASSERT_OK(Append(*log, "kept"));
  ASSERT_OK(MakeFolders(folder_ / "log.3"));
  ASSERT_OK_AND_ASSIGN(const uint64_t same, log->Rotate(testing::Soon()));
  EXPECT_EQ(same, second);
  ASSERT_OK(log->RemoveBefore(same));
  ASSERT_OK(Append(*log, "new"));
  ASSERT_OK(Remove(folder_ / "log.3"));
  EXPECT_THAT(Read(), ElementsAre("kept", "new"));
}

TEST_F(Log, RotateWaitsForRoomsOfOlderSegments) {
  const auto log = Open();
  ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(8));
  EXPECT_THAT(log->Rotate(Deadline::After(std::chrono::milliseconds(1))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1 record")));
  std::jthread later([&] {
    const std::string_view text = "late";
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    EXPECT_OK(log->Append(std::move(room), {&part, 1}));
  });
  ASSERT_OK_AND_ASSIGN(const uint64_t segment, log->Rotate(testing::Soon()));
  EXPECT_THAT(Read(segment), IsEmpty());
  EXPECT_THAT(Read(), ElementsAre("late"));
}

TEST_F(Log, SettleWaitsForRoomsThatWereTakenBefore) {
  const auto log = Open();
  ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(8));
  EXPECT_THAT(log->Settle(Deadline::After(std::chrono::milliseconds(1))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1 record")));
  ASSERT_OK_AND_ASSIGN(LogFile::Room next, log->Reserve(8));
  EXPECT_THAT(log->Settle(Deadline::After(std::chrono::milliseconds(1))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1 record")));
  std::jthread later([&] {
    const std::string_view text = "late";
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    EXPECT_OK(log->Append(std::move(room), {&part, 1}));
    next = {};
  });
  EXPECT_OK(log->Settle(testing::Soon()));
  EXPECT_THAT(Read(), ElementsAre("late"));
  later.join();
  // One that is taken meanwhile is not waited for.
  ASSERT_OK_AND_ASSIGN(next, log->Reserve(8));
  room = std::move(next);
  room = {};
  EXPECT_OK(log->Settle(testing::Soon()));
}

TEST_F(Log, AFullDiskShowsBeforeAnythingIsDone) {
  const auto log = Open();
  ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(3000));
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit = {2000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THAT(log->Reserve(3000).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("log.2")));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  // The room that was taken before is there, and so is the log.
  const std::string text(3000, 'a');
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  EXPECT_OK(log->Append(std::move(room), {&part, 1}));
  EXPECT_OK(Append(*log, std::string(3000, 'b')));
  EXPECT_EQ(Read().size(), 2u);
}

// Room that is held for later records is nobody else's, and follows the log
// into its next segment.
TEST_F(Log, HeldRoomIsThereWhenTheDiskIsFull) {
  const auto log = Open();
  const uint64_t of_record = LogFile::SizeOfRecord(1000);
  ASSERT_OK_AND_ASSIGN(LogFile::Hold hold, log->HoldRoom(2 * of_record));
  ASSERT_OK(MakeFolders(folder_ / "log.2"));
  std::vector<LogFile::Room> rooms;
  const auto fill = [&] {
    while (true) {
      Result<LogFile::Room> room = log->Reserve(500);
      if (!room.ok()) return room.status();
      rooms.push_back(std::move(room).value());
    }
  };
  EXPECT_THAT(fill().ToString(), HasSubstr("log.2"));
  EXPECT_EQ(rooms.size(), (4096 - 2 * of_record) / LogFile::SizeOfRecord(500));
  EXPECT_THAT(log->HoldRoom(2 * of_record).status().ToString(),
              HasSubstr("log.2"));
  EXPECT_OK(log->Reserve(1000, &hold).status());
  rooms.clear();
  std::filesystem::remove(folder_ / "log.2");
  EXPECT_EQ(log->Rotate(Deadline::After(std::chrono::seconds(60))).value(), 2u);
  ASSERT_OK(MakeFolders(folder_ / "log.3"));
  EXPECT_THAT(fill().ToString(), HasSubstr("log.3"));
  ASSERT_OK_AND_ASSIGN(LogFile::Room last, log->Reserve(1000, &hold));
  // It has given all.
  EXPECT_FALSE(log->Reserve(1000, &hold).ok());
  std::filesystem::remove(folder_ / "log.3");
  // One that is given back is everybody's, and one may be larger than a
  // segment.
  ASSERT_OK_AND_ASSIGN(hold, log->HoldRoom(10'000));
  ASSERT_OK(MakeFolders(folder_ / "log.4"));
  hold = {};
  ASSERT_OK_AND_ASSIGN(LogFile::Room room, log->Reserve(9'000));
  EXPECT_EQ(room.segment(), 3u);
}

TEST_F(Log, ThreadsAppendAndSyncTogether) {
  const auto log = Open();
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(Concat("record ", i));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = t; i < 400; i += 4) {
          EXPECT_OK(Append(*log, texts[static_cast<size_t>(i)]));
          if (i % 40 == t) {
            EXPECT_OK(log->Sync());
          }
        }
      });
    }
  }
  EXPECT_THAT(Read(), UnorderedElementsAreArray(texts));
}

}  // namespace
}  // namespace fleet::base
