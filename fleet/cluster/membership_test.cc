// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/membership.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/store_conformance.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

// Long enough for any machine; reached only when something is broken.
Deadline Patient() { return Deadline::After(60s); }

// A socket that is bound to a free port of this host, and its endpoint.
struct Port {
  channel::Fd fd;
  Endpoint endpoint;
};
Port FreePort() {
  channel::Address any;
  any.host = "127.0.0.1";
  const channel::SocketAddress at = Resolve(any).value().front();
  channel::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(fd.get(), at.get(), at.byte_size), 0);
  EXPECT_EQ(listen(fd.get(), 16), 0);
  channel::SocketAddress bound;
  bound.byte_size = sizeof(bound.storage);
  EXPECT_EQ(getsockname(fd.get(), bound.get(), &bound.byte_size), 0);
  return {std::move(fd), {"127.0.0.1", ToAddress(bound).port}};
}

Role Worker(int rank, int size, const Endpoint& first) {
  Role role;
  role.is_collective = true;
  role.source = RoleSource::kPaddle;
  role.index = rank;
  role.worker_num = size;
  role.worker_endpoints.push_back(first);
  for (int i = 1; i < size; ++i) {
    role.worker_endpoints.push_back({"127.0.0.1", static_cast<uint16_t>(i)});
  }
  return role;
}

// Fast beats, so that tests of silence are short.
JoinOptions Options() {
  JoinOptions options;
  options.secret = "the secret of the test";
  return options;
}

// All ranks of a job as objects of this process.
class Job {
 public:
  explicit Job(int size) : port_(FreePort()), members_(size), ends_(size) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([this, rank, size] {
        JoinOptions options = Options();
        if (rank == 0) options.listen_fd = port_.fd.Release();
        auto joined = Membership::Join(Worker(rank, size, port_.endpoint),
                                       std::move(options), Patient());
        EXPECT_OK(joined);
        if (joined.ok()) members_[rank] = std::move(*joined);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Membership& operator[](int rank) { return *members_[rank]; }
  int size() const { return static_cast<int>(members_.size()); }
  // As a death: its destructor says no good-bye.
  void Kill(int rank) { members_[rank].reset(); }

 private:
  Port port_;
  std::vector<std::unique_ptr<Membership>> members_;
  std::vector<Status> ends_;
};

// Collects news.
class Reader {
 public:
  explicit Reader(Membership& membership)
      : membership_(membership),
        subscription_(membership.Subscribe([this](const News& news) {
          MutexLock lock(mutex_);
          news_.push_back(news);
          changed_.NotifyAll();
        })) {}
  ~Reader() { membership_.Unsubscribe(subscription_); }

  std::vector<News> Wait(size_t count) {
    MutexLock lock(mutex_);
    const Deadline end = Patient();
    while (news_.size() < count) {
      if (!changed_.WaitUntil(mutex_, end)) break;
    }
    return news_;
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<News> news_ GUARDED_BY(mutex_);
  Membership& membership_;
  const int subscription_;
};

class MembershipGroup final : public StoreGroup {
 public:
  explicit MembershipGroup(int size) : job_(size) {}
  Store& member(int index) override { return job_[index].store(); }

 private:
  Job job_;
};

std::unique_ptr<StoreGroup> MakeMembershipGroup(int size) {
  return std::make_unique<MembershipGroup>(size);
}

INSTANTIATE_TEST_SUITE_P(Membership, StoreConformance,
                         testing::Values(MakeMembershipGroup));

TEST(Membership, AJobOfOneNeedsNoNetwork) {
  Role role;
  ASSERT_OK_AND_ASSIGN(auto alone,
                       Membership::Join(role, {}, Deadline::After(0s)));
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_OK(alone->store().Set("key", "value", Patient()));
  EXPECT_EQ(alone->store().Get("key", Patient()).value(), "value");
  EXPECT_OK(alone->store().Barrier("all", 0, 1, Patient()));
  alone->Leave(Patient());
}

TEST(Membership, AllRanksAgreeOnWhatTheJobIs) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job[rank].rank(), rank);
    EXPECT_EQ(job[rank].size(), 3);
    EXPECT_EQ(job[rank].job_id(), job[0].job_id());
    EXPECT_EQ(job[rank].host(), "127.0.0.1");
    EXPECT_EQ(job[rank].secret(), Options().secret);
  }
  EXPECT_NE(job[0].job_id(), Job(1)[0].job_id());
}

