// SPDX-License-Identifier: Apache-2.0

// How every communicator must fail, as a suite that communicator_conformance.h
// includes: ranks that make different calls, are late, leave, or are aborted.
// Needs all ranks in this process.

#ifndef FLEET_COMM_COMMUNICATOR_CONFORMANCE_FAILURES_H_
#define FLEET_COMM_COMMUNICATOR_CONFORMANCE_FAILURES_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/comm/communicator.h"
#include "fleet/testing/communicator_fixtures.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::comm {

// Which threads have waited so long that they have told of it. Look() is their
// interrupt check.
class WaitingThreads final {
 public:
  explicit WaitingThreads(std::chrono::milliseconds stall) : stall_(stall) {}

  void Look() {
    base::MutexLock lock(mutex_);
    Wait& wait =
        waits_.try_emplace(std::this_thread::get_id(), stall_).first->second;
    // The stall is told after the first look that is so late.
    if (wait.told_from.expired()) ++wait.late_looks;
  }
  int num_stalled() {
    base::MutexLock lock(mutex_);
    return static_cast<int>(std::count_if(
        waits_.begin(), waits_.end(),
        [](const auto& wait) { return wait.second.late_looks >= 2; }));
  }

 private:
  struct Wait {
    explicit Wait(std::chrono::milliseconds stall)
        : told_from(Deadline::After(stall)) {}
    Deadline told_from;
    int late_looks = 0;
  };

  const std::chrono::milliseconds stall_;
  base::Mutex mutex_;
  std::map<std::thread::id, Wait> waits_ GUARDED_BY(mutex_);
};

class CommunicatorFailures : public testing::TestWithParam<CommunicatorKind> {
 protected:
  RankGroup Group(int size, CommunicatorOptions options = {}) {
    return RankGroup(GetParam(), size, std::move(options));
  }
  static Status AllReduce(Communicator& comm, size_t count = 4,
                          Deadline deadline = Soon()) {
    Elements data = Elements::Of(DataType::kFloat32, comm.rank(), count);
    return comm.AllReduce(data.span(), ReduceOp::kSum, deadline);
  }
  // Call 1, which no rank is still in when another fails in the next.
  static void FirstCall(RankGroup& group, Communicator& comm) {
    EXPECT_OK(AllReduce(comm));
    group.Together();
  }
  // That a message speaks of the absence of `rank`, and perhaps of others
  // that the machine has kept from coming.
  static auto Misses(int rank) {
    return testing::ContainsRegex(
        base::Concat("no sign of ranks? ([0-9]+, )*", rank, "[^0-9]"));
  }
};

TEST_P(CommunicatorFailures, NobodyLeavesABarrierBeforeAllHaveCome) {
  for (int size : GetParam().group_sizes) {
    RankGroup group = Group(size);
    std::atomic<int> come = 0;
    group.Run([&](Communicator& comm) {
      for (int round = 1; round <= 50; ++round) {
        ++come;
        ASSERT_OK(comm.Barrier(Soon()));
        ASSERT_GE(come, round * size);
        ASSERT_OK(comm.Barrier(Soon()));
      }
    });
  }
}

TEST_P(CommunicatorFailures, DifferentCallsAreToldToAllRanks) {
  struct Case {
    std::function<Status(Communicator&, Span)> call;
    std::string shown;
  };
  const Case usual = {[](Communicator& comm, Span data) {
                        return comm.AllReduce(data, ReduceOp::kSum, Soon());
                      },
                      "all_reduce(sum, 1000 x float32), call 3"};
  const std::vector<Case> others = {
      {[](Communicator& comm, Span data) {
         return comm.AllReduce(data, ReduceOp::kMax, Soon());
       },
       "all_reduce(max, 1000 x float32), call 3"},
      {[](Communicator& comm, Span data) {
         data.count = 999;
         return comm.AllReduce(data, ReduceOp::kSum, Soon());
       },
       "all_reduce(sum, 999 x float32), call 3"},
      {[](Communicator& comm, Span data) {
         data.type = DataType::kInt32;
         return comm.AllReduce(data, ReduceOp::kSum, Soon());
       },
       "all_reduce(sum, 1000 x int32), call 3"},
      {[](Communicator& comm, Span data) {
         return comm.Broadcast(data, 1, Soon());
       },
       "broadcast(1000 x float32, root 1), call 3"},
      {[](Communicator& comm, Span) { return comm.Barrier(Soon()); },
       "barrier, call 3"},
      {[](Communicator& comm, Span) {
         return comm.Allocate(4000, Soon()).status();
       },
       "allocate(4000 x uint8), call 3"},
  };
  for (int size : {2, 3, 4}) {
    for (const Case& other : others) {
      for (int odd : {0, size - 1}) {
        SCOPED_TRACE(base::Concat(other.shown, " by rank ", odd, " of ", size));
        RankGroup group = Group(size);
        group.Run([&](Communicator& comm) {
          // A rank that is behind may be told before it gets there.
          Status status = AllReduce(comm);
          if (status.ok()) status = comm.Barrier(Soon());
          if (status.ok()) {
            Elements data = Elements::Of(DataType::kFloat32, comm.rank(), 1000);
            status =
                (comm.rank() == odd ? other : usual).call(comm, data.span());
          }
          EXPECT_THAT(status,
                      StatusIs(StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("world"), HasSubstr(usual.shown),
                                     HasSubstr(other.shown),
                                     HasSubstr(base::Concat("rank ", odd)))));
          EXPECT_EQ(comm.status(), status);
          EXPECT_EQ(comm.Barrier(Soon()), status);
        });
      }
    }
  }
}

