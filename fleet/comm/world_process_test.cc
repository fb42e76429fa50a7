// SPDX-License-Identifier: Apache-2.0

// Ranks that are real processes, over every way that bytes can take: killed,
// stopped, gone, at odds. This process only starts them and has no thread of
// its own, so that it can fork.

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/membership.h"
#include "fleet/comm/world.h"
#include "fleet/testing/membership_fixtures.h"

namespace fleet::comm {
namespace {

using namespace std::chrono_literals;
using cluster::Soon;
using testing::AllOf;
using testing::HasSubstr;

// One rank as a process; what it says comes line by line. Ended with the
// object.
class Rank final {
 public:
  using Say = std::function<void(const std::string&)>;

  using WaitForGo = std::function<void()>;

  explicit Rank(const std::function<void(const Say&, const WaitForGo&)>& body) {
    int ends[2];
    int go[2];
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(pipe(go), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      close(go[1]);
      body(
          [fd = ends[1]](const std::string& line) {
            const std::string text = line + "\n";
            if (write(fd, text.data(), text.size()) < 0) _exit(99);
          },
          [fd = go[0]] {
            char byte;
            if (read(fd, &byte, 1) != 1) _exit(98);
          });
      _exit(0);
    }
    close(ends[1]);
    close(go[0]);
    ear_ = ends[0];
    go_ = go[1];
  }
  Rank(const Rank&) = delete;
  ~Rank() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(ear_);
    close(go_);
  }

  void Go() { EXPECT_EQ(write(go_, "", 1), 1); }
  void Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }

  // The next line; what went wrong if there is none.
  std::string Hear() {
    const Deadline end = Soon();
    while (heard_.find('\n') == std::string::npos) {
      pollfd entry{ear_, POLLIN, 0};
      if (poll(&entry, 1, channel::PollTimeout(end)) == 0) return "(nothing)";
      char bytes[4096];
      const ssize_t count = read(ear_, bytes, sizeof(bytes));
      if (count <= 0) return "(it ended) " + heard_;
      heard_.append(bytes, static_cast<size_t>(count));
    }
    const size_t at = heard_.find('\n');
    std::string line = heard_.substr(0, at);
    heard_.erase(0, at + 1);
    return line;
  }

 private:
  pid_t pid_ = 0;
  int ear_ = -1;
  int go_ = -1;
  std::string heard_;
};

