// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/log_folder.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class LogFolderTest : public testing::Test {
 protected:
  std::string wanted() const { return root_ / "log"; }

  void Write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  std::string Read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::set<std::string> NamesIn(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  testing::TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
};

TEST_F(LogFolderTest, WhatAnEarlierJobLeftIsKeptApart) {
  {
    ASSERT_OK(LogFolder::Take(wanted()).status());
  }
  for (const char* text : {"first", "second"}) {
    for (const char* name : {"workerlog.0", "serverlog.1", "serverlog.1.saved",
                             "heterlog.0", "endpoints.log", "mine.txt"}) {
      Write(fs::path(wanted()) / name, text);
    }
    const auto taken = LogFolder::Take(wanted());
    ASSERT_OK(taken.status());
    EXPECT_EQ(taken->path(), wanted());
    EXPECT_THAT(NamesIn(wanted()), ElementsAre(".lock", "earlier", "mine.txt"));
  }
  std::set<std::string> kept;
  for (const auto& job :
       fs::directory_iterator(fs::path(wanted()) / "earlier")) {
    EXPECT_THAT(NamesIn(job.path()),
                ElementsAre("endpoints.log", "heterlog.0", "serverlog.1",
                            "serverlog.1.saved", "workerlog.0"));
    kept.insert(Read(job.path() / "workerlog.0"));
  }
  EXPECT_THAT(kept, ElementsAre("first", "second"));
}

TEST_F(LogFolderTest, JobsThatRunHaveOneEach) {
  {
    const auto first = LogFolder::Take(wanted());
    ASSERT_OK(first.status());
    Write(fs::path(wanted()) / "workerlog.0", "of the first");
    const auto second = LogFolder::Take(wanted());
    const auto third = LogFolder::Take(wanted());
    ASSERT_OK(second.status());
    ASSERT_OK(third.status());
    EXPECT_EQ(second->path(), wanted() + ".1");
    EXPECT_EQ(third->path(), wanted() + ".2");
    EXPECT_EQ(Read(fs::path(wanted()) / "workerlog.0"), "of the first");
  }
  EXPECT_EQ(LogFolder::Take(wanted())->path(), wanted());
}

TEST_F(LogFolderTest, AFolderThatCannotBeMadeIsNamed) {
  Write(wanted(), "a file");
  EXPECT_THAT(LogFolder::Take(wanted()).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("--log_dir: ")));
}

}  // namespace
}  // namespace fleet::launch
