// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/membership.h"

#include <chrono>
#include <fcntl.h>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/membership_protocol.h"
#include "fleet/cluster/store_conformance.h"
#include "fleet/testing/membership_fixtures.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

// All ranks of a job as objects of this process.
class Job {
 public:
  explicit Job(int size) : members_(size) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([this, rank, size] {
        JoinOptions options = Options();
        if (rank == 0) options.listen_fd = listen_fd_ = port_.Release();
        auto joined = Membership::Join(Worker(rank, size, port_.endpoint()),
                                       std::move(options), Soon());
        EXPECT_OK(joined);
        if (joined.ok()) members_[rank] = std::move(*joined);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Membership& operator[](int rank) { return *members_[rank]; }
  Role role(int rank) const { return Worker(rank, size(), port_.endpoint()); }
  int size() const { return static_cast<int>(members_.size()); }
  int listen_fd() const { return listen_fd_; }
  // As a death: its destructor says no good-bye.
  void Kill(int rank) { members_[rank].reset(); }

 private:
  Port port_;
  int listen_fd_ = -1;
  std::vector<std::unique_ptr<Membership>> members_;
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
    const Deadline end = Soon();
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
  EXPECT_OK(alone->store().Set("key", "value", Soon()));
  EXPECT_EQ(alone->store().Get("key", Soon()).value(), "value");
  EXPECT_OK(alone->store().Barrier("all", 0, 1, Soon()));
  alone->Leave(Soon());
}

TEST(Membership, AllRanksAgreeOnWhatTheJobIs) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job[rank].rank(), rank);
    EXPECT_EQ(job[rank].size(), 3);
    EXPECT_EQ(job[rank].job_id(), job[0].job_id());
    EXPECT_EQ(job[rank].host(), "127.0.0.1");
    EXPECT_EQ(job[rank].trust().secret, Options().trust.secret);
  }
  EXPECT_NE(job[0].job_id(), Job(1)[0].job_id());
}

// Roles of a launcher that gives a name and no secret.
Role Named(int rank, const std::string& name) {
  Role role;
  role.is_collective = true;
  role.source = RoleSource::kPmi;
  role.index = rank;
  role.worker_num = 2;
  role.local_size = 2;
  role.meeting_name = name;
  return role;
}

TEST(Membership, RanksThatMeetInsideAHostComeToASecretByThemselves) {
  const std::string name = "membership-test-" + std::to_string(getpid());
  std::unique_ptr<Membership> members[2];
  JoinOptions options;
  options.requires_secret = true;
  std::thread one([&] {
    auto joined = Membership::Join(Named(1, name), options, Soon());
    EXPECT_OK(joined);
    if (joined.ok()) members[1] = *std::move(joined);
  });
  auto joined = Membership::Join(Named(0, name), options, Soon());
  one.join();
  ASSERT_OK(joined);
  members[0] = *std::move(joined);
  ASSERT_TRUE(members[1]);
  EXPECT_EQ(members[0]->trust().secret.text().size(), 64u);
  EXPECT_EQ(members[0]->trust().secret, members[1]->trust().secret);
}

TEST(Membership, AJobThatRequiresASecretDoesNotBeginWithout) {
  Port port;
  JoinOptions options;
  options.requires_secret = true;
  for (int rank : {0, 1}) {
    EXPECT_THAT(
        Membership::Join(Worker(rank, 2, port.endpoint()), options, Soon()),
        StatusIs(StatusCode::kFailedPrecondition,
                 HasSubstr("FLEET_REQUIRE_SECRET")));
  }
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
    EXPECT_THAT(job[1].store().Wait({"never"}, Soon()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("rank 2")));
  });
  job.Kill(2);
  EXPECT_THAT(job[0].store().Barrier("all", 0, 3, Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("rank 2")));
  waits.join();
  // What needs not wait goes on.
  EXPECT_OK(job[1].store().Set("key", "value", Soon()));
  EXPECT_EQ(job[0].store().Get("key", Soon()).value(), "value");
}