// What carries the bytes: a backend, and how many ranks a host has.
struct Way {
  const char* name;
  const char* backend;
  int ranks_per_host;

  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class WorldOfProcesses : public testing::TestWithParam<Way> {
 protected:
  using Body =
      std::function<void(World&, cluster::Membership&, const Rank::Say&)>;

  // `size` processes that join a job and run `body` when all are there.
  // What comes after `body` is the end of the process, with no good-bye.
  void Start(int size, const Body& body, cluster::JoinOptions join,
             WorldOptions options = {}) {
    cluster::Port port;
    options.backend = GetParam().backend;
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(
          [&, rank](const Rank::Say& say, const Rank::WaitForGo& wait) {
            if (rank == 0) join.listen_fd = port.Release();
            port.Close();
            options.host_key =
                base::Concat("host ", rank / GetParam().ranks_per_host);
            const Status status =
                Live(cluster::Worker(rank, size, port.endpoint()), join,
                     options, body, say, wait);
            if (!status.ok()) say(status.ToString());
          }));
    }
    port.Close();
    for (auto& rank : ranks_) EXPECT_EQ(rank->Hear(), "ready");
    for (auto& rank : ranks_) rank->Go();
  }
  void Start(int size, const Body& body) {
    Start(size, body, cluster::Options());
  }

  Rank& rank(int rank) { return *ranks_[rank]; }
  void EndAll() { ranks_.clear(); }

 private:
  static Status Live(const cluster::Role& role,
                     const cluster::JoinOptions& join,
                     const WorldOptions& options, const Body& body,
                     const Rank::Say& say, const Rank::WaitForGo& wait) {
    ASSIGN_OR_RETURN(auto membership,
                     cluster::Membership::Join(role, join, Soon()));
    ASSIGN_OR_RETURN(auto world, World::Connect(*membership, options, Soon()));
    RETURN_IF_ERROR(world->all().Barrier(Soon()));
    say("ready");
    wait();  // so that no rank fails while another is in the barrier
    body(*world, *membership, say);
    return OkStatus();
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

Status Sum(Communicator& comm, std::vector<float>& data) {
  return comm.AllReduce({reinterpret_cast<std::byte*>(data.data()), data.size(),
                         DataType::kFloat32, nullptr},
                        ReduceOp::kSum, Soon());
}

// Calls until one fails, and says how.
void SumUntilItFails(Communicator& comm, const Rank::Say& say) {
  std::vector<float> data(100'000, 1);
  Status status;
  while (status.ok()) status = Sum(comm, data);
  say(status.ToString());
}

TEST_P(WorldOfProcesses, AKilledRankIsNamedWithItsProcess) {
  for (int victim : {0, 3}) {
    Start(4, [](World& world, auto&, const Rank::Say& say) {
      std::vector<float> data(100'000, 1);
      say(Sum(world.all(), data).ToString());
      SumUntilItFails(world.all(), say);
      pause();
    });
    for (int i = 0; i < 4; ++i) EXPECT_EQ(rank(i).Hear(), "OK");
    rank(victim).Signal(SIGKILL);
    for (int i = 0; i < 4; ++i) {
      if (i == victim) continue;
      EXPECT_THAT(rank(i).Hear(),
                  AllOf(HasSubstr("Unavailable: world: "),
                        HasSubstr(base::Concat("rank ", victim)),
                        HasSubstr("process ")))
          << "rank " << i;
    }
    EndAll();
  }
}

TEST_P(WorldOfProcesses, AStoppedRankIsDeadWhenItsHeartbeatsAreMissing) {
  cluster::JoinOptions join = cluster::Options();
  join.heartbeat_interval = 100ms;
  join.heartbeat_patience = 3s;
  Start(
      3,
      [](World& world, auto&, const Rank::Say& say) {
        SumUntilItFails(world.all(), say);
        pause();
      },
      join);
  rank(1).Signal(SIGSTOP);
  for (int i : {0, 2}) {
    EXPECT_THAT(rank(i).Hear(),
                AllOf(HasSubstr("Unavailable: world: "), HasSubstr("rank 1")));
  }
}

TEST_P(WorldOfProcesses, ARankThatLeavesEarlyIsNamed) {
  Start(3, [](World& world, cluster::Membership& membership,
              const Rank::Say& say) {
    if (membership.rank() == 2) return membership.Leave(Soon());
    SumUntilItFails(world.all(), say);
    pause();
  });
  for (int i : {0, 1}) {
    EXPECT_THAT(rank(i).Hear(), AllOf(HasSubstr("Unavailable: world: "),
                                      HasSubstr("rank 2"), HasSubstr("left")));
  }
}

TEST_P(WorldOfProcesses, DifferentCallsAreShownOnAllRanks) {
  Start(3, [](World& world, cluster::Membership& membership,
              const Rank::Say& say) {
    std::vector<float> data(membership.rank() == 1 ? 5 : 4);
    say(Sum(world.all(), data).ToString());
    pause();
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(rank(i).Hear(), AllOf(HasSubstr("FailedPrecondition: world: "),
                                      HasSubstr("(sum, 5 x float32), call 2"),
                                      HasSubstr("(sum, 4 x float32), call 2")));
  }
}

TEST_P(WorldOfProcesses, ALateRankIsWaitedFor) {
  // Each process has its own. A wait looks again and again whether to go on.
  cluster::Membership* waiting = nullptr;
  WorldOptions options;
  options.interrupt = [&waiting, looks = 0]() mutable -> Status {
    if (waiting == nullptr || ++looks != 3) return OkStatus();
    return waiting->store().Set(base::Concat(waiting->rank(), " waits"), "",
                                Soon());
  };
  Start(
      3,
      [&](World& world, cluster::Membership& membership, const Rank::Say& say) {
        if (membership.rank() == 0) {
          EXPECT_OK(membership.store().Wait({"1 waits", "2 waits"}, Soon()));
        } else {
          waiting = &membership;
        }
        std::vector<float> data = {1};
        const Status status = Sum(world.all(), data);
        waiting = nullptr;
        say(base::Concat(status, " ", data[0]));
        membership.Leave(Soon());
      },
      cluster::Options(), options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rank(i).Hear(), "OK 3");
}

INSTANTIATE_TEST_SUITE_P(OneHost, WorldOfProcesses,
                         testing::Values(Way{"one host", "auto", 4}));
INSTANTIATE_TEST_SUITE_P(Tcp, WorldOfProcesses,
                         testing::Values(Way{"tcp", "tcp", 4}));
INSTANTIATE_TEST_SUITE_P(TwoHosts, WorldOfProcesses,
                         testing::Values(Way{"two hosts", "auto", 2}));

}  // namespace
}  // namespace fleet::comm
