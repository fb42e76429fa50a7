// SPDX-License-Identifier: Apache-2.0

// Runs in every process of `mpirun -np 4`: all processes run the same cases in
// the same order, each as one rank. mpirun fails when a process does.

#include "fleet/comm/mpi.h"

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <unistd.h>

#include "fleet/comm/communicator_conformance.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::comm {
namespace {

int WorldRank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

std::unique_ptr<Communicator> Connect(std::vector<int> ranks,
                                      CommunicatorOptions options = {}) {
  auto communicator = ConnectMpi(std::move(ranks), std::move(options), Soon());
  EXPECT_OK(communicator);
  return communicator.ok() ? std::move(*communicator) : nullptr;
}

std::vector<int> FirstRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The first processes are the ranks; the others have none of the group.
CommunicatorKind MpiKind() {
  return {.name = "mpi",
          .make = [](int size,
                     const std::function<CommunicatorOptions(int)>& options) {
            // MPI itself is begun by all processes together.
            static const auto world = Connect({});
            Ranks ranks(static_cast<size_t>(size));
            const int mine = WorldRank();
            if (mine < size) {
              ranks[mine] = Connect(FirstRanks(size), options(mine));
            }
            return ranks;
          }};
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorConformance,
                         testing::Values(MpiKind()));
// Needs all ranks in one process; MpiFailures stands for it.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorFailures);

Status AllReduce(Communicator& comm, size_t count = 4,
                 Deadline deadline = Soon()) {
  Elements data = Elements::Of(DataType::kFloat32, comm.rank(), count);
  return comm.AllReduce(data.span(), ReduceOp::kSum, deadline);
}

// Failures: what CommunicatorFailures asks of backends whose ranks are threads.
// Every case has a group of its own. `together` is where the ranks wait for
// each other, so that none is late by accident.
class MpiFailures : public testing::Test {
 protected:
  void SetUp() override {
    together_ = Connect({}, {.name = "together"});
    comm_ = Connect({}, {.name = "broken"});
    ASSERT_NE(together_, nullptr);
    ASSERT_NE(comm_, nullptr);
    ASSERT_EQ(comm_->size(), 4) << "run it under mpirun -np 4";
    ASSERT_OK(AllReduce(*comm_));
    // No rank is still in that call when another fails in the next.
    ASSERT_OK(together_->Barrier(Soon()));
  }
  void TearDown() override {
    if (together_ != nullptr) {
      EXPECT_OK(together_->Barrier(Soon()));
    }
  }

  int rank() const { return comm_->rank(); }

  std::unique_ptr<Communicator> together_;
  std::unique_ptr<Communicator> comm_;
};

TEST_F(MpiFailures, DifferentCallsAreToldToAllRanks) {
  Elements data = Elements::Of(DataType::kFloat32, rank(), 1000);
  const Status status =
      rank() == 2 ? comm_->Broadcast(data.span(), 1, Soon())
                  : comm_->AllReduce(data.span(), ReduceOp::kSum, Soon());
  EXPECT_THAT(
      status,
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("broken"), HasSubstr("rank 2"),
                     HasSubstr("all_reduce(sum, 1000 x float32), call 2"),
                     HasSubstr("broadcast(1000 x float32, root 1), call 2"))));
  EXPECT_EQ(comm_->status(), status);
  EXPECT_EQ(comm_->Barrier(Soon()), status);
}

TEST_F(MpiFailures, ALateRankIsNamed) {
  // It comes when all others have failed.
  if (rank() == 3) {
    ASSERT_OK(together_->Barrier(Soon()));
  }
  const Status status = AllReduce(*comm_, 100'003, Deadline::After(300ms));
  if (rank() != 3) {
    ASSERT_OK(together_->Barrier(Soon()));
  }
  EXPECT_THAT(status,
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("all_reduce(sum"), HasSubstr("call 2"),
                             testing::ContainsRegex("ranks? ([0-9], )*3"))));
}