TEST(Membership, TheDeathOfRankZeroEndsTheStore) {
  Job job(3);
  Reader at_two(job[2]);
  std::thread waits([&] {
    EXPECT_THAT(job[1].store().Wait({"never"}, Soon()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 (")));
  });
  job.Kill(0);
  waits.join();
  const std::vector<News> news = at_two.Wait(1);
  ASSERT_EQ(news.size(), 1);
  EXPECT_EQ(news[0].kind, News::Kind::kDied);
  EXPECT_EQ(news[0].rank, 0);
  EXPECT_THAT(job[2].store().Set("key", "value", Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 (")));
}

TEST(Membership, WhoLeavesIsNotDead) {
  Job job(3);
  Reader at_zero(job[0]);
  Reader at_one(job[1]);
  job[2].Leave(Soon());
  job.Kill(2);
  for (Reader* reader : {&at_zero, &at_one}) {
    const std::vector<News> news = reader->Wait(1);
    ASSERT_EQ(news.size(), 1);
    EXPECT_EQ(news[0].kind, News::Kind::kLeft);
    EXPECT_EQ(news[0].rank, 2);
  }
  std::thread zero([&] { job[0].Leave(Soon()); });
  EXPECT_OK(job[1].store().Set("key", "value", Soon()));
  job[1].Leave(Soon());
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

TEST(Membership, NewsFromBeforeASubscriptionAreToldToo) {
  Job job(3);
  Reader first(job[0]);
  job.Kill(1);
  first.Wait(1);
  job.Kill(2);
  first.Wait(2);
  Reader late(job[0]);
  const std::vector<News> news = late.Wait(2);
  ASSERT_EQ(news.size(), 2);
  EXPECT_EQ(news[0].rank, 1);
  EXPECT_EQ(news[1].rank, 2);
}

// Joins each role in a thread; what came of it, by index.
std::vector<Status> JoinAll(const std::vector<Role>& roles,
                            std::vector<JoinOptions> options,
                            std::chrono::milliseconds patience = 60s) {
  std::vector<Status> outcomes(roles.size());
  std::vector<std::unique_ptr<Membership>> members(roles.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < roles.size(); ++i) {
    threads.emplace_back([&, i] {
      auto joined =
          Membership::Join(roles[i], options[i], Deadline::After(patience));
      outcomes[i] = joined.status();
      if (joined.ok()) members[i] = std::move(*joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(WaitReporter, TellsOncePerIntervalWhatIsWaitedFor) {
  WaitReporter rare({}, 1h);
  WaitReporter often({}, 1ms);
  std::this_thread::sleep_for(2ms);
  testing::internal::CaptureStderr();
  EXPECT_OK(rare.Check([] { return "waiting for nobody"; }));
  EXPECT_OK(often.Check([] { return "waiting for rank 1, 3 of 4"; }));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("waiting for rank 1, 3 of 4 (since 0 s)"),
                    testing::Not(HasSubstr("nobody"))));
}

TEST(MembershipJoin, NamesTheRanksThatNeverCame) {
  Port port;
  std::vector<JoinOptions> options(2, Options());
  options[0].listen_fd = port.Release();
  const std::vector<Status> outcomes =
      JoinAll({Worker(0, 4, port.endpoint()), Worker(2, 4, port.endpoint())},
              options, 1500ms);
  for (const Status& outcome : outcomes) {
    EXPECT_THAT(outcome, StatusIs(StatusCode::kDeadlineExceeded,
                                  HasSubstr("rank 1, 3 of 4")));
  }
}

TEST(MembershipJoin, NamesRankZeroWhenItNeverComes) {
  const Endpoint nobody = Port().endpoint();
  const auto outcome =
      Membership::Join(Worker(1, 2, nobody), Options(), Deadline::After(300ms));
  EXPECT_THAT(outcome, StatusIs(StatusCode::kDeadlineExceeded,
                                AllOf(HasSubstr("worker 1"),
                                      HasSubstr(ToString(nobody)))));
}

TEST(MembershipJoin, RanksThatWereToldDifferentSizesAreShownBoth) {
  Port port;
  std::vector<JoinOptions> options(2, Options());
  options[0].listen_fd = port.Release();
  const std::vector<Status> outcomes = JoinAll(
      {Worker(0, 3, port.endpoint()), Worker(1, 2, port.endpoint())}, options);
  for (const Status& outcome : outcomes) {
    EXPECT_THAT(outcome, StatusIs(StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("2 workers for rank 1"),
                                        HasSubstr("3 for rank 0"))));
  }
}

TEST(MembershipJoin, RanksThatWereToldDifferentEndpointsAreShownBoth) {
  Port port;
  std::vector<JoinOptions> options(3, Options());
  options[0].listen_fd = port.Release();
  std::vector<Role> roles;
  for (int rank = 0; rank < 3; ++rank) {
    roles.push_back(Worker(rank, 4, port.endpoint()));
  }
  roles[1].worker_endpoints[2].host = "10.0.0.7";
  // Rank 3 never comes; that it is awaited in vain must not be waited for.
  const std::vector<Status> outcomes = JoinAll(roles, options);
  for (const Status& outcome : outcomes) {
    EXPECT_THAT(
        outcome,
        StatusIs(StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("worker 2 is at 10.0.0.7:2 for rank 1"),
                       HasSubstr("at 127.0.0.1:2 for rank 0"))));
  }
}

// A job whose rank 0 waits for the others, and what disturbs it.
class WaitingJob {
 public:
  WaitingJob() : options_(2, Options()) {
    options_[0].listen_fd = port_.Release();
    zero_ = std::thread([this] { Join(0); });
  }
  // Rank 1 comes, and all is well.
  ~WaitingJob() {
    if (!members_[1]) Join(1);
    zero_.join();
    EXPECT_TRUE(members_[0] && members_[1]);
  }
  Role role(int rank) { return Worker(rank, 2, port_.endpoint()); }
  const Endpoint& endpoint() { return port_.endpoint(); }
  Membership& Join(int rank) {
    auto joined = Membership::Join(role(rank), options_[rank], Soon());
    EXPECT_OK(joined);
    members_[rank] = std::move(*joined);
    return *members_[rank];
  }

 private:
  Port port_;
  std::vector<JoinOptions> options_;
  std::unique_ptr<Membership> members_[2];
  std::thread zero_;
};

TEST(MembershipJoin, AWrongSecretIsRefusedAndDisturbsNobody) {
  WaitingJob job;
  JoinOptions wrong = Options();
  wrong.trust.secret = "another";
  EXPECT_THAT(Membership::Join(job.role(1), wrong, Soon()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("secret")));
  wrong.trust.secret = "";
  EXPECT_THAT(Membership::Join(job.role(1), wrong, Soon()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("secret")));
}

// Connects to the job's port and sends `text`.
base::Descriptor Stranger(const Endpoint& endpoint, std::string_view text) {
  channel::Address address;
  address.host = endpoint.host;
  address.port = endpoint.port;
  const channel::SocketAddress to = Resolve(address).value().front();
  auto fd = base::Descriptor::OfThisProcess(
      socket(to.storage.ss_family, SOCK_STREAM, 0));
  EXPECT_EQ(connect(fd.get(), to.get(), to.byte_size), 0);
  EXPECT_EQ(write(fd.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  return fd;
}

TEST(MembershipJoin, GarbageAndSilenceAtThePortDisturbNobody) {
  WaitingJob job;
  const base::Descriptor silent = Stranger(job.endpoint(), "");
  const base::Descriptor web =
      Stranger(job.endpoint(), "GET / HTTP/1.1\r\n\r\n");
  job.Join(1);
}

// Somebody who knows the secret and says hello, but then talks nonsense.
TEST(MembershipJoin, NonsenseAfterTheHelloDisturbsNobody) {
  WaitingJob job;
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kWorker, 1};
  options.trust = Options().trust;
  channel::Address address;
  address.host = job.endpoint().host;
  address.port = job.endpoint().port;
  for (const std::string& nonsense :
       {std::string("\xff nonsense"), std::string("\1"), std::string("\2"),
        std::string("\4"), std::string(1000, '\1')}) {
    ASSERT_OK_AND_ASSIGN(channel::Connection connection,
                         channel::Connect(address, options, Soon()));
    ASSERT_OK(
        connection.channel->Send(std::as_bytes(std::span(nonsense)), Soon()));
    // Beats may come before the end.
    Status end;
    while (end.ok()) {
      end = connection.channel->RecvMessage(1000, Soon()).status();
    }
    EXPECT_THAT(end, HasCode(StatusCode::kUnavailable));
  }
}

// A guest that joined and then repeats a number, over its bare connection.
TEST(MembershipJoin, ACallThatIsMadeTwiceEndsItsCallerOnly) {
  Port port;
  const Role role = Worker(1, 2, port.endpoint());
  JoinOptions host_options = Options();
  host_options.listen_fd = port.Release();
  std::unique_ptr<Membership> zero;
  std::thread host([&] {
    auto joined =
        Membership::Join(Worker(0, 2, port.endpoint()), host_options, Soon());
    EXPECT_OK(joined);
    if (joined.ok()) zero = std::move(*joined);
  });
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kWorker, 1};
  options.trust = Options().trust;
  auto connection = channel::Connect(
      FindMeetingPlace(role).value().addresses.front(), options, Soon());
  ASSERT_OK(connection);
  channel::Channel& wire = *connection->channel;
  auto send = [&](const std::string& message) {
    EXPECT_OK(wire.Send(std::as_bytes(std::span(message)), Soon()));
  };
  send(Encode(MakeJoinRequest(role, {})));
  host.join();
  ASSERT_TRUE(zero);
  for (int i = 0; i < 2; ++i) {
    MessageWriter wait;
    wait.U64(5).U8(3).Texts({"never"});
    send(MakeMessage(MessageKind::kRequest, std::move(wait)));
  }
  Status end;
  while (end.ok()) end = wire.RecvMessage(1000, Soon()).status();
  EXPECT_THAT(end, HasCode(StatusCode::kUnavailable));
  Reader at_zero(*zero);
  const std::vector<News> news = at_zero.Wait(1);
  ASSERT_EQ(news.size(), 1);
  EXPECT_EQ(news[0].kind, News::Kind::kDied);
  EXPECT_EQ(news[0].rank, 1);
  EXPECT_THAT(news[0].why.message(),
              HasSubstr("was shut out: store: a second call 5"));
  EXPECT_OK(zero->store().Set("key", "value", Soon()));
}

TEST(MembershipJoin, RankZeroTakesASocketOnlyIfItListensAtThePlace) {
  Port wrong;
  const int fd = wrong.Release();
  const Endpoint place = Port().endpoint();
  std::vector<JoinOptions> options(2, Options());
  options[0].listen_fd = fd;
  const std::vector<Role> roles = {Worker(0, 2, place), Worker(1, 2, place)};
  EXPECT_THAT(JoinAll(roles, options), testing::Each(IsOk()));
  EXPECT_NE(fcntl(fd, F_GETFD), -1) << "a stranger's socket was closed";
  close(fd);
  // Nor is it taken when it is none any more.
  EXPECT_THAT(JoinAll(roles, options), testing::Each(IsOk()));
}

TEST(MembershipJoin, ASecondProcessOfOneRankIsRefused) {
  Port port;
  std::vector<JoinOptions> options(3, Options());
  options[0].listen_fd = port.Release();
  // Rank 2 never comes, so that the first rank 1 is still waiting.
  const std::vector<Status> outcomes =
      JoinAll({Worker(0, 3, port.endpoint()), Worker(1, 3, port.endpoint()),
               Worker(1, 3, port.endpoint())},
              options, 2s);
  EXPECT_THAT(outcomes[0],
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 2 of 3"),
                             HasSubstr("is not the only rank 1: rank 1 ("))));
  EXPECT_THAT(std::vector<Status>(outcomes.begin() + 1, outcomes.end()),
              testing::UnorderedElementsAre(
                  HasCode(StatusCode::kDeadlineExceeded),
                  StatusIs(StatusCode::kFailedPrecondition,
                           HasSubstr("is not the only rank 1: rank 1 ("))));
}

TEST(MembershipJoin, AThirdProcessInAFullJobIsRefused) {
  Job job(2);
  Reader at_zero(job[0]);
  EXPECT_THAT(Membership::Join(job.role(1), Options(), Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("is not the only rank 1")));
  EXPECT_OK(job[1].store().Set("key", "value", Soon()));
}

TEST(MembershipJoin, TheSameProcessesJoinAgainAfterTheyLeft) {
  Job job(2);
  job[1].Leave(Soon());
  // Rank 1 is there again before rank 0 has left, which still listens.
  testing::SleepingThreads waiters;
  std::thread again([&] {
    waiters.Enter();
    auto guest = Membership::Join(job.role(1), Options(), Soon());
    ASSERT_OK(guest);
    EXPECT_OK((*guest)->store().Wait({"key"}, Soon()));
    (*guest)->Leave(Soon());
  });
  waiters.Await(1);
  job[0].Leave(Soon());
  JoinOptions options = Options();
  options.listen_fd = job.listen_fd();
  auto host = Membership::Join(job.role(0), options, Soon());
  EXPECT_OK(host);
  if (host.ok()) {
    EXPECT_NE((*host)->job_id(), job[0].job_id());
    EXPECT_OK((*host)->store().Set("key", "value", Soon()));
    (*host)->Leave(Soon());
  }
  again.join();
}

TEST(MembershipJoin, CanBeInterrupted) {
  const Endpoint nobody = Port().endpoint();
  for (int rank : {0, 1}) {
    JoinOptions options = Options();
    options.interrupt = [asked = 0]() mutable {
      return ++asked < 3 ? OkStatus() : FailedPrecondition("^C");
    };
    EXPECT_THAT(Membership::Join(Worker(rank, 2, nobody), options, Soon()),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("^C")));
  }
}

TEST(MembershipJoin, AServerIsNoWorker) {
  Role role;
  role.kind = RoleKind::kServer;
  role.server_num = 1;
  EXPECT_THAT(Membership::Join(role, {}, Soon()),
              HasCode(StatusCode::kInvalidArgument));
}

// By environments of launchers that give no endpoints.

Environment Torchrun(int rank, const Endpoint& master,
                     const std::string& run_id) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", master.host},
          {"MASTER_PORT", std::to_string(master.port)},
          {"TORCHELASTIC_RUN_ID", run_id}};
}

Role Read(const Environment& env) {
  return RoleFromEnvironment(env, /*is_collective=*/true).value();
}

TEST(MembershipJoin, TorchrunsRanksMeetAtTheMasterPort) {
  const Endpoint master = Port().endpoint();
  EXPECT_THAT(
      JoinAll({Read(Torchrun(0, master, "a")), Read(Torchrun(1, master, "a"))},
              {Options(), Options()}),
      testing::Each(IsOk()));
}

TEST(MembershipJoin, TorchrunsRanksMeetWhenAnotherHoldsTheMasterPort) {
  const Port taken;  // listens, and never says a word
  EXPECT_THAT(JoinAll({Read(Torchrun(0, taken.endpoint(), "a")),
                       Read(Torchrun(1, taken.endpoint(), "a"))},
                      {Options(), Options()}),
              testing::Each(IsOk()));
}

TEST(MembershipJoin, TorchrunsRanksDoNotJoinAnotherJob) {
  const Endpoint master = Port().endpoint();
  // The first job takes the port, and all four ranks ask there.
  EXPECT_THAT(
      JoinAll({Read(Torchrun(0, master, "a")), Read(Torchrun(1, master, "a")),
               Read(Torchrun(0, master, "b")), Read(Torchrun(1, master, "b"))},
              std::vector<JoinOptions>(4, Options())),
      testing::Each(IsOk()));
}

TEST(MembershipJoin, RanksOfOpenMpiOnOneHostMeetByTheNameOfTheirJob) {
  auto role = [](int rank) {
    return Read({{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                 {"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                 {"PMIX_NAMESPACE", "test-" + std::to_string(getpid())}});
  };
  EXPECT_THAT(JoinAll({role(0), role(1)}, {Options(), Options()}),
              testing::Each(IsOk()));
}

}  // namespace
}  // namespace fleet::cluster