TEST_P(CommunicatorFailures, ARankTellsOfAFailureThatItHears) {
  std::atomic<int> told = 0;
  CommunicatorOptions options;
  options.on_failure = [&](const Status& why) {
    EXPECT_EQ(why.code(), StatusCode::kUnavailable);
    ++told;
  };
  RankGroup group = Group(2, options);
  group.Run([&](Communicator& comm) {
    FirstCall(group, comm);
    if (comm.rank() == 0) {
      comm.Abort(Unavailable("the other host is gone"));
      return;
    }
    EXPECT_EQ(AllReduce(comm).code(), StatusCode::kUnavailable);
    EXPECT_EQ(AllReduce(comm).code(), StatusCode::kUnavailable);
  });
  EXPECT_EQ(told, 1);
}

TEST_P(CommunicatorFailures, ALateRankIsNamed) {
  for (size_t count : {size_t{4}, size_t{100'003}}) {
    for (int size : {2, 3, 4}) {
      for (int late : {0, size - 1}) {
        SCOPED_TRACE(base::Concat("rank ", late, " of ", size));
        RankGroup group = Group(size);
        std::atomic<int> failed = 0;
        group.Run([&](Communicator& comm) {
          FirstCall(group, comm);
          if (comm.rank() == late) {
            while (failed < size - 1) std::this_thread::sleep_for(1ms);
          }
          const Status status = AllReduce(comm, count, Deadline::After(300ms));
          ++failed;
          EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                                       AllOf(HasSubstr("all_reduce(sum"),
                                             HasSubstr("call 2"), Misses(late),
                                             HasSubstr(" s"))));
        });
      }
    }
  }
}

TEST_P(CommunicatorFailures, AStallIsReportedOnceAndTheCallGoesOn) {
  for (int size : {2, 3}) {
    constexpr auto kStall = 50ms;
    WaitingThreads waiting(kStall);
    std::atomic<bool> met = false;
    RankGroup group = Group(
        size, {.name = "group 7", .stall_report = kStall, .interrupt = [&] {
                 if (met) waiting.Look();
                 return OkStatus();
               }});
    met = true;
    testing::internal::CaptureStderr();
    group.Run([&](Communicator& comm) {
      // Comes when all others have waited for longer.
      const Deadline end = Soon();
      while (comm.rank() == 1 && waiting.num_stalled() < size - 1 &&
             !end.expired()) {
        std::this_thread::sleep_for(1ms);
      }
      EXPECT_OK(AllReduce(comm));
    });
    std::istringstream log(testing::internal::GetCapturedStderr());
    int reports = 0;
    for (std::string line; std::getline(log, line);) {
      EXPECT_THAT(line,
                  AllOf(HasSubstr("group 7"),
                        HasSubstr("all_reduce(sum, 4 x float32), call 1")));
      // Rank 1 itself may wait for others that the machine keeps.
      reports += testing::Matches(Misses(1))(line) ? 1 : 0;
    }
    EXPECT_EQ(reports, size - 1) << log.str();
  }
}

