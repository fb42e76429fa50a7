// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::launch {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;
using testing::SizeIs;

TEST(LaunchText, TableLooksAsInTheDocuments) {
  EXPECT_EQ(
      VariableTable({{"PADDLE_CURRENT_ENDPOINT", "127.0.0.1:59664"},
                     {"PADDLE_TRAINERS_NUM", "2"}}),
      R"(    +=======================================================================================+
    |                        Distributed Envs                      Value                    |
    +---------------------------------------------------------------------------------------+
    |                 PADDLE_CURRENT_ENDPOINT                 127.0.0.1:59664               |
    |                     PADDLE_TRAINERS_NUM                        2                      |
    +=======================================================================================+
)");
}

TEST(LaunchText, TableKeepsTheEndOfLongValues) {
  const std::string table = VariableTable(
      {{"LIST", "10.0.0.1:6070,10.0.0.1:6071,10.0.0.2:6070,10.0.0.2:6071"}});
  EXPECT_THAT(table,
              testing::HasSubstr(
                  "LIST  ... 10.0.0.1:6071,10.0.0.2:6070,10.0.0.2:6071|"));
}

TEST(LaunchText, LogLinesHaveTheFormOfPaddlesLogger) {
  EXPECT_THAT(LogLine("INFO", "fleet/launch/launch.cc", 7, "started"),
              MatchesRegex("INFO [0-9]+-[0-9]+-[0-9]+ [0-9:]+,[0-9]+ "
                           "launch\\.cc:7\\] started\n"));
}

TEST(LaunchText, EndpointsLogHasOneALine) {
  EXPECT_EQ(EndpointsLog({{"127.0.0.1", 1}, {"127.0.0.1", 2}}),
            "PADDLE_TRAINER_ENDPOINTS: \n127.0.0.1:1\n127.0.0.1:2\n");
}

std::string Numbered(int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i) text += std::to_string(i) + "\n";
  return text;
}

TEST(LastLines, AreTwentyWhereNothingSpeaksForMore) {
  EXPECT_THAT(LastLines("one\ntwo"), ElementsAre("one", "two"));
  EXPECT_THAT(LastLines(""), SizeIs(0));
  const auto lines = LastLines(Numbered(1, 200));
  EXPECT_THAT(lines, SizeIs(20));
  EXPECT_EQ(lines.front(), "181");
}

TEST(LastLines, BeginWithTheTraceback) {
  const std::string traceback = "Traceback (most recent call last):\n";
  auto lines = LastLines(Numbered(1, 9) + traceback + Numbered(10, 50));
  EXPECT_EQ(lines.front() + "\n", traceback);
  EXPECT_THAT(lines, SizeIs(42));

  // One that was raised while another was handled shows both.
  lines = LastLines(traceback + "old\n" + Numbered(1, 9) + traceback +
                    Numbered(10, 30) + "ValueError: a\n\nDuring handling of " +
                    "the above exception, another exception occurred:\n\n" +
                    traceback + Numbered(31, 50));
  EXPECT_EQ(lines.front() + "\n", traceback);
  EXPECT_EQ(lines[1], "10");
}

TEST(LastLines, StopAtAHundred) {
  EXPECT_THAT(
      LastLines("Traceback (most recent call last):\n" + Numbered(1, 300)),
      SizeIs(20));
}

TEST(LaunchText, ExitsAreDescribedAsShellsDo) {
  // As waitpid packs them on Linux.
  EXPECT_EQ(DescribeExit(3 << 8), "exit code 3");
  EXPECT_EQ(ExitCode(3 << 8), 3);
  EXPECT_EQ(DescribeExit(9), "SIGKILL (signal 9)");
  EXPECT_EQ(ExitCode(9), 137);
}

}  // namespace
}  // namespace fleet::launch
