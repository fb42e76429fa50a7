// SPDX-License-Identifier: Apache-2.0
#include "fleet/ps/gathering.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::ps {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Gathering, EveryWorkerGetsWhatAllGaveInEveryRound) {
  constexpr int kWorkers = 3;
  constexpr uint64_t kRounds = 200;
  Roster roster({.num_workers = kWorkers});
  Gathering gathering(roster);
  std::vector<std::string> wrong(kWorkers);
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    ASSERT_OK(roster.Enter(w));
    workers.emplace_back([&, w] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        const std::string tail = ":" + std::to_string(round);
        Result<std::vector<std::string>> all =
            gathering.Gather("numbers", round, w, 1, std::to_string(w) + tail,
                             Deadline::After(10s));
        if (!all.ok() || *all != std::vector<std::string>{
                                     "0" + tail, "1" + tail, "2" + tail}) {
          wrong[w] = all.ok() ? "other bytes" : all.status().ToString();
          return;
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(wrong, ElementsAre("", "", ""));
}

TEST(Gathering, KeepsNoMoreBytesThanItHasRoomFor) {
  Roster roster({.num_workers = 1});
  ASSERT_OK(roster.Enter(0));
  Gathering gathering(roster, 100);
  gathering.Restore("before", {std::string(20, 'x')});
  const auto give = [&](const std::string& name, uint64_t round, size_t size) {
    return gathering
        .Gather(name, round, 0, 1, std::string(size, 'x'), Deadline::After(10s))
        .status();
  };
  for (uint64_t round = 0; round < 10; ++round) {
    EXPECT_OK(give("a", round, 40));
  }
  EXPECT_THAT(give("b", 0, 41),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("gather b"), HasSubstr("41 bytes"),
                             HasSubstr("60 of 100"))));
  EXPECT_OK(give("b", 0, 40));
  // What one round gives up, another may have.
  EXPECT_OK(give("before", 0, 0));
  EXPECT_OK(give("c", 0, 20));
  EXPECT_FALSE(give("c", 1, 1).ok());
}

TEST(Gathering, NamesWhoIsMissing) {
  Roster roster({.num_workers = 2});
  Gathering gathering(roster);
  ASSERT_OK(roster.Enter(0));
  const Result<std::vector<std::string>> all =
      gathering.Gather("sum", 0, 0, 1, "x", Deadline::After(20ms));
  EXPECT_EQ(all.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(all.status().ToString(), HasSubstr("worker 1"));
}

TEST(Gathering, ARoundThatIsOverAnswersAgain) {
  Roster roster({.num_workers = 1});
  Gathering gathering(roster);
  ASSERT_OK(roster.Enter(0));
  const Deadline deadline = Deadline::After(10s);
  for (int again = 0; again < 2; ++again) {
    ASSERT_OK_AND_ASSIGN(std::vector<std::string> all,
                         gathering.Gather("sum", 0, 0, 1, "x", deadline));
    EXPECT_THAT(all, ElementsAre("x"));
  }
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> next,
                       gathering.Gather("sum", 1, 0, 1, "y", deadline));
  EXPECT_THAT(next, ElementsAre("y"));
}

TEST(Gathering, AWorkerThatHasStoppedIsNotWaitedFor) {
  Roster roster({.num_workers = 2});
  Gathering gathering(roster);
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  roster.Stop(0);
  ASSERT_OK_AND_ASSIGN(
      std::vector<std::string> all,
      gathering.Gather("sum", 0, 1, 1, "x", Deadline::After(10s)));
  EXPECT_THAT(all, ElementsAre("x"));
}

}  // namespace
}  // namespace fleet::ps
