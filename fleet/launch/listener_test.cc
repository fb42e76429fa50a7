// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/listener.h"

#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::launch {
namespace {

using cluster::LauncherWord;
using testing::ElementsAre;
using testing::IsEmpty;

MATCHER_P2(Says, process, word, "") {
  return arg.process == process && arg.word == word;
}

// A process that says `words` and ends.
void RunProcess(const std::string& place,
                const std::vector<LauncherWord>& words) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("FLEET_LAUNCHER", place.c_str(), 1);
    for (LauncherWord word : words) cluster::TellLauncher(word);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

TEST(WordListener, HearsWhatAProcessSaidBeforeItEnded) {
  auto listener = WordListener::Open();
  ASSERT_OK(listener.status());
  EXPECT_THAT(listener->Take(), IsEmpty());
  const std::string place =
      ToString(cluster::LauncherPlace{listener->address(), "workerlog.1"});
  RunProcess(place, {LauncherWord::kMet, LauncherWord::kOthersFailed,
                     LauncherWord::kFailed});
  RunProcess(
      ToString(cluster::LauncherPlace{listener->address(), "serverlog.0"}),
      {LauncherWord::kFailed, LauncherWord::kOthersFailed});
  // The first of the reasons of a failure counts.
  EXPECT_THAT(listener->Take(),
              ElementsAre(Says("workerlog.1", LauncherWord::kMet),
                          Says("workerlog.1", LauncherWord::kOthersFailed),
                          Says("serverlog.0", LauncherWord::kFailed)));
}

TEST(WordListener, NobodyIsNeededToHear) {
  RunProcess("fleetrun-that-is-gone workerlog.0", {LauncherWord::kMet});
  RunProcess("nonsense", {LauncherWord::kMet});
  RunProcess("", {LauncherWord::kMet});
}

TEST(LauncherPlace, IsAnAddressAndAName) {
  const auto place = cluster::ParseLauncherPlace("fleetrun-1 workerlog.2");
  ASSERT_OK(place.status());
  EXPECT_EQ(place->address, "fleetrun-1");
  EXPECT_EQ(place->process, "workerlog.2");
  for (const std::string& wrong :
       {std::string("name"), std::string(" name"), std::string("name "),
        std::string(200, 'a') + " name"}) {
    EXPECT_THAT(cluster::ParseLauncherPlace(wrong),
                HasCode(StatusCode::kInvalidArgument))
        << wrong;
  }
  EXPECT_THAT(cluster::DecodeWord("x"), HasCode(StatusCode::kDataLoss));
  EXPECT_THAT(cluster::DecodeWord(""), HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::launch
