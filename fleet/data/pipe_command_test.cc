// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/pipe_command.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitCommand, ReadsQuotesAsAShellDoes) {
  ASSERT_OK_AND_ASSIGN(
      auto words,
      SplitCommand(
          R"(python  "my reader.py" --sep '|' a\ b 'it'"'"'s' "a\"b\n")"));
  EXPECT_THAT(words, ElementsAre("python", "my reader.py", "--sep", "|", "a b",
                                 "it's", "a\"b\\n"));
  ASSERT_OK_AND_ASSIGN(words, SplitCommand("awk '{print $1}' '' x=1 a#b"));
  EXPECT_THAT(words, ElementsAre("awk", "{print $1}", "", "x=1", "a#b"));
}

TEST(SplitCommand, WhatNeedsAShellShowsHowToAskForOne) {
  const Status status = SplitCommand("python r.py | grep 'x y'").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr(R"('|' in `python r.py | grep 'x y'` needs a shell)"));
  EXPECT_THAT(status.message(),
              HasSubstr(R"(sh -c 'python r.py | grep '\''x y'\''')"));
  for (const char* command :
       {"cat > x", "cat < x", "echo $HOME", "a && b", "a; b", "echo `date`",
        "cat *.txt", "echo \"$HOME\"", "(a)", "# a", "~/reader", "a\nb",
        "THREADS=1 python r.py"}) {
    EXPECT_THAT(SplitCommand(command).status().message(),
                HasSubstr("write: sh -c '"))
        << command;
  }
  // The form that it shows is one that is taken.
  ASSERT_OK_AND_ASSIGN(
      auto words, SplitCommand(R"(sh -c 'python r.py | grep '\''x y'\''')"));
  EXPECT_THAT(words, ElementsAre("sh", "-c", "python r.py | grep 'x y'"));
}

TEST(SplitCommand, NoCommandAndAnOpenQuote) {
  EXPECT_THAT(SplitCommand("  ").status().message(), HasSubstr("empty"));
  EXPECT_THAT(SplitCommand("a 'b").status().message(),
              HasSubstr("does not end"));
}

class PipeProcessTest : public ::testing::Test {
 protected:
  PipeProcessTest() {
    file_ = ::testing::TempDir() + "/pipe_command_input_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(file_) << "b 2\na 1\n";
  }
  ~PipeProcessTest() override { std::remove(file_.c_str()); }

  // All that the command writes.
  Result<std::string> Output(const std::string& command) {
    ASSIGN_OR_RETURN(auto words, SplitCommand(command));
    ASSIGN_OR_RETURN(auto process, PipeProcess::Start(words, file_));
    std::string all;
    char bytes[5];
    while (true) {
      ASSIGN_OR_RETURN(const size_t count, process->Read(bytes, stop_));
      if (count == 0) return all;
      all.append(bytes, count);
    }
  }

  std::string file_;
  StopSignal stop_;
};

TEST_F(PipeProcessTest, GetsTheFileAndIsRead) {
  ASSERT_OK_AND_ASSIGN(const std::string text, Output("sort"));
  EXPECT_EQ(text, "a 1\nb 2\n");
  ASSERT_OK_AND_ASSIGN(const std::string piped,
                       Output("sh -c 'sort | head -n 1'"));
  EXPECT_EQ(piped, "a 1\n");
}

TEST_F(PipeProcessTest, MuchOutput) {
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       Output("sh -c 'head -c 300000 /dev/zero'"));
  EXPECT_EQ(text.size(), 300000u);
}

TEST_F(PipeProcessTest, AFailingCommandShowsItsStatusAndWhatItSaid) {
  const Status status =
      Output("sh -c 'echo out; echo went wrong >&2; exit 3'").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("ended with exit status 3"));
  EXPECT_THAT(status.message(), HasSubstr("went wrong"));
}

TEST_F(PipeProcessTest, ACommandThatDiesShowsItsSignal) {
  EXPECT_THAT(Output("sh -c 'kill -9 $$'").status().message(),
              HasSubstr("was killed by signal 9 (KILL)"));
}

TEST_F(PipeProcessTest, AMissingProgramOrFile) {
  EXPECT_THAT(Output("no-such-program-anywhere").status().message(),
              HasSubstr("cannot start `no-such-program-anywhere`"));
  EXPECT_EQ(PipeProcess::Start({"cat"}, file_ + ".not").status().code(),
            StatusCode::kNotFound);
}

TEST_F(PipeProcessTest, ACommandThatDoesNotReadItsInputMayEndWell) {
  ASSERT_OK_AND_ASSIGN(const std::string text, Output("true"));
  EXPECT_EQ(text, "");
}

TEST_F(PipeProcessTest, AChildThatHoldsStandardErrorDoesNotDelayTheEnd) {
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       Output("sh -c 'sleep 30 >/dev/null & echo $!'"));
  EXPECT_EQ(kill(static_cast<pid_t>(std::stol(text)), SIGKILL), 0)
      << "the end came after that of the child";
}

TEST_F(PipeProcessTest, AnotherThreadEndsTheWait) {
  testing::SleepingThreads waiters;
  waiters.Enter();
  std::thread other([&] {
    waiters.Await(1);
    stop_.Raise(Unavailable("enough"));
  });
  EXPECT_EQ(Output("sleep 60").status().message(), "enough");
  other.join();
}

}  // namespace
}  // namespace fleet::data
