// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/roster.h"

#include <atomic>
#include <set>
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
        EXPECT_OK(
            roster.Barrier("b", round, i, 1, Soon(), [&](const auto& who) {
              EXPECT_EQ(who.workers.size(), 3u);
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
  constexpr uint64_t kNext = Roster::kNextRound;
  Roster roster({.num_workers = 2});
  ASSERT_OK(roster.Enter(0));
  ASSERT_OK(roster.Enter(1));
  auto both = [&](uint64_t round, uint64_t other_round, uint64_t incarnation) {
    std::thread other([&] {
      const Result<Roster::Ended> ended =
          roster.Barrier("b", other_round, 1, incarnation, Soon(), {});
      ASSERT_OK(ended);
      EXPECT_EQ(ended->round, round);
      EXPECT_TRUE(ended->took_part);
    });
    EXPECT_OK(roster.Barrier("b", round, 0, 1, Soon(), {}));
    other.join();
  };
  both(0, kNext, 7);
  for (uint64_t round = 1; round < 5; ++round) both(round, round, 7);
  // It does not pass through the rounds that are over.
  EXPECT_THAT(roster.Barrier("b", kNext, 1, 8, Now(), {}),
              HasCode(StatusCode::kDeadlineExceeded));
  both(5, kNext, 8);
  both(6, 6, 8);
}

// It died after it had answered one worker's round 10 and not the other's.
TEST(Roster, AServerThatWasStartedAgainHasTheRoundsOfItsWorkers) {
  for (const bool late_first : {false, true}) {
    Roster roster({.num_workers = 2});
    ASSERT_OK(roster.Enter(0, 1));
    ASSERT_OK(roster.Enter(1, 2));
    auto late = [&] {
      const Result<Roster::Ended> over =
          roster.Barrier("step", 10, 1, 2, Soon(), {});
      ASSERT_OK(over);
      EXPECT_EQ(over->round, 10u);
      // What it brought for round 10 is in no later one.
      EXPECT_FALSE(over->took_part);
      for (uint64_t round = 11; round < 14; ++round) {
        const Result<Roster::Ended> ended =
            roster.Barrier("step", round, 1, 2, Soon(), {});
        ASSERT_OK(ended);
        EXPECT_EQ(ended->round, round);
        EXPECT_TRUE(ended->took_part);
      }
    };
    std::thread other;
    if (late_first) other = std::thread(late);
    uint64_t next = 11;
    std::thread ahead([&] {
      for (; next < 14; ++next) {
        EXPECT_OK(roster.Barrier("step", next, 0, 1, Soon(), {}));
      }
    });
    if (!late_first) other = std::thread(late);
    other.join();
    ahead.join();
  }
}

// One of two servers had ended a step when it came, and the other had not.
TEST(Roster, AWorkerThatIsBackTakesPartFromOneRoundOnEverywhere) {
  Roster servers[2] = {Roster({.num_workers = 2}), Roster({.num_workers = 2})};
  for (Roster& server : servers) {
    ASSERT_OK(server.Enter(0, 1));
    ASSERT_OK(server.Enter(1, 2));
    std::thread other(
        [&] { EXPECT_OK(server.Barrier("step", 0, 1, 2, Soon(), {})); });
    EXPECT_OK(server.Barrier("step", 0, 0, 1, Soon(), {}));
    other.join();
    EXPECT_FALSE(server.IsBack(1));
    ASSERT_OK(server.Enter(1, 3));
    EXPECT_TRUE(server.IsBack(1));
    EXPECT_FALSE(server.IsBack(0));
  }
  const uint64_t from = servers[0].Join("step", 1, Roster::kNextRound).value();
  EXPECT_EQ(from, 2u);
  EXPECT_EQ(servers[1].Join("step", 1, from).value(), from);
  for (Roster& server : servers) {
    // Without it.
    ASSERT_OK(server.Barrier("step", 1, 0, 1, Soon(), {}));
    EXPECT_THAT(server.Barrier("step", 2, 0, 1, Now(), {}),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 1")));
    std::thread other(
        [&] { EXPECT_OK(server.Barrier("step", 2, 1, 3, Soon(), {})); });
    EXPECT_OK(server.Barrier("step", 2, 0, 1, Soon(), {}));
    other.join();
  }
}

// The others have stopped when it comes to its first step.
TEST(Roster, AWorkerThatIsBackDoesNotWaitForARoundThatNobodyEnds) {
  Roster roster({.num_workers = 2});
  ASSERT_OK(roster.Enter(0, 1));
  ASSERT_OK(roster.Enter(1, 2));
  roster.Stop(0, 1);
  ASSERT_OK(roster.Enter(1, 3));
  EXPECT_EQ(roster.Join("step", 1, Roster::kNextRound).value(), 1u);
  ASSERT_OK_AND_ASSIGN(const Roster::Ended ended,
                       roster.Barrier("step", 1, 1, 3, Soon(), {}));
  EXPECT_EQ(ended.round, 1u);
  EXPECT_TRUE(ended.took_part);
}

TEST(Roster, TheViewAscendsWithServersThatAreStartedAgain) {
  Roster roster({.num_workers = 2});
  const uint64_t begin = roster.view();
  roster.KnowServer(1, 0);
  roster.KnowServer(1, 1);
  EXPECT_EQ(roster.view(), begin);
  roster.KnowServer(1, 2);
  roster.KnowServer(1, 2);
  EXPECT_EQ(roster.view(), begin + 1);
  roster.KnowServer(2, 2);
  roster.KnowServer(1, 4);
  roster.KnowServer(1, 2);
  EXPECT_EQ(roster.view(), begin + 3);
}

// A server may be killed after it has written a good-bye down, and before it
// answers. Who has no answer says it again.
TEST(Roster, WaitsForGoodbyesThatMayNotHaveBeenAnswered) {
  Roster roster({.num_workers = 1, .epoch = 2, .grace = 1h});
  roster.KnowStopped(0, 77);
  EXPECT_THAT(roster.WaitUntilStopped(Deadline::After(10ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  ASSERT_OK(roster.Enter(0, 77));
  roster.Stop(0, 77);
  EXPECT_OK(roster.WaitUntilStopped(Soon()));
}

TEST(Roster, WaitsForThemForSomeTimeOnly) {
  Roster roster({.num_workers = 1, .epoch = 2, .grace = 10ms});
  roster.KnowStopped(0, 77);
  EXPECT_OK(roster.WaitUntilStopped(Soon()));
}

// A server that was started again does not wait for those that had said
// good-bye to it before.
// The worker gave up waiting for the answer, and said good-bye elsewhere.
TEST(Roster, AHelloThatComesLateIsNotABeginning) {
  Roster roster({.num_workers = 1, .grace = 30s});
  ASSERT_OK(roster.Enter(0, 77));
  roster.Stop(0, 77);
  ASSERT_OK(roster.Enter(0, 77));
  roster.Leave(0, 77);
  roster.Leave(0, 77);
  EXPECT_OK(roster.WaitUntilStopped(Deadline::After(10ms)));
  // Another incarnation is one.
  ASSERT_OK(roster.Enter(0, 78));
  EXPECT_THAT(roster.WaitUntilStopped(Deadline::After(10ms)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 0")));
}

TEST(Roster, DoesNotWaitForWorkersThatStoppedInAnEarlierLife) {
  Roster roster({.num_workers = 2, .epoch = 2, .grace = 10s});
  roster.KnowStopped(1, 77);
  ASSERT_OK(roster.Enter(0, 1));
  EXPECT_OK(roster.Barrier("step", 0, 0, 1, Soon(), {}).status());
  // Unless it comes again, or had come again before.
  ASSERT_OK(roster.Enter(1, 78));
  roster.KnowStopped(1, 77);
  EXPECT_THAT(
      roster.Barrier("step", 1, 0, 1, Deadline::After(10ms), {}).status(),
      StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 1")));
  roster.Stop(0, 1);
  roster.Stop(1, 78);
  EXPECT_OK(roster.WaitUntilStopped(Soon()));
}

// What a worker sent for a round that ended with it is used up: who asks again,
// also a server's successor, must not take it for one who came too late.
TEST(Roster, KnowsWhoTookPartWhenItAsksAgain) {
  Roster roster({.num_workers = 1, .grace = 10s});
  ASSERT_OK(roster.Enter(0, 1));
  Roster::Rounds after;
  const auto note = [&](const Roster::Came& came) {
    after = came.after;
    return OkStatus();
  };
  ASSERT_OK(roster.Barrier("step", 0, 0, 1, Soon(), note).status());
  EXPECT_TRUE(roster.Barrier("step", 0, 0, 1, Soon(), note)->took_part);
  Roster next({.num_workers = 1, .epoch = 2, .grace = 10s});
  next.SetRounds("step", after);
  ASSERT_OK(next.Enter(0, 1));
  EXPECT_TRUE(next.Barrier("step", 0, 0, 1, Soon(), {})->took_part);
  // One that has no log hears of rounds by others.
  Roster told({.num_workers = 2, .epoch = 2, .grace = 10s});
  ASSERT_OK(told.Enter(0, 1));
  ASSERT_OK(told.Enter(1, 2));
  EXPECT_THAT(told.Barrier("step", 1, 0, 1, Deadline::After(10ms), {}).status(),
              HasCode(StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(told.Barrier("step", 0, 1, 2, Soon(), {})->took_part);
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
  std::set<int> workers;
  EXPECT_OK(roster.Barrier("b", 0, 0, 1, Soon(), [&](const auto& who) {
    workers = who.workers;
    return OkStatus();
  }));
  EXPECT_EQ(workers, std::set<int>{0});
  roster.Stop(0);
  EXPECT_OK(roster.WaitUntilStopped(Soon()));
}

TEST(Roster, AWorkerOfAnEarlierLifeThatDoesNotComeBackIsLost) {
  for (const bool go_on : {false, true}) {
    Roster roster(
        {.num_workers = 2, .return_grace = 20ms, .go_on_without_lost = go_on});
    roster.Know(0, 7);
    roster.Know(1, 8);
    ASSERT_OK(roster.Enter(0, 7));
    const Status outcome = roster.Barrier("b", 0, 0, 7, Soon(), {}).status();
    if (go_on) {
      EXPECT_OK(outcome);
      roster.Stop(0, 7);
      EXPECT_OK(roster.WaitUntilStopped(Soon()));
      continue;
    }
    EXPECT_THAT(outcome, StatusIs(StatusCode::kUnavailable,
                                  HasSubstr("worker 1 is lost")));
    EXPECT_THAT(roster.WaitUntilStopped(Soon()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
    // It may come all the same.
    ASSERT_OK(roster.Enter(1, 8));
    std::thread other(
        [&] { EXPECT_OK(roster.Barrier("b", 0, 1, 8, Soon(), {})); });
    EXPECT_OK(roster.Barrier("b", 0, 0, 7, Soon(), {}));
    other.join();
  }
}

// Where all workers begin anew, one of them may take long.
TEST(Roster, NobodyIsLostWhereNobodyOfAnEarlierLifeIsBack) {
  Roster roster({.num_workers = 2, .return_grace = 1ms});
  roster.Know(0, 7);
  roster.Know(1, 8);
  ASSERT_OK(roster.Enter(0, 17));
  EXPECT_THAT(roster.Barrier("b", 0, 0, 17, Deadline::After(50ms), {}),
              HasCode(StatusCode::kDeadlineExceeded));
}

TEST(Roster, ToldAllWhatCompletionSaid) {
  Roster roster({.num_workers = 1});
  ASSERT_OK(roster.Enter(0));
  EXPECT_THAT(roster.Barrier("b", 0, 0, 1, Soon(),
                             [](const auto&) { return DataLoss("no"); }),
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

// A server that was started again knows of no turns until it is told.
TEST(RosterCut, WaitsForWorkersOfAnEarlierLifeAndTheirTurns) {
  Roster roster({.num_workers = 2});
  roster.Know(0, 7);
  roster.Know(1, 8);
  ASSERT_OK(roster.Enter(0, 7));
  EXPECT_THAT(
      roster.BeginCut({0, 7, 1}, Deadline::After(10ms)),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("worker 1"), HasSubstr("has not come back"))));
  // Nobody waits for a cut that cannot begin.
  ASSERT_OK(roster.BeginTurn({0, 7, 1}, Now()));
  roster.EndTurn({0, 7, 1});
  ASSERT_OK(roster.Enter(1, 8, 5));
  EXPECT_THAT(roster.BeginCut({0, 7, 2}, Deadline::After(10ms)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("worker 1"), HasSubstr("a step"))));
  roster.EndTurn({1, 8, 5});
  ASSERT_OK(roster.BeginCut({0, 7, 3}, Soon()));
  // What a later hello tells is asked for again, and waits.
  ASSERT_OK(roster.Enter(1, 8, 6));
  EXPECT_THAT(roster.BeginTurn({1, 8, 6}, Deadline::After(10ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  roster.EndCut({0, 7, 3});
  EXPECT_OK(roster.BeginTurn({1, 8, 6}, Soon()));
}

TEST(RosterCut, DoesNotWaitForeverForWorkersOfAnEarlierLife) {
  Roster roster({.num_workers = 3, .return_grace = 20ms});
  for (int i = 0; i < 3; ++i) roster.Know(i, 7 + static_cast<uint64_t>(i));
  roster.KnowStopped(2, 9);
  ASSERT_OK(roster.Enter(0, 7));
  EXPECT_OK(roster.BeginCut({0, 7, 1}, Soon()));
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

TEST(Roster, DoesNotRememberAnyNumberOfNames) {
  Roster roster({.num_workers = 1});
  ASSERT_OK(roster.Enter(0));
  auto meet = [&](const std::string& name) {
    return roster.Barrier(name, Roster::kNextRound, 0, 0, Soon(), {}).status();
  };
  EXPECT_THAT(meet(std::string(Roster::kMaxNameByteSize + 1, 'x')),
              HasCode(StatusCode::kInvalidArgument));
  for (size_t i = 0; i < Roster::kMaxNames; ++i) {
    ASSERT_OK(meet(std::to_string(i)));
  }
  EXPECT_THAT(meet("one more"), HasCode(StatusCode::kFailedPrecondition));
  EXPECT_THAT(roster.Join("one more", 0, Roster::kNextRound),
              HasCode(StatusCode::kFailedPrecondition));
  EXPECT_OK(meet("17"));
}

}  // namespace
}  // namespace fleet::ps
