// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/world.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/comm/communicator.h"
#include "fleet/testing/sleeping_threads.h"
#include "fleet/testing/world_fixtures.h"

namespace fleet::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TEST(World, PicksTheBackendByWhereTheRanksAre) {
  FakeJob alone(1);
  alone.Run({}, [](World& world, auto&) {
    EXPECT_EQ(world.all().backend(), "in-process");
    EXPECT_OK(world.all().Barrier(Soon()));
  });
  FakeJob one_host(3);
  one_host.Run({}, [](World& world, auto&) {
    EXPECT_EQ(world.all().backend(), "shared memory");
    EXPECT_EQ(world.all().name(), "world");
    int32_t number = world.all().rank();
    ASSERT_OK(Sum(world.all(), number));
    EXPECT_EQ(number, 3);
  });
  FakeJob forced(3);
  forced.Run({.backend = "tcp"}, [](World& world, auto&) {
    EXPECT_EQ(world.all().backend(), "tcp");
    int32_t number = world.all().rank();
    ASSERT_OK(Sum(world.all(), number));
    EXPECT_EQ(number, 3);
  });
}

TEST(World, HostsShareMemoryInsideAndTalkOverTcp) {
  FakeJob job(4);
  job.RunEach(
      [](int rank) {
        return WorldOptions{.host_key = base::Concat("host ", rank / 2)};
      },
      [](World& world, FakeJob::Member& member) {
        EXPECT_EQ(world.all().backend(), "shared memory and tcp");
        int32_t number = member.rank();
        ASSERT_OK(Sum(world.all(), number));
        EXPECT_EQ(number, 6);
        // Groups follow from where their own ranks are.
        ASSERT_OK_AND_ASSIGN(auto inside, world.NewGroup({2, 3}, Soon()));
        if (inside != nullptr) {
          EXPECT_EQ(inside->backend(), "shared memory");
        }
        ASSERT_OK_AND_ASSIGN(auto across, world.NewGroup({0, 2}, Soon()));
        if (across != nullptr) {
          number = 1;
          ASSERT_OK(Sum(*across, number));
          EXPECT_EQ(number, 2);
        }
      });
}

TEST(World, RefusesABackendThatIsNotThere) {
  FakeJob job(1);
  FakeJob::Member member(job, 0);
  EXPECT_THAT(World::Connect(member, {.backend = "pigeon"}, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("pigeon")));
}

TEST(World, SharedMemoryDoesNotReachOtherHosts) {
  FakeJob job(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      FakeJob::Member member(job, i);
      EXPECT_THAT(
          World::Connect(
              member, {.backend = "shm", .host_key = base::Concat("host ", i)},
              Soon()),
          StatusIs(StatusCode::kFailedPrecondition, HasSubstr("2 hosts")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(World, GroupsAreOfTheirOwnRanksInTheirOwnOrder) {
  FakeJob job(4);
  job.Run({}, [](World& world, FakeJob::Member& member) {
    const int rank = member.rank();
    ASSERT_OK_AND_ASSIGN(auto odd, world.NewGroup({3, 1}, Soon()));
    ASSERT_OK_AND_ASSIGN(auto alone, world.NewGroup({2}, Soon()));
    EXPECT_EQ(odd != nullptr, rank % 2 == 1);
    EXPECT_EQ(alone != nullptr, rank == 2);
    if (odd != nullptr) {
      EXPECT_EQ(odd->rank(), rank == 3 ? 0 : 1);
      EXPECT_EQ(odd->name(), "group 1");
      int32_t number = rank;
      ASSERT_OK(Sum(*odd, number));
      EXPECT_EQ(number, 4);
    }
    if (alone != nullptr) {
      EXPECT_OK(alone->Barrier(Soon()));
    }
    int32_t number = rank;
    ASSERT_OK(Sum(world.all(), number));
    EXPECT_EQ(number, 6);
  });
}

TEST(World, AGroupThatMakesNoSenseIsRefused) {
  FakeJob job(2);
  job.Run({}, [](World& world, auto&) {
    const auto invalid = HasCode(StatusCode::kInvalidArgument);
    EXPECT_THAT(world.NewGroup({0, 2}, Soon()), invalid);
    EXPECT_THAT(world.NewGroup({0, 0}, Soon()), invalid);
    EXPECT_THAT(world.NewGroup({}, Soon()), invalid);
    EXPECT_OK(world.NewGroup({0, 1}, Soon()));
  });
}

TEST(World, RanksThatNameDifferentGroupsAreToldBoth) {
  FakeJob job(2);
  std::atomic<int> refused = 0;
  job.Run({}, [&](World& world, FakeJob::Member& member) {
    const Status status =
        world
            .NewGroup(member.rank() == 0 ? std::vector{0, 1} : std::vector{1},
                      Soon())
            .status();
    if (status.ok()) return;  // the first to come, if it needs nobody else
    ++refused;
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("group 1"),
                                       HasSubstr("[0, 1]"), HasSubstr("[1]"))));
  });
  EXPECT_GE(refused, 1);
}

// Whatever carries the bytes.
class WorldNews : public testing::TestWithParam<const char*> {
 protected:
  WorldOptions Options() const { return {.backend = GetParam()}; }
};

TEST_P(WorldNews, ADeathEndsTheGroupsOfTheDeadWithWhoItWas) {
  FakeJob job(3);
  testing::SleepingThreads waiters;
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    auto made = world.NewGroup({0, 1}, Soon());
    EXPECT_OK(made);
    job.Together();
    ASSERT_TRUE(made.ok());
    const std::unique_ptr<Communicator> pair = *std::move(made);
    const auto died =
        StatusIs(StatusCode::kUnavailable,
                 HasSubstr("rank 2 at 10.0.0.9, process 77, died"));
    if (member.rank() == 2) {
      waiters.Await(2);
      job.Died(2);
    } else {
      waiters.Enter();
    }
    EXPECT_THAT(world.all().Barrier(Soon()), died);
    EXPECT_THAT(world.NewGroup({1, 2}, Soon()),
                member.rank() == 0 ? HasCode(StatusCode::kOk)
                                   : HasCode(StatusCode::kUnavailable));
    if (pair != nullptr) {
      EXPECT_OK(pair->Barrier(Soon()));
    }
  });
}

