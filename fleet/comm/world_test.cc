// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/world.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/cluster/store.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {
namespace {

using namespace std::chrono_literals;
using cluster::News;
using testing::AllOf;
using testing::HasSubstr;

// Long enough for any machine; reached only when something is broken.
Deadline Patient() { return Deadline::After(60s); }

// A job whose ranks are threads: what one tells, all hear at once.
class FakeJob final {
 public:
  explicit FakeJob(int size) : size_(size), together_(size) {}

  // Where the threads of all ranks wait for each other.
  void Together() { together_.arrive_and_wait(); }

  void Tell(const News& news) {
    base::MutexLock lock(mutex_);
    news_.push_back(news);
    for (auto& [number, listener] : listeners_) {
      if (news.kind != News::Kind::kFailed || listener.rank != news.rank) {
        listener.hear(news);
      }
    }
  }
  void Died(int rank) {
    Tell({News::Kind::kDied, rank, "",
          Unavailable("rank ", rank, " at 10.0.0.9, process 77, died")});
  }

  class Member final : public cluster::Membership {
   public:
    Member(FakeJob& job, int rank) : job_(job), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return job_.size_; }
    const std::string& job_id() const override { return job_.job_id_; }
    const std::string& host() const override { return host_; }
    const std::string& secret() const override { return secret_; }
    cluster::Store& store() override { return job_.store_; }
    int Subscribe(std::function<void(const News&)> listener) override {
      base::MutexLock lock(job_.mutex_);
      for (const News& news : job_.news_) listener(news);
      job_.listeners_[++job_.subscriptions_] = {rank_, std::move(listener)};
      return job_.subscriptions_;
    }
    void Unsubscribe(int subscription) override {
      base::MutexLock lock(job_.mutex_);
      job_.listeners_.erase(subscription);
    }
    void Report(std::string topic, Status why) override {
      job_.Tell(
          {News::Kind::kFailed, rank_, std::move(topic),
           Status(why.code(), base::Concat("rank ", rank_,
                                           " at 10.0.0.9: ", why.message()))});
    }
    void Leave(base::Deadline) override {
      job_.Tell({News::Kind::kLeft, rank_, "", Unavailable("left")});
    }

   private:
    FakeJob& job_;
    const int rank_;
    const std::string host_ = "127.0.0.1";
    const std::string secret_ = "s";
  };