TEST_P(CommunicatorFailures, AbortWakesAWaiterWithItsReason) {
  for (size_t count : {size_t{4}, size_t{100'003}}) {
    RankGroup group = Group(3);
    testing::SleepingThreads waiters;
    group.Run([&](Communicator& comm) {
      if (comm.rank() == 2) {
        waiters.Await(2);
        group.AbortAll(Internal("worker 7 failed"));
        group.AbortAll(Internal("another"));
      } else {
        waiters.Enter();
      }
      const auto failed =
          StatusIs(StatusCode::kInternal, HasSubstr("world: worker 7 failed"));
      EXPECT_THAT(AllReduce(comm, count), failed);
      EXPECT_THAT(comm.Barrier(Soon()), failed);
      EXPECT_THAT(comm.status(), failed);
    });
    // Rank 0 was the first, so nobody else can have told it.
    EXPECT_EQ(group.num_failures(0), 0);
  }
}

TEST_P(CommunicatorFailures, AnInterruptEndsTheWait) {
  std::atomic<bool> in_last_call = false;
  std::atomic<bool> waits = false;
  std::atomic<bool> interrupted = false;
  RankGroup group = Group(2, {.interrupt = [&]() -> Status {
                            if (in_last_call) waits = true;
                            if (!interrupted) return OkStatus();
                            return Unavailable("^C");
                          }});
  const Deadline end = Soon();
  group.Run([&](Communicator& comm) {
    FirstCall(group, comm);
    if (comm.rank() == 0) in_last_call = true;
    if (comm.rank() == 1) {
      // Only who waits asks whether it is interrupted.
      while (!waits && !end.expired()) std::this_thread::sleep_for(1ms);
      interrupted = true;
      while (group.rank(0)->status().ok() && !end.expired()) {
        std::this_thread::sleep_for(1ms);
      }
    }
    Status status = AllReduce(comm);
    // Rank 0 may have sent its part before, which rank 1 may receive before it
    // hears of the failure.
    if (comm.rank() == 1 && status.ok()) status = comm.Barrier(Soon());
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("^C")));
  });
}

TEST_P(CommunicatorFailures, ARankThatLeavesEarlyIsNamed) {
  for (size_t count : {size_t{4}, size_t{100'003}}) {
    for (int size : {2, 3, 4}) {
      SCOPED_TRACE(base::Concat(count, " elements, ", size, " ranks"));
      RankGroup group = Group(size);
      group.Run([&](Communicator& comm) {
        FirstCall(group, comm);
        if (comm.rank() == 1) return group.Leave(1);
        EXPECT_THAT(AllReduce(comm, count),
                    StatusIs(StatusCode::kUnavailable,
                             AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1"),
                                   HasSubstr("left"))));
      });
    }
  }
}

TEST_P(CommunicatorFailures, AReceiveOfSomethingElseShowsBoth) {
  const std::vector<std::pair<DataType, size_t>> others = {
      {DataType::kInt32, 4},
      {DataType::kFloat32, 5},
      {DataType::kFloat32, 3},
      {DataType::kFloat32, 0}};
  for (const auto& [type, count] : others) {
    RankGroup group = Group(2);
    group.Run([&](Communicator& comm) {
      if (comm.rank() == 0) {
        Elements data(type, count);
        // The receiver may refuse it before this returns.
        EXPECT_THAT(
            comm.Send(data.span(), 1, Soon()),
            testing::AnyOf(IsOk(), HasCode(StatusCode::kFailedPrecondition)));
        EXPECT_THAT(comm.Barrier(Soon()),
                    HasCode(StatusCode::kFailedPrecondition));
        return;
      }
      Elements data(DataType::kFloat32, 4);
      EXPECT_THAT(
          comm.Recv(data.span(), 0, Soon()),
          StatusIs(StatusCode::kFailedPrecondition,
                   AllOf(HasSubstr("4 x float32"),
                         HasSubstr(base::Concat(count, " x ", ToString(type))),
                         HasSubstr("rank 0"))));
    });
  }
}

TEST_P(CommunicatorFailures, ASendThatIsNotReceivedNamesTheReceiver) {
  if (!GetParam().sends_wait) return;
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    if (comm.rank() == 0) {
      EXPECT_THAT(SendLarge(comm, 1, 0, Deadline::After(50ms), 2 * kSendAhead),
                  StatusIs(StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("send("), HasSubstr("rank 1"))));
    }
    group.Together();
  });
}

