// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/file_system.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::base {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileSystem : public testing::Test {
 protected:
  std::string Read(const Path& path) { return ReadFile(path).value(); }
  std::vector<std::string> List() { return ListFolder(folder_).value(); }

  testing::TemporaryFolder temporary_;
  const Path folder_ = temporary_.path();
};

// While it lives, a write beyond `bytes` fails as on a full disk (EFBIG).
class FileSizeLimit final {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_ = {};
  void (*old_handler_)(int) = nullptr;
};

TEST_F(FileSystem, WhatIsWrittenIsRead) {
  const std::string bytes("a\0b\n\xff", 5);
  ASSERT_OK(AtomicWriteFile(folder_ / "a", bytes));
  EXPECT_EQ(Read(folder_ / "a"), bytes);
  ASSERT_OK(AtomicWriteFile(folder_ / "empty", ""));
  EXPECT_EQ(Read(folder_ / "empty"), "");
  EXPECT_EQ(FileSize(folder_ / "a").value(), 5u);
  EXPECT_THAT(List(), ElementsAre("a", "empty"));
}

TEST_F(FileSystem, ReadsFilesWhoseSizeIsUnknown) {
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile("/proc/self/status"));
  EXPECT_THAT(text, HasSubstr("Threads:"));
}

TEST_F(FileSystem, AtomicFileShowsNothingBeforeCommit) {
  const Path path = folder_ / "model";
  ASSERT_OK(AtomicWriteFile(path, "old"));
  ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  ASSERT_OK(file.Append("new "));
  ASSERT_OK(file.Append("bytes"));
  EXPECT_EQ(file.byte_size(), 9u);
  EXPECT_EQ(Read(path), "old");
  ASSERT_OK(file.Commit());
  EXPECT_EQ(Read(path), "new bytes");
  EXPECT_THAT(List(), ElementsAre("model"));
}

TEST_F(FileSystem, AtomicFileLeavesNothingWithoutCommit) {
  const Path path = folder_ / "model";
  {
    ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(path));
    ASSERT_OK(file.Append("half"));
    EXPECT_EQ(List().size(), 1u);
    AtomicFile moved = std::move(file);
    ASSERT_OK(moved.Append("more"));
  }
  EXPECT_THAT(List(), ElementsAre());
}

TEST_F(FileSystem, AtomicFileRefusesUseAfterCommit) {
  ASSERT_OK_AND_ASSIGN(AtomicFile file, AtomicFile::Create(folder_ / "a"));
  ASSERT_OK(file.Commit());
  EXPECT_THAT(file.Commit(), HasCode(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file.Append("x"), HasCode(StatusCode::kFailedPrecondition));
}

TEST_F(FileSystem, FullDiskKeepsTheOldFileAndRemovesTheNew) {
  const Path path = folder_ / "model";
  ASSERT_OK(AtomicWriteFile(path, "old and whole"));
  const std::string large(1 << 20, 'x');
  std::optional<Result<AtomicFile>> file;
  Status write, again, commit;
  std::vector<std::string> names;
  {
    FileSizeLimit limit(100000);
    write = AtomicWriteFile(path, large);
    file.emplace(AtomicFile::Create(path));
    again = file->value().Append(large);
    commit = file->value().Commit();
    names = List();
  }
  EXPECT_THAT(write, StatusIs(StatusCode::kUnavailable, HasSubstr("model")));
  EXPECT_EQ(write.error_number(), EFBIG);
  EXPECT_EQ(again, write);
  EXPECT_EQ(commit, write);
  EXPECT_THAT(names, ElementsAre("model"));
  EXPECT_EQ(Read(path), "old and whole");
}

TEST_F(FileSystem, KeepsPermissionsAndFollowsLinks) {
  const Path path = folder_ / "model";
  ASSERT_OK(AtomicWriteFile(path, "old"));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_EQ(::symlink("model", (folder_ / "link").c_str()), 0);
  ASSERT_OK(AtomicWriteFile(folder_ / "link", "new"));
  EXPECT_EQ(Read(path), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FileSystem, WritersAtTheSameTimeEachWriteAWholeFile) {
  const Path path = folder_ / "model";
  const std::string a(100000, 'a'), b(100000, 'b');
  auto write = [&](const std::string& bytes) {
    for (int i = 0; i < 10; ++i) EXPECT_OK(AtomicWriteFile(path, bytes));
  };
  std::thread first(write, a), second(write, b);
  for (int i = 0; i < 20; ++i) {
    const Result<std::string> seen = ReadFile(path);
    if (seen.ok()) {
      EXPECT_THAT(*seen, AnyOf(a, b));
    }
  }
  first.join();
  second.join();
  EXPECT_THAT(Read(path), AnyOf(a, b));
  EXPECT_THAT(List(), ElementsAre("model"));
}

TEST_F(FileSystem, WrongPathsAreNamed) {
  EXPECT_THAT(ReadFile(folder_ / "absent"),
              StatusIs(StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(ReadFile(folder_), HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(AtomicWriteFile(folder_, "x"),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(AtomicWriteFile(folder_ / "", "x"),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(AtomicWriteFile("/dev/null", "x"),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(AtomicWriteFile(folder_ / "no" / "file", "x"),
              StatusIs(StatusCode::kNotFound, HasSubstr("no/file")));
  EXPECT_THAT(ListFolder(folder_ / "absent"),
              StatusIs(StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(FileSize(folder_ / "absent"), HasCode(StatusCode::kNotFound));
}

TEST_F(FileSystem, FoldersAreMadeAndRemoved) {
  const Path deep = folder_ / "a" / "b" / "c";
  EXPECT_FALSE(Exists(deep));
  ASSERT_OK(MakeFolders(deep));
  ASSERT_OK(MakeFolders(deep));
  EXPECT_TRUE(Exists(deep));
  ASSERT_OK(AtomicWriteFile(deep / "file", "x"));
  EXPECT_THAT(MakeFolders(deep / "file"),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(Remove(deep), HasCode(StatusCode::kFailedPrecondition));
  ASSERT_OK(Remove(deep / "file"));
  EXPECT_THAT(Remove(deep / "file"), HasCode(StatusCode::kNotFound));
  ASSERT_OK(Remove(deep));
}

}  // namespace
}  // namespace fleet::base