TEST_F(MpiFailures, AStallIsReportedOnceAndTheCallGoesOn) {
  constexpr auto kStall = 50ms;
  WaitingThreads waiting(kStall);
  std::atomic<bool> met = false;
  auto stalled =
      Connect({}, {.name = "group 7", .stall_report = kStall, .interrupt = [&] {
                     if (met) waiting.Look();
                     return OkStatus();
                   }});
  ASSERT_NE(stalled, nullptr);
  ASSERT_OK(together_->Barrier(Soon()));
  met = true;
  testing::internal::CaptureStderr();
  // Rank 1 comes when all others have waited for longer.
  std::thread meeting([&] {
    const Deadline end = Soon();
    while (rank() != 1 && waiting.num_stalled() < 1 && !end.expired()) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_OK(together_->Barrier(Soon()));
  });
  if (rank() == 1) meeting.join();
  EXPECT_OK(AllReduce(*stalled));
  if (meeting.joinable()) meeting.join();
  const std::string log = testing::internal::GetCapturedStderr();
  if (rank() == 1) return;
  EXPECT_THAT(log, AllOf(HasSubstr("group 7"),
                         testing::ContainsRegex("ranks? ([0-9], )*1"),
                         HasSubstr("all_reduce(sum, 4 x float32), call 1")));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(MpiFailures, AbortWakesTheWaitersOfAllRanks) {
  std::thread aborting;
  testing::SleepingThreads waiters;
  if (rank() == 2) {
    waiters.Enter();
    aborting = std::thread([&] {
      waiters.Await(1);
      comm_->Abort(Internal("the disk is full"));
    });
  }
  // Rank 3 never comes.
  if (rank() != 3) {
    EXPECT_THAT(AllReduce(*comm_),
                StatusIs(StatusCode::kInternal, HasSubstr("the disk is full")));
    EXPECT_THAT(comm_->Barrier(Soon()),
                StatusIs(StatusCode::kInternal, HasSubstr("the disk is full")));
  }
  if (aborting.joinable()) aborting.join();
}

TEST_F(MpiFailures, AnInterruptEndsTheWait) {
  std::atomic<bool> interrupted = false;
  auto stopped = Connect({}, {.interrupt = [&]() -> Status {
                           if (!interrupted) return OkStatus();
                           return Unavailable("^C");
                         }});
  ASSERT_NE(stopped, nullptr);
  ASSERT_OK(together_->Barrier(Soon()));
  interrupted = rank() == 0;
  if (rank() != 3) {
    EXPECT_THAT(AllReduce(*stopped),
                StatusIs(StatusCode::kUnavailable, HasSubstr("^C")));
  }
  EXPECT_OK(together_->Barrier(Soon()));
}

TEST_F(MpiFailures, ARankThatLeavesEarlyIsNamed) {
  if (rank() == 1) {
    comm_.reset();
    return;
  }
  EXPECT_THAT(AllReduce(*comm_, 100'003),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1"),
                             HasSubstr("left"))));
}

TEST_F(MpiFailures, AReceiveOfSomethingElseShowsBoth) {
  if (rank() == 0) {
    Elements data(DataType::kFloat32, 5);
    // The receiver may refuse it before all of it has gone out.
    EXPECT_THAT(
        comm_->Send(data.span(), 1, Soon()),
        testing::AnyOf(IsOk(), HasCode(StatusCode::kFailedPrecondition)));
  }
  if (rank() == 1) {
    Elements data(DataType::kInt32, 4);
    EXPECT_THAT(comm_->Recv(data.span(), 0, Soon()),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("4 x int32"), HasSubstr("5 x float32"),
                               HasSubstr("rank 0"))));
  } else {
    EXPECT_THAT(comm_->Barrier(Soon()),
                HasCode(StatusCode::kFailedPrecondition));
  }
}