TEST_P(CommunicatorFailures, TwoRanksThatSendToEachOtherAreBothNamed) {
  if (!GetParam().sends_wait) return;
  for (const size_t byte_size : {size_t{2 * kSendAhead}, kLargeByteSize}) {
    RankGroup group = Group(2);
    group.Run([&](Communicator& comm) {
      Status status;
      for (size_t sent = 0; status.ok() && sent < 3 * kSendAhead;
           sent += byte_size) {
        status = SendLarge(comm, 1 - comm.rank(), 0, Soon(), byte_size);
      }
      EXPECT_THAT(status,
                  StatusIs(StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                 HasSubstr("wait for each other"))));
      EXPECT_FALSE(comm.Barrier(Soon()).ok());
    });
  }
}

// The receiver receives a part, and then does something else.
TEST_P(CommunicatorFailures, ASendThatWaitsGoesOnWhenEnoughIsReceived) {
  if (!GetParam().sends_wait) return;
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    constexpr int kCount = kSendAhead / kLargeByteSize + 2;
    if (comm.rank() == 0) {
      for (int i = 0; i < kCount; ++i) {
        EXPECT_OK(SendLarge(comm, 1, i, Soon()));
      }
      group.Together();
    } else {
      for (int i = 0; i < 3; ++i) RecvLarge(comm, 0, i);
      group.Together();
      for (int i = 3; i < kCount; ++i) RecvLarge(comm, 0, i);
    }
    EXPECT_OK(comm.Barrier(Soon()));
  });
}

TEST_P(CommunicatorFailures, ASendToARankThatLeavesEnds) {
  if (!GetParam().sends_wait) return;
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    if (comm.rank() == 1) return group.Leave(1);
    EXPECT_THAT(SendLarge(comm, 1, 0, Soon(), 2 * kSendAhead),
                StatusIs(StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 1"), HasSubstr("left"))));
  });
}

TEST_P(CommunicatorFailures, AReceiveOfNothingNamesTheSender) {
  RankGroup late = Group(3);
  late.Run([](Communicator& comm) {
    if (comm.rank() != 2) return;
    Elements data(DataType::kFloat32, 4);
    EXPECT_THAT(comm.Recv(data.span(), 1, Deadline::After(50ms)),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("recv"), HasSubstr("4 x float32"),
                               HasSubstr("rank 1"))));
  });
  RankGroup gone = Group(3);
  gone.Run([&](Communicator& comm) {
    if (comm.rank() == 1) return gone.Leave(1);
    if (comm.rank() == 0) return;
    Elements data(DataType::kFloat32, 4);
    EXPECT_THAT(comm.Recv(data.span(), 1, Soon()),
                StatusIs(StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 1"), HasSubstr("left"))));
  });
}

TEST_P(CommunicatorFailures, AFailureIsToldOnce) {
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    if (comm.rank() == 1) return;
    EXPECT_THAT(AllReduce(comm, 4, Deadline::After(20ms)),
                HasCode(StatusCode::kDeadlineExceeded));
    EXPECT_THAT(AllReduce(comm), HasCode(StatusCode::kDeadlineExceeded));
    EXPECT_EQ(group.num_failures(0), 1);
  });
}

TEST_P(CommunicatorFailures, TheFailureOfAStartedCallIsInItsFuture) {
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    if (comm.rank() == 1) return;
    base::Future<> done = comm.Start(
        [](Communicator& c) { return AllReduce(c, 4, Deadline::After(20ms)); });
    base::Future<> after =
        comm.Start([](Communicator& c) { return c.Barrier(Soon()); });
    EXPECT_THAT(done.Wait(Soon()),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1")));
    EXPECT_THAT(after.Wait(Soon()), HasCode(StatusCode::kDeadlineExceeded));
  });
}

TEST_P(CommunicatorFailures, AnEndDoesNotWaitForStartedCallsOfOthers) {
  RankGroup group = Group(2);
  group.Run([&](Communicator& comm) {
    if (comm.rank() == 1) return group.Together();
    base::Future<> first =
        comm.Start([](Communicator& c) { return AllReduce(c); });
    base::Future<> second =
        comm.Start([](Communicator& c) { return c.Barrier(Soon()); });
    group.Leave(0);
    group.Together();
    EXPECT_THAT(first.Wait(Soon()),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("rank 0 ended it while calls")));
    EXPECT_THAT(second.Wait(Soon()), HasCode(StatusCode::kFailedPrecondition));
  });
  // Its part of the first may have been on its way.
  Status other = AllReduce(*group.rank(1));
  if (other.ok()) other = group.rank(1)->Barrier(Soon());
  EXPECT_FALSE(other.ok());
}

}  // namespace fleet::comm

#endif  // FLEET_COMM_COMMUNICATOR_CONFORMANCE_FAILURES_H_