TEST_P(WorldNews, AFailureOfOneRankIsThatOfItsGroupOnly) {
  FakeJob job(3);
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    auto made = world.NewGroup({0, 2}, Soon());
    EXPECT_OK(made);
    job.Together();  // all have it before it fails
    ASSERT_TRUE(made.ok());
    const std::unique_ptr<Communicator> group = *std::move(made);
    if (member.rank() == 0) {
      EXPECT_THAT(group->Barrier(Deadline::After(50ms)),
                  StatusIs(StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("group 1"), HasSubstr("rank 1"))));
    }
    if (member.rank() == 2) {
      while (group->status().ok()) std::this_thread::sleep_for(1ms);
      EXPECT_THAT(group->Barrier(Soon()),
                  StatusIs(StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("rank 0"), HasSubstr("barrier"))));
    }
    EXPECT_OK(world.all().Barrier(Soon()));
  });
}

TEST_P(WorldNews, ARankThatLeftDisturbsNoCallThatItHasDone) {
  FakeJob job(3);
  testing::SleepingThreads waiters;
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    // One after the other, so that the last finds all others waiting.
    waiters.Await(member.rank());
    waiters.Enter();
    int32_t number = 1;
    EXPECT_OK(Sum(world.all(), number));
    EXPECT_EQ(number, 3);
    member.Leave(Soon());
  });
}

TEST_P(WorldNews, ACommunicatorMayOutliveTheWorld) {
  FakeJob job(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      FakeJob::Member member(job, i);
      ASSERT_OK_AND_ASSIGN(auto world,
                           World::Connect(member, Options(), Soon()));
      ASSERT_OK_AND_ASSIGN(auto group, world->NewGroup({0, 1}, Soon()));
      world.reset();
      int32_t number = 1;
      EXPECT_OK(Sum(*group, number));
      EXPECT_EQ(number, 2);
      group.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  job.Died(0);
}

TEST_P(WorldNews, ARankThatDiesBeforeAllHaveMetIsNamed) {
  FakeJob job(3);
  testing::SleepingThreads waiters;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      FakeJob::Member member(job, i);
      waiters.Enter();
      EXPECT_THAT(World::Connect(member, Options(), Soon()),
                  StatusIs(StatusCode::kUnavailable,
                           HasSubstr("rank 2 at 10.0.0.9, process 77, died")));
    });
  }
  waiters.Await(2);
  job.Died(2);
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, WorldNews, testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, WorldNews, testing::Values("tcp"));

}  // namespace
}  // namespace fleet::comm