TEST(Membership, ADeathIsToldToAllOthers) {
  Job job(3);
  Reader at_zero(job[0]);
  Reader at_one(job[1]);
  job.Kill(2);
  for (Reader* reader : {&at_zero, &at_one}) {
    const std::vector<News> news = reader->Wait(1);
    ASSERT_EQ(news.size(), 1);
    EXPECT_EQ(news[0].kind, News::Kind::kDied);
    EXPECT_EQ(news[0].rank, 2);
    EXPECT_THAT(news[0].why,
                StatusIs(StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 2 (process "),
                               HasSubstr("its connection closed"))));
  }
}

TEST(Membership, ADeathEndsTheStoresWaits) {
  Job job(3);
  std::thread waits([&] {
    EXPECT_THAT(job[1].store().Wait({"never"}, Patient()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("rank 2")));
  });
  job.Kill(2);
  EXPECT_THAT(job[0].store().Barrier("all", 0, 3, Patient()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("rank 2")));
  waits.join();
  // What needs not wait goes on.
  EXPECT_OK(job[1].store().Set("key", "value", Patient()));
  EXPECT_EQ(job[0].store().Get("key", Patient()).value(), "value");
}

TEST(Membership, TheDeathOfRankZeroEndsTheStore) {
  Job job(3);
  Reader at_two(job[2]);
  std::thread waits([&] {
    EXPECT_THAT(job[1].store().Wait({"never"}, Patient()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 (")));
  });
  job.Kill(0);
  waits.join();
  const std::vector<News> news = at_two.Wait(1);
  ASSERT_EQ(news.size(), 1);
  EXPECT_EQ(news[0].kind, News::Kind::kDied);
  EXPECT_EQ(news[0].rank, 0);
  EXPECT_THAT(job[2].store().Set("key", "value", Patient()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 (")));
}

TEST(Membership, WhoLeavesIsNotDead) {
  Job job(3);
  Reader at_zero(job[0]);
  Reader at_one(job[1]);
  job[2].Leave(Patient());
  job.Kill(2);
  for (Reader* reader : {&at_zero, &at_one}) {
    const std::vector<News> news = reader->Wait(1);
    ASSERT_EQ(news.size(), 1);
    EXPECT_EQ(news[0].kind, News::Kind::kLeft);
    EXPECT_EQ(news[0].rank, 2);
  }
  std::thread zero([&] { job[0].Leave(Patient()); });
  EXPECT_OK(job[1].store().Set("key", "value", Patient()));
  job[1].Leave(Patient());
  zero.join();
  EXPECT_EQ(at_zero.Wait(2).back().rank, 1);
}

TEST(Membership, AReportReachesAllOthers) {
  Job job(3);
  Reader at_zero(job[0]);
  Reader at_two(job[2]);
  job[1].Report("group 7", InvalidArgument("shapes differ"));
  for (Reader* reader : {&at_zero, &at_two}) {
    const std::vector<News> news = reader->Wait(1);
    ASSERT_EQ(news.size(), 1);
    EXPECT_EQ(news[0].kind, News::Kind::kFailed);
    EXPECT_EQ(news[0].rank, 1);
    EXPECT_EQ(news[0].topic, "group 7");
    EXPECT_THAT(news[0].why, StatusIs(StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("rank 1 (process "),
                                            HasSubstr("shapes differ"))));
  }
  job[0].Report("group 8", Internal("zero"));
  EXPECT_EQ(at_two.Wait(2).back().topic, "group 8");
}

}  // namespace
}  // namespace fleet::cluster
