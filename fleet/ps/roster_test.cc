// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/roster.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/deadlines.h"

namespace fleet::ps {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::Soon;

Deadline Now() { return Deadline::After(0s); }

TEST(Roster, LetsAllThroughWhenTheLastHasCome) {
  Roster roster({.num_workers = 3});
  for (int i = 0; i < 3; ++i) ASSERT_OK(roster.Enter(i));
  for (uint64_t round = 0; round < 20; ++round) {
    std::atomic<int> completed = 0;
    std::vector<std::thread> workers;
    for (int i = 0; i < 3; ++i) {
      workers.emplace_back([&, i] {
        EXPECT_OK(roster.Barrier("b", round, i, 1, Soon(), [&](int n) {
          EXPECT_EQ(n, 3);
          ++completed;
          return OkStatus();
        }));
        EXPECT_EQ(completed, 1);
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
}

TEST(Roster, NamesWhoIsMissingWhenTheDeadlinePasses) {
  Roster roster({.num_workers = 4});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  ASSERT_OK(roster.Enter(3));
  roster.Stop(3);
  EXPECT_THAT(
      roster.Barrier("init", 0, 0, 1, Deadline::After(10ms), {}),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("barrier init"), HasSubstr("worker 1"),
                     HasSubstr("worker 2 (not seen yet)"),
                     Not(HasSubstr("worker 3")), Not(HasSubstr("worker 0")))));
}

TEST(Roster, AnswersARoundThatIsOver) {
  Roster roster({.num_workers = 1});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Barrier("b", 0, 0, 1, Soon(), {}));
  EXPECT_OK(roster.Barrier("b", 0, 0, 1, Now(), {}));
  EXPECT_THAT(roster.Barrier("b", 2, 0, 1, Now(), {}),
              HasCode(StatusCode::kFailedPrecondition));
}

TEST(Roster, LetsAWorkerThatWasStartedAgainJoinTheOthersRound) {
  Roster roster({.num_workers = 2});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  auto both = [&](uint64_t round, uint64_t other_round, uint64_t incarnation) {
    std::thread other([&] {
      EXPECT_OK(roster.Barrier("b", other_round, 1, incarnation, Soon(), {}));
    });
    EXPECT_OK(roster.Barrier("b", round, 0, 1, Soon(), {}));
    other.join();
  };
  for (uint64_t round = 0; round < 5; ++round) both(round, round, 7);
  // It does not pass through the rounds that are over.
  EXPECT_THAT(roster.Barrier("b", 0, 1, 8, Now(), {}),
              HasCode(StatusCode::kDeadlineExceeded));
  both(5, 0, 8);
  both(6, 1, 8);
}

TEST(Roster, GivesIncarnationsInAscendingOrder) {
  Roster first({.num_workers = 1, .epoch = 1});
  const uint64_t a = first.NewIncarnation();
  const uint64_t b = first.NewIncarnation();
  EXPECT_LT(a, b);
  // A server that was started again gives higher ones, and none that somebody
  // has already.
  Roster second({.num_workers = 1, .epoch = 2});
  EXPECT_LT(b, second.NewIncarnation());
  Roster same({.num_workers = 1, .epoch = 1});
  ASSERT_OK(same.Enter(0, b));
  EXPECT_LT(b, same.NewIncarnation());
}

TEST(Roster, RefusesAnOlderIncarnationByName) {
  Roster roster({.num_workers = 2, .grace = 20ms});
  ASSERT_OK(roster.Enter(0, 1));
  ASSERT_OK(roster.Enter(1, 7));
  std::thread waiter([&] {
    EXPECT_THAT(roster.Barrier("b", 0, 1, 7, Soon(), {}),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("worker 1 was started again (incarnation "
                                   "8); this is incarnation 7")));
  });
  ASSERT_OK(roster.Enter(1, 8));
  waiter.join();
  const auto refused = HasCode(StatusCode::kFailedPrecondition);
  EXPECT_THAT(roster.Enter(1, 7), refused);
  EXPECT_THAT(roster.Barrier("b", 0, 1, 7, Soon(), {}), refused);
  EXPECT_THAT(roster.BeginTurn({1, 7, 1}, Soon()), refused);
  EXPECT_THAT(roster.BeginCut({1, 7, 1}, Soon()), refused);
  // The place of the old one at the barrier is not the new one's, and what the
  // old one does harms it no more.
  roster.Stop(1, 7);
  roster.Leave(1, 7);
  EXPECT_THAT(roster.Barrier("b", 0, 0, 1, Deadline::After(60ms), {}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("worker 1"), Not(HasSubstr("lost")))));
}

TEST(Roster, DoesNotWaitForAWorkerThatStopped) {
  Roster roster({.num_workers = 2});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  std::thread waiter(
      [&] { EXPECT_OK(roster.Barrier("b", 0, 0, 1, Soon(), {})); });
  roster.Stop(1);
  waiter.join();
}