TEST_F(MpiFailures, WhatNobodySendsOrTakesIsLate) {
  if (rank() == 0) {
    EXPECT_THAT(SendLarge(*comm_, 1, 0, Deadline::After(50ms), 2 * kSendAhead),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("send(134217728 x uint8)"),
                               HasSubstr("rank 1"))));
  }
  std::unique_ptr<Communicator> pair;
  if (rank() >= 2) pair = Connect({3, 2}, {.name = "pair"});
  if (rank() >= 2) {
    ASSERT_NE(pair, nullptr);
  }
  if (rank() == 3) {
    Elements data(DataType::kFloat32, 4);
    EXPECT_THAT(
        pair->Recv(data.span(), 1, Deadline::After(50ms)),
        StatusIs(StatusCode::kDeadlineExceeded,
                 AllOf(HasSubstr("recv(4 x float32)"), HasSubstr("rank 1"))));
  }
  EXPECT_OK(together_->Barrier(Soon()));
}

TEST_F(MpiFailures, TwoRanksThatSendToEachOtherAreBothNamed) {
  const Status status =
      rank() < 2 ? SendLarge(*comm_, 1 - rank(), 0, Soon(), 2 * kSendAhead)
                 : comm_->Barrier(Soon());
  EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                     HasSubstr("wait for each other"))));
}

TEST(Mpi, PositionInTheListIsTheRankInTheGroup) {
  auto world = Connect({});
  ASSERT_NE(world, nullptr);
  ASSERT_EQ(world->size(), 4);
  EXPECT_EQ(world->backend(), "mpi");
  EXPECT_EQ(world->rank(), WorldRank());
  if (world->rank() == 1) return;
  auto group = Connect({3, 0, 2}, {.name = "odd"});
  ASSERT_NE(group, nullptr);
  const std::vector<int> expected = {1, -1, 2, 0};
  EXPECT_EQ(group->rank(), expected[world->rank()]);
  int32_t number = world->rank();
  const Span data{reinterpret_cast<std::byte*>(&number), 1, DataType::kInt32};
  EXPECT_OK(group->Broadcast(data, 0, Soon()));
  EXPECT_EQ(number, 3);
}

TEST(Mpi, AGroupThatMakesNoSenseIsRefused) {
  auto world = Connect({});
  ASSERT_NE(world, nullptr);
  const int mine = world->rank();
  EXPECT_THAT(ConnectMpi({mine, 9}, {}, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 9")));
  EXPECT_THAT(ConnectMpi({mine, mine}, {}, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("once")));
  EXPECT_THAT(ConnectMpi({(mine + 1) % 4}, {}, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not in")));
}

TEST(Mpi, ThoseWhoDoNotComeToAGroupAreNamed) {
  auto world = Connect({});
  ASSERT_NE(world, nullptr);
  if (world->rank() == 0) {
    EXPECT_THAT(
        ConnectMpi({0, 1, 2}, {}, Deadline::After(50ms)),
        StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("ranks 1, 2")));
  }
  ASSERT_OK(world->Barrier(Soon()));
  // Who has given up does not count, and a later attempt starts afresh.
  if (world->rank() == 1) {
    EXPECT_THAT(ConnectMpi({0, 1, 2}, {}, Deadline::After(50ms)),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank")));
  }
  ASSERT_OK(world->Barrier(Soon()));
  if (world->rank() < 3) {
    auto group = Connect({0, 1, 2});
    ASSERT_NE(group, nullptr);
    EXPECT_OK(group->Barrier(Soon()));
  }
}

TEST(Mpi, RanksThatMakeDifferentGroupsSeeWhatTheOthersMake) {
  auto world = Connect({});
  ASSERT_NE(world, nullptr);
  ASSERT_OK(world->Barrier(Soon()));  // so that both come in time
  if (world->rank() < 2) {
    const std::vector<int> ranks =
        world->rank() == 0 ? std::vector{0, 1} : std::vector{1, 0};
    const std::string others =
        world->rank() == 0 ? "came to world of 1 0" : "came to world of 0 1";
    EXPECT_THAT(ConnectMpi(ranks, {}, Deadline::After(5s)),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr(others)));
  }
  ASSERT_OK(world->Barrier(Soon()));
}

}  // namespace
}  // namespace fleet::comm
