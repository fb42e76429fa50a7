// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/file_reader.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/data/batch.h"

namespace fleet::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Slot> kSlots = {{.name = "x", .ragged = true}};

class FileReaderTest : public ::testing::Test {
 protected:
  ~FileReaderTest() override {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path =
        ::testing::TempDir() + "/file_reader_" +
        ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
        name;
    std::ofstream(path, std::ios::binary) << text;
    paths_.push_back(path);
    return path;
  }

  // Reads one file; the values of all samples are in values_.
  Status Read(const std::string& path, const ReadOptions& options = {}) {
    values_.clear();
    stats_ = {};
    const MultiSlotParser parser(kSlots);
    return ReadFile(
        path, 0, parser, options, stop_,
        [&](std::unique_ptr<SampleBlock> block) {
          std::vector<SampleView> samples;
          for (size_t i = 0; i < block->num_samples(); ++i) {
            samples.push_back(block->sample(i));
          }
          Batch batch;
          batch.Fill(kSlots, samples);
          const auto& ints = batch.columns()[0].ints;
          values_.insert(values_.end(), ints.begin(), ints.end());
          ++num_blocks_;
          return OkStatus();
        },
        stats_);
  }

  StopSignal stop_;
  ReadStats stats_;
  std::vector<int64_t> values_;
  int num_blocks_ = 0;
  std::vector<std::string> paths_;
};

TEST_F(FileReaderTest, ReadsAllLinesAlsoTheLastWithoutAnEnd) {
  ASSERT_OK(Read(Write("a", "1 5\r\n\n2 6 7\n1 8")));
  EXPECT_THAT(values_, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(stats_.num_lines, 4u);
  EXPECT_EQ(stats_.num_samples, 3u);
}

TEST_F(FileReaderTest, AnEmptyFileHasNoSamples) {
  ASSERT_OK(Read(Write("a", "")));
  EXPECT_TRUE(values_.empty());
  EXPECT_EQ(num_blocks_, 0);
}

TEST_F(FileReaderTest, LinesThatAreLongerThanTheBuffer) {
  std::string text;
  std::vector<int64_t> wanted;
  for (int line = 0; line < 5; ++line) {
    const int count = line % 2 == 0 ? 300'000 : 3;
    text += std::to_string(count);
    for (int i = 0; i < count; ++i) {
      text += " " + std::to_string(i * 7 + line);
      wanted.push_back(i * 7 + line);
    }
    text += "\n";
  }
  const std::string path = Write("a", text);
  ASSERT_OK(Read(path));
  EXPECT_EQ(values_, wanted);
  // Read by way of a command.
  ASSERT_OK(Read(path, {.command = {"cat"}}));
  EXPECT_EQ(values_, wanted);
}

TEST_F(FileReaderTest, ALineBeyondTheLimitIsAnError) {
  const std::string path =
      Write("a", "1 1\n" + std::string(3'000'000, '1') + "\n");
  const Status status =
      Read(path, {.skip_bad_lines = true, .max_line_bytes = 1'000'000});
  EXPECT_EQ(status.message(), path + ":2: a line of more than 1000000 bytes");
}

TEST_F(FileReaderTest, AWrongLineIsAnErrorWithFileAndLine) {
  const std::string path = Write("a", "1 1\n\n1 2\n1 x\n1 3\n");
  EXPECT_THAT(Read(path).message(),
              HasSubstr(path + ":4: slot 'x' (1 of 1): expected an integer"));
}

TEST_F(FileReaderTest, WrongLinesAreLeftOutAndCountedWhenAsked) {
  const std::string path = Write("a", "1 1\nx\n1 2\n2 1\n1 3");
  ASSERT_OK(Read(path, {.skip_bad_lines = true}));
  EXPECT_THAT(values_, ElementsAre(1, 2, 3));
  EXPECT_EQ(stats_.num_skipped, 2u);
  EXPECT_EQ(stats_.num_samples, 3u);
  EXPECT_THAT(stats_.first_skipped, HasSubstr(path + ":2: slot 'x'"));
}

TEST_F(FileReaderTest, AMissingFileAndAFolder) {
  EXPECT_THAT(Read("/no/such/file"),
              StatusIs(StatusCode::kNotFound, HasSubstr("/no/such/file")));
  EXPECT_THAT(Read("/no/such/file", {.command = {"cat"}}),
              StatusIs(StatusCode::kNotFound, HasSubstr("/no/such/file")));
  EXPECT_THAT(Read("/tmp").message(), HasSubstr("a dataset reads files"));
}

TEST_F(FileReaderTest, ACommandThatFailsIsAnErrorWithTheFile) {
  const std::string path = Write("a", "1 1\n");
  const Status status =
      Read(path, {.command = {"sh", "-c", "echo 1 2; exit 7"}});
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_THAT(status.message(), HasSubstr("exit status 7"));
}

TEST_F(FileReaderTest, ThreadsReadEveryFileOnce) {
  std::vector<std::string> files;
  for (int i = 0; i < 7; ++i) {
    std::string text;
    for (int line = 0; line < 100; ++line) text += "1 5\n";
    files.push_back(Write(std::to_string(i), text));
  }
  std::atomic<int> num_done = 0;
  base::Mutex mutex;
  std::map<uint32_t, size_t> counts;
  FileReaders readers({.files = files,
                       .parser = std::make_shared<MultiSlotParser>(kSlots),
                       .options = {.block_bytes = 64},
                       .num_threads = 3,
                       .take =
                           [&](uint32_t file, std::unique_ptr<SampleBlock> b) {
                             base::MutexLock lock(mutex);
                             counts[file] += b->num_samples();
                             return OkStatus();
                           },
                       .done = [&](const Status&) { ++num_done; }});
  ASSERT_OK(readers.Wait(Deadline::After(std::chrono::seconds(60))));
  EXPECT_EQ(num_done, 1);
  EXPECT_EQ(counts.size(), 7u);
  for (const auto& [file, count] : counts) EXPECT_EQ(count, 100u) << file;
  EXPECT_EQ(readers.stats().num_samples, 700u);
}

TEST_F(FileReaderTest, TheEndIsToldOnceAlsoWhenThreadsEndTogether) {
  const std::vector<std::string> files(8, Write("empty", ""));
  const auto parser = std::make_shared<MultiSlotParser>(kSlots);
  for (int i = 0; i < 500; ++i) {
    std::atomic<int> num_done = 0;
    FileReaders readers({.files = files,
                         .parser = parser,
                         .num_threads = 8,
                         .take = {},
                         .done = [&](const Status&) { ++num_done; }});
    ASSERT_OK(readers.Wait(Deadline::After(std::chrono::seconds(60))));
    ASSERT_EQ(num_done, 1) << i;
  }
}

TEST_F(FileReaderTest, TheFirstFailureEndsAllThreads) {
  std::vector<std::string> files(20, "/dev/zero");
  files[0] = "/no/such/file";
  FileReaders readers({.files = files,
                       .parser = std::make_shared<MultiSlotParser>(kSlots),
                       .options = {.command = {"sleep", "60"}},
                       .num_threads = 2,
                       .take = {},
                       .done = {}});
  EXPECT_THAT(readers.Wait(Deadline::After(std::chrono::seconds(30))),
              HasCode(StatusCode::kNotFound));
}

}  // namespace
}  // namespace fleet::data