TEST(Roster, FailsABarrierOfALostWorkerAndNamesIt) {
  Roster roster({.num_workers = 2, .grace = 20ms});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  roster.Leave(1);
  EXPECT_THAT(roster.Barrier("b", 0, 0, 1, Soon(), {}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_THAT(roster.WaitUntilStopped(Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  // It is back.
  ASSERT_OK(roster.Enter(1));
  std::thread other(
      [&] { EXPECT_OK(roster.Barrier("b", 0, 1, 1, Soon(), {})); });
  EXPECT_OK(roster.Barrier("b", 0, 0, 1, Soon(), {}));
  other.join();
}

TEST(Roster, GoesOnWithoutALostWorkerWhenAsked) {
  Roster roster({.num_workers = 2, .grace = 20ms, .go_on_without_lost = true});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  roster.Leave(1);
  int num_workers = 0;
  EXPECT_OK(roster.Barrier("b", 0, 0, 1, Soon(), [&](int n) {
    num_workers = n;
    return OkStatus();
  }));
  EXPECT_EQ(num_workers, 1);
  roster.Stop(0);
  EXPECT_OK(roster.WaitUntilStopped(Soon()));
}

TEST(Roster, ToldAllWhatCompletionSaid) {
  Roster roster({.num_workers = 1});
  ASSERT_OK(roster.Enter(0));
  EXPECT_THAT(
      roster.Barrier("b", 0, 0, 1, Soon(), [](int) { return DataLoss("no"); }),
      HasCode(StatusCode::kDataLoss));
}

TEST(Roster, EndsWhenAllStopped) {
  Roster roster({.num_workers = 2});
  EXPECT_THAT(roster.WaitUntilStopped(Now()),
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("worker 0 (not seen yet), worker 1")));
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  roster.Stop(0);
  std::thread waiter([&] { EXPECT_OK(roster.WaitUntilStopped(Soon())); });
  roster.Stop(1);
  roster.Leave(1);
  waiter.join();
}

TEST(Roster, WakesWaitersWhenAborted) {
  Roster roster({.num_workers = 2});
  ASSERT_OK(roster.Enter(0));
  std::thread waiter([&] {
    EXPECT_THAT(roster.Barrier("b", 0, 0, 1, Soon(), {}),
                HasCode(StatusCode::kInternal));
  });
  roster.Abort(Internal("over"));
  waiter.join();
}

TEST(Roster, KnowsWhoIsNoneOfTheJobs) {
  Roster roster({.num_workers = 2});
  EXPECT_THAT(roster.Enter(2), HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(roster.Enter(-1), HasCode(StatusCode::kInvalidArgument));
}

Roster::Caller CallOf(int worker, uint64_t number, uint64_t incarnation = 1) {
  return {worker, incarnation, number};
}

TEST(RosterCut, WaitsUntilAllTurnsHaveEndedAndNewOnesWaitForIt) {
  Roster roster({.num_workers = 3});
  for (int i = 0; i < 3; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
  ASSERT_OK(roster.BeginTurn(CallOf(1, 1), Soon()));
  EXPECT_FALSE(roster.cut_wanted());
  std::atomic<bool> cut = false;
  std::thread saver([&] {
    EXPECT_OK(roster.BeginCut(CallOf(2, 1), Soon()));
    cut = true;
  });
  const Deadline patience = Soon();
  while (!roster.cut_wanted() && !patience.expired()) std::this_thread::yield();
  // Those who have their turn end it; who asks for one waits.
  EXPECT_THAT(roster.BeginTurn(CallOf(2, 1), Now()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("save")));
  roster.EndTurn(CallOf(0, 1));
  EXPECT_FALSE(cut);
  roster.EndTurn(CallOf(1, 1));
  saver.join();
  EXPECT_FALSE(roster.cut_wanted());
  EXPECT_THAT(roster.BeginTurn(CallOf(0, 2), Now()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 2")));
  roster.EndCut(CallOf(2, 1));
  EXPECT_OK(roster.BeginTurn(CallOf(0, 3), Soon()));
}

TEST(RosterCut, NamesWhoIsInTheMiddleAndWhoseCutIsOpen) {
  Roster roster({.num_workers = 3});
  for (int i = 0; i < 3; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(1, 1), Soon()));
  EXPECT_THAT(roster.BeginCut(CallOf(0, 1), Now()),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("worker 1"), Not(HasSubstr("worker 2")),
                             HasSubstr("middle of a step"))));
  // It was given up, and turns go on.
  EXPECT_FALSE(roster.cut_wanted());
  ASSERT_OK(roster.BeginTurn(CallOf(2, 1), Soon()));
  roster.EndTurn(CallOf(1, 1));
  roster.EndTurn(CallOf(2, 1));
  ASSERT_OK(roster.BeginCut(CallOf(0, 2), Soon()));
  EXPECT_THAT(
      roster.BeginCut(CallOf(1, 1), Now()),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("another save"), HasSubstr("worker 0"))));
}

TEST(RosterCut, TheServersOwnTurnIsNeverInACut) {
  Roster roster({.num_workers = 2});
  for (int i = 0; i < 2; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(1, 1), Soon()));
  ASSERT_TRUE(roster.TryBeginOwnTurn());  // beside that of a worker
  roster.EndTurn(CallOf(1, 1));
  EXPECT_THAT(roster.BeginCut(CallOf(0, 1), Now()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the server")));
  std::thread cutting(
      [&] { EXPECT_OK(roster.BeginCut(CallOf(0, 2), Soon())); });
  const Deadline deadline = Soon();
  while (!roster.cut_wanted() && !deadline.expired()) std::this_thread::yield();
  roster.EndOwnTurn();
  cutting.join();
  EXPECT_FALSE(roster.TryBeginOwnTurn());
  roster.EndCut(CallOf(0, 2));
  EXPECT_TRUE(roster.TryBeginOwnTurn());
}

TEST(RosterCut, NoOwnTurnBeginsWhileACutIsWanted) {
  Roster roster({.num_workers = 2});
  for (int i = 0; i < 2; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(1, 1), Soon()));
  std::thread cutting(
      [&] { EXPECT_OK(roster.BeginCut(CallOf(0, 1), Soon())); });
  const Deadline deadline = Soon();
  while (!roster.cut_wanted() && !deadline.expired()) std::this_thread::yield();
  EXPECT_FALSE(roster.TryBeginOwnTurn());
  roster.EndTurn(CallOf(1, 1));
  cutting.join();
}

TEST(RosterCut, ACallThatComesAgainDoesNoHarm) {
  Roster roster({.num_workers = 2});
  for (int i = 0; i < 2; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
  ASSERT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
  roster.EndTurn(CallOf(0, 1));
  roster.EndTurn(CallOf(0, 1));
  // One that had waited behind a lost connection begins nothing.
  ASSERT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
  ASSERT_OK(roster.BeginCut(CallOf(1, 1), Soon()));
  ASSERT_OK(roster.BeginCut(CallOf(1, 1), Soon()));
  roster.EndCut(CallOf(1, 1));
  EXPECT_THAT(roster.BeginCut(CallOf(1, 1), Soon()),
              HasCode(StatusCode::kFailedPrecondition));
  EXPECT_OK(roster.BeginTurn(CallOf(0, 2), Soon()));
}

TEST(RosterCut, WhoWaitsForACutHasItsTurnBeforeTheNext) {
  Roster roster({.num_workers = 2});
  for (int i = 0; i < 2; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginCut(CallOf(1, 1), Soon()));
  std::atomic<bool> asks = false;
  std::thread sender([&] {
    asks = true;
    EXPECT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
    roster.EndTurn(CallOf(0, 1));
  });
  while (!asks) std::this_thread::yield();
  // However often it saves, the sender comes to its end.
  for (uint64_t number = 2; number < 50; ++number) {
    roster.EndCut(CallOf(1, number - 1));
    ASSERT_OK(roster.BeginCut(CallOf(1, number), Soon()));
  }
  roster.EndCut(CallOf(1, 49));
  sender.join();
}

TEST(RosterCut, DoesNotWaitForWorkersThatAreGone) {
  Roster roster({.num_workers = 4, .grace = 20ms});
  for (int i = 0; i < 4; ++i) ASSERT_OK(roster.Enter(i, 1));
  for (int i = 0; i < 3; ++i) ASSERT_OK(roster.BeginTurn(CallOf(i, 1), Soon()));
  roster.Stop(0, 1);
  roster.Leave(1, 1);             // lost after the grace
  ASSERT_OK(roster.Enter(2, 2));  // started again
  ASSERT_OK(roster.BeginCut(CallOf(3, 1), Soon()));
  roster.Leave(3, 1);
  // The turn of a new life, while the cut of a lost worker is open.
  EXPECT_OK(roster.BeginTurn(CallOf(2, 1, 2), Soon()));
}

TEST(RosterCut, AnAbortWakesWhoWaits) {
  Roster roster({.num_workers = 2});
  for (int i = 0; i < 2; ++i) ASSERT_OK(roster.Enter(i, 1));
  ASSERT_OK(roster.BeginTurn(CallOf(0, 1), Soon()));
  std::thread saver([&] {
    EXPECT_THAT(roster.BeginCut(CallOf(1, 1), Soon()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("the end")));
  });
  roster.Abort(Unavailable("the end"));
  saver.join();
}

}  // namespace
}  // namespace fleet::ps
