// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/log.h"

#include <algorithm>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Log : public testing::Test {
 protected:
  void TearDown() override { SetMinLogSeverity(LogSeverity::INFO); }
};

TEST_F(Log, WritesTimeSeverityPlaceAndText) {
  testing::internal::CaptureStderr();
  FLEET_LOG(WARNING) << "rank " << 3 << " {} %s";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("....-..-.. ..:..:..\\.... [0-9]+ W "
                           "log_test.cc:[0-9]+\\] rank 3 \\{\\} %s\n"));
}

TEST_F(Log, BelowTheMinimumNothingIsWrittenNorEvaluated) {
  SetMinLogSeverity(LogSeverity::ERROR);
  int evaluated = 0;
  testing::internal::CaptureStderr();
  FLEET_LOG(DEBUG) << ++evaluated;
  FLEET_LOG(WARNING) << ++evaluated;
  FLEET_LOG(ERROR) << "seen";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("seen"));
  EXPECT_EQ(evaluated, 0);
}

TEST_F(Log, IsOneStatementInAnIf) {
  testing::internal::CaptureStderr();
  bool other = false;
  if (other)
    FLEET_LOG(INFO) << "never";
  else
    other = true;
  EXPECT_TRUE(other);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Log, NamesOfSeverities) {
  EXPECT_EQ(LogSeverityFromName("DEBUG"), LogSeverity::DEBUG);
  EXPECT_EQ(LogSeverityFromName("WARNING"), LogSeverity::WARNING);
  EXPECT_EQ(LogSeverityFromName("ERROR"), LogSeverity::ERROR);
  EXPECT_EQ(LogSeverityFromName("INFO"), LogSeverity::INFO);
  EXPECT_EQ(LogSeverityFromName("loud"), LogSeverity::INFO);
}

TEST_F(Log, LinesOfThreadsStayWhole) {
  testing::internal::CaptureStderr();
  auto write = [] {
    for (int i = 0; i < 100; ++i) FLEET_LOG(INFO) << std::string(50, 'x');
  };
  std::thread first(write), second(write);
  first.join();
  second.join();
  const std::string text = testing::internal::GetCapturedStderr();
  std::istringstream lines(text);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    EXPECT_TRUE(line.ends_with("] " + std::string(50, 'x'))) << line;
  }
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace fleet::base