  // Runs `body(world, membership)` for every rank in a thread of its own.
  using Body = std::function<void(World&, Member&)>;
  void RunEach(const std::function<WorldOptions(int)>& options,
               const Body& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < size_; ++i) {
      threads.emplace_back([&, i] {
        Member member(*this, i);
        ASSERT_OK_AND_ASSIGN(auto world,
                             World::Connect(member, options(i), Patient()));
        body(*world, member);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void Run(const WorldOptions& options, const Body& body) {
    RunEach([&](int) { return options; }, body);
  }

 private:
  struct Listener {
    int rank;
    std::function<void(const News&)> hear;
  };

  const int size_;
  std::barrier<> together_;
  const std::string job_id_ =
      base::Concat("test-", ::getpid(), "-", ++num_jobs_);
  cluster::InProcessStore store_;
  base::Mutex mutex_;
  std::vector<News> news_ GUARDED_BY(mutex_);
  std::map<int, Listener> listeners_ GUARDED_BY(mutex_);
  int subscriptions_ GUARDED_BY(mutex_) = 0;

  static inline std::atomic<int> num_jobs_ = 0;
};

Status Sum(Communicator& comm, int32_t& number, Deadline deadline = Patient()) {
  return comm.AllReduce(
      {reinterpret_cast<std::byte*>(&number), 1, DataType::kInt32, nullptr},
      ReduceOp::kSum, deadline);
}

TEST(World, PicksTheBackendByWhereTheRanksAre) {
  FakeJob alone(1);
  alone.Run({}, [](World& world, auto&) {
    EXPECT_EQ(world.all().backend(), "in-process");
    EXPECT_OK(world.all().Barrier(Patient()));
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
        ASSERT_OK_AND_ASSIGN(auto inside, world.NewGroup({2, 3}, Patient()));
        if (inside != nullptr) {
          EXPECT_EQ(inside->backend(), "shared memory");
        }
        ASSERT_OK_AND_ASSIGN(auto across, world.NewGroup({0, 2}, Patient()));
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
  EXPECT_THAT(World::Connect(member, {.backend = "pigeon"}, Patient()),
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
              Patient()),
          StatusIs(StatusCode::kFailedPrecondition, HasSubstr("2 hosts")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(World, GroupsAreOfTheirOwnRanksInTheirOwnOrder) {
  FakeJob job(4);
  job.Run({}, [](World& world, FakeJob::Member& member) {
    const int rank = member.rank();
    ASSERT_OK_AND_ASSIGN(auto odd, world.NewGroup({3, 1}, Patient()));
    ASSERT_OK_AND_ASSIGN(auto alone, world.NewGroup({2}, Patient()));
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
      EXPECT_OK(alone->Barrier(Patient()));
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
    EXPECT_THAT(world.NewGroup({0, 2}, Patient()), invalid);
    EXPECT_THAT(world.NewGroup({0, 0}, Patient()), invalid);
    EXPECT_THAT(world.NewGroup({}, Patient()), invalid);
    EXPECT_OK(world.NewGroup({0, 1}, Patient()));
  });
}

TEST(World, RanksThatNameDifferentGroupsAreToldBoth) {
  FakeJob job(2);
  std::atomic<int> refused = 0;
  job.Run({}, [&](World& world, FakeJob::Member& member) {
    const Status status =
        world
            .NewGroup(member.rank() == 0 ? std::vector{0, 1} : std::vector{1},
                      Patient())
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
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    auto made = world.NewGroup({0, 1}, Patient());
    EXPECT_OK(made);
    job.Together();
    ASSERT_TRUE(made.ok());
    const std::unique_ptr<Communicator> pair = *std::move(made);
    const auto died =
        StatusIs(StatusCode::kUnavailable,
                 HasSubstr("rank 2 at 10.0.0.9, process 77, died"));
    if (member.rank() == 2) {
      std::this_thread::sleep_for(20ms);  // most of the time both wait by now
      job.Died(2);
    }
    EXPECT_THAT(world.all().Barrier(Patient()), died);
    EXPECT_THAT(world.NewGroup({1, 2}, Patient()),
                member.rank() == 0 ? HasCode(StatusCode::kOk)
                                   : HasCode(StatusCode::kUnavailable));
    if (pair != nullptr) {
      EXPECT_OK(pair->Barrier(Patient()));
    }
  });
}

TEST_P(WorldNews, AFailureOfOneRankIsThatOfItsGroupOnly) {
  FakeJob job(3);
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    auto made = world.NewGroup({0, 2}, Patient());
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
      EXPECT_THAT(group->Barrier(Patient()),
                  StatusIs(StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("rank 0"), HasSubstr("barrier"))));
    }
    EXPECT_OK(world.all().Barrier(Patient()));
  });
}

TEST_P(WorldNews, ARankThatLeftDisturbsNoCallThatItHasDone) {
  FakeJob job(3);
  job.Run(Options(), [&](World& world, FakeJob::Member& member) {
    std::this_thread::sleep_for(10ms * member.rank());
    int32_t number = 1;
    EXPECT_OK(Sum(world.all(), number));
    EXPECT_EQ(number, 3);
    member.Leave(Patient());
  });
}

TEST_P(WorldNews, ACommunicatorMayOutliveTheWorld) {
  FakeJob job(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      FakeJob::Member member(job, i);
      ASSERT_OK_AND_ASSIGN(auto world,
                           World::Connect(member, Options(), Patient()));
      ASSERT_OK_AND_ASSIGN(auto group, world->NewGroup({0, 1}, Patient()));
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
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      FakeJob::Member member(job, i);
      EXPECT_THAT(World::Connect(member, Options(), Patient()),
                  StatusIs(StatusCode::kUnavailable,
                           HasSubstr("rank 2 at 10.0.0.9, process 77, died")));
    });
  }
  std::this_thread::sleep_for(20ms);
  job.Died(2);
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, WorldNews, testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, WorldNews, testing::Values("tcp"));

}  // namespace
}  // namespace fleet::comm
