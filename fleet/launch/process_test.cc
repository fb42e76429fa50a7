// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/process.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProcessTest : public ::testing::Test {
 protected:
  // An executable file with this content.
  std::string Write(const std::string& content) {
    const std::filesystem::path path = folder_.path() / "program";
    std::ofstream(path) << content;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  // Starts it and waits for its end: exit code, and what it wrote.
  std::pair<int, std::string> Run(const std::string& program) {
    const std::string log = (folder_.path() / "log").string();
    const base::Descriptor fd(
        open(log.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
    const auto started = StartProcess({program, {program}}, {}, fd.get(), -1);
    EXPECT_OK(started);
    int status = 0;
    EXPECT_EQ(waitpid(*started, &status, 0), *started);
    return {WEXITSTATUS(status), base::ReadFile(log).value()};
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ProcessTest, AScriptNamesItsInterpreter) {
  const auto [code, said] = Run(Write("#!/bin/sh\necho hello\n"));
  EXPECT_EQ(code, 0);
  EXPECT_EQ(said, "hello\n");
}

// As programs for another machine, or a file that was cut off, are.
TEST_F(ProcessTest, WhatIsNoProgramIsNotReadByAShell) {
  const auto [code, said] = Run(Write("echo hello\n"));
  EXPECT_EQ(code, 127);
  EXPECT_THAT(said, AllOf(HasSubstr("fleetrun: cannot start "),
                          HasSubstr("program: Exec format error"),
                          HasSubstr("first line begins with #!")));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("hello\n")));
}

}  // namespace
}  // namespace fleet::launch
