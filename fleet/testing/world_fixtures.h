// SPDX-License-Identifier: Apache-2.0

// A job whose ranks are threads, for tests of World.

#ifndef FLEET_TESTING_WORLD_FIXTURES_H_
#define FLEET_TESTING_WORLD_FIXTURES_H_

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/cluster/store.h"
#include "fleet/comm/world.h"
#include "fleet/testing/deadlines.h"

namespace fleet::comm {

using cluster::News;
using testing::Soon;

// What one rank tells, all hear at once.
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
    const channel::Trust& trust() const override { return trust_; }
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
    const channel::Trust trust_ = {"s"};
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
                             World::Connect(member, options(i), Soon()));
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

inline Status Sum(Communicator& comm, int32_t& number,
                  Deadline deadline = Soon()) {
  return comm.AllReduce(
      {reinterpret_cast<std::byte*>(&number), 1, DataType::kInt32, nullptr},
      ReduceOp::kSum, deadline);
}

}  // namespace fleet::comm

#endif  // FLEET_TESTING_WORLD_FIXTURES_H_
