// SPDX-License-Identifier: Apache-2.0

// Ranks that are real processes: killed, stopped, busy, late. This process only
// starts them and has no thread of its own, so that it can fork.

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/membership.h"
#include "fleet/testing/membership_fixtures.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// What a rank tells the test, a line at a time.
class Mouth {
 public:
  explicit Mouth(int fd) : fd_(fd) {}
  void Say(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(fd_, text.data(), text.size()) < 0) _exit(99);
  }

 private:
  int fd_;
};

// A process that runs `body`; ended with the object.
class Process {
 public:
  explicit Process(const std::function<void(const Mouth&)>& body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      close(ends[0]);
      body(Mouth(ends[1]));
      _exit(0);
    }
    close(ends[1]);
    ear_ = ends[0];
  }
  Process(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) End(SIGKILL);
    close(ear_);
  }

  void Signal(int signal) { EXPECT_EQ(kill(pid_, signal), 0); }
  // Sends the signal and waits for the end.
  void End(int signal) {
    kill(pid_, signal);
    kill(pid_, SIGCONT);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

  // The next line; what went wrong if there is none.
  std::string Hear() {
    const base::Deadline end = Soon();
    while (heard_.find('\n') == std::string::npos) {
      pollfd entry{ear_, POLLIN, 0};
      const int ready = poll(&entry, 1, channel::PollTimeout(end));
      if (ready == 0) return "(nothing)";
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
  std::string heard_;
};

// Says "joined", and then all news; ends by a signal.
class JobOfProcesses {
 public:
  // `busy` runs in a rank after it said "joined".
  using Body = std::function<void(Membership&, const Mouth&)>;
  explicit JobOfProcesses(int size, JoinOptions options, Body body = {}) {
    Port port;
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Process>([&, rank](const Mouth& mouth) {
        JoinOptions own = options;
        if (rank == 0) own.listen_fd = port.Release();
        port.Close();
        Live(Worker(rank, size, port.endpoint()), own, mouth, body);
      }));
    }
    port.Close();
    for (auto& rank : ranks_) EXPECT_EQ(rank->Hear(), "joined");
  }

  static void Live(const Role& role, JoinOptions options, const Mouth& mouth,
                   const Body& body) {
    auto joined = Membership::Join(role, std::move(options), Soon());
    if (!joined.ok()) {
      mouth.Say(joined.status().message());
      return;
    }
    mouth.Say("joined");
    (*joined)->Subscribe([&mouth](const News& news) {
      static constexpr const char* kKinds[] = {"died", "left", "failed"};
      mouth.Say(base::Concat(kKinds[static_cast<int>(news.kind)], " ",
                             news.rank, ": ", news.why.message()));
    });
    if (body) body(**joined, mouth);
    while (true) pause();
  }

  Process& operator[](int rank) { return *ranks_[rank]; }

 private:
  std::vector<std::unique_ptr<Process>> ranks_;
};

// Patience that a loaded machine does not exhaust by itself.
JoinOptions Impatient() {
  JoinOptions options = Options();
  options.heartbeat_interval = std::chrono::milliseconds(100);
  options.heartbeat_patience = std::chrono::seconds(3);
  return options;
}

TEST(MembershipProcess, AKilledRankIsTold) {
  JobOfProcesses job(3, Options());
  job[1].End(SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_THAT(job[rank].Hear(), AllOf(StartsWith("died 1: rank 1 (process "),
                                        HasSubstr("its connection closed")));
  }
}

TEST(MembershipProcess, AKilledRankZeroIsTold) {
  JobOfProcesses job(3, Options());
  job[0].End(SIGKILL);
  for (int rank : {1, 2}) {
    EXPECT_THAT(job[rank].Hear(), StartsWith("died 0: rank 0 (process "));
  }
}

TEST(MembershipProcess, AStoppedRankIsDeadAndLearnsItWhenItGoesOn) {
  JobOfProcesses job(3, Impatient());
  job[1].Signal(SIGSTOP);
  for (int rank : {0, 2}) {
    EXPECT_THAT(job[rank].Hear(), AllOf(StartsWith("died 1: rank 1 (process "),
                                        HasSubstr("no sign of life for 3 s")));
  }
  job[1].Signal(SIGCONT);
  EXPECT_THAT(job[1].Hear(), StartsWith("died 1: rank 1 (process "));
}

TEST(MembershipProcess, AStoppedRankZeroIsDead) {
  JobOfProcesses job(3, Impatient());
  job[0].Signal(SIGSTOP);
  for (int rank : {1, 2}) {
    EXPECT_THAT(job[rank].Hear(), AllOf(StartsWith("died 0: rank 0 (process "),
                                        HasSubstr("no sign of life for 3 s")));
  }
}

TEST(MembershipProcess, ABusyRankIsAlive) {
  JobOfProcesses job(2, Impatient(), [](Membership& me, const Mouth& mouth) {
    // Longer than the patience.
    const base::Deadline end = base::Deadline::After(std::chrono::seconds(5));
    while (!end.expired()) continue;
    const Status met =
        me.store().Barrier("still here", me.rank(), me.size(), Soon());
    mouth.Say(met.ToString());
  });
  EXPECT_EQ(job[0].Hear(), "OK");
  EXPECT_EQ(job[1].Hear(), "OK");
}

TEST(MembershipProcess, ARankThatExitsWithoutAWordIsDead) {
  JobOfProcesses job(3, Options(), [](Membership& me, const Mouth&) {
    if (me.rank() == 2) _exit(3);
  });
  EXPECT_THAT(job[0].Hear(), StartsWith("died 2: "));
  EXPECT_THAT(job[1].Hear(), StartsWith("died 2: "));
}

TEST(MembershipProcess, ARankThatLeavesEarlyIsNotDead) {
  JobOfProcesses job(3, Options(), [](Membership& me, const Mouth&) {
    if (me.rank() != 2) return;
    me.Leave(Soon());
    _exit(0);
  });
  EXPECT_THAT(job[0].Hear(), StartsWith("left 2: "));
  EXPECT_THAT(job[1].Hear(), StartsWith("left 2: "));
  // And the job goes on.
  job[1].End(SIGKILL);
  EXPECT_THAT(job[0].Hear(), StartsWith("died 1: "));
}

// As a DataLoader's workers do, the child lives on and holds what it inherited.
TEST(MembershipProcess, AKilledRankIsToldThoughItsChildLives) {
  int alive[2];
  ASSERT_EQ(pipe2(alive, O_CLOEXEC), 0);
  JobOfProcesses job(2, Options(), [&](Membership& me, const Mouth& mouth) {
    if (me.rank() != 1) {
      close(alive[1]);
      return;
    }
    const pid_t child = fork();
    if (child == 0) {
      // Its copy of the membership is nothing that it could use or end.
      const Status used = me.store().Set("key", "value", Soon());
      mouth.Say(base::Concat("child ",
                             used.code() == StatusCode::kFailedPrecondition));
      // Until this test lets go of the other end, or ends.
      close(alive[1]);
      char byte;
      _exit(read(alive[0], &byte, 1) == 0 ? 0 : 1);
    }
    mouth.Say("forked");
  });
  close(alive[0]);
  std::vector<std::string> lines = {job[1].Hear(), job[1].Hear()};
  EXPECT_THAT(lines, testing::UnorderedElementsAre("child 1", "forked"));
  job[1].End(SIGKILL);
  EXPECT_THAT(job[0].Hear(), StartsWith("died 1: "));
  close(alive[1]);
}

// Options of a rank that says "waits" when it has waited three times for at
// least `pause`.
JoinOptions SaysThatItWaits(const Mouth& mouth,
                            std::chrono::milliseconds pause) {
  using Clock = std::chrono::steady_clock;
  JoinOptions options = Options();
  options.interrupt = [&mouth, pause, last = Clock::now(),
                       count = 0]() mutable {
    const Clock::time_point now = Clock::now();
    if (now - last >= pause && ++count == 3) mouth.Say("waits");
    last = now;
    return OkStatus();
  };
  return options;
}

TEST(MembershipProcess, ARankMayStartLate) {
  const Endpoint endpoint = Port().endpoint();
  auto start = [&](int rank) {
    return std::make_unique<Process>([&, rank](const Mouth& mouth) {
      // Between two attempts to reach rank 0 it is asked whether to go on.
      const JoinOptions options =
          rank == 1 ? SaysThatItWaits(mouth, std::chrono::milliseconds(0))
                    : Options();
      JobOfProcesses::Live(Worker(rank, 2, endpoint), options, mouth, {});
    });
  };
  const auto one = start(1);
  EXPECT_EQ(one->Hear(), "waits");
  const auto zero = start(0);
  EXPECT_EQ(one->Hear(), "joined");
  EXPECT_EQ(zero->Hear(), "joined");
}

// A rank that is killed before all are there may be started again.
TEST(MembershipProcess, ARankMayBeRestartedWhileTheJobWaits) {
  const Endpoint endpoint = Port().endpoint();
  // Rank 0 and the first rank 1 say that they wait: for longer than a hello
  // takes, so that rank 0 has taken rank 1 in.
  auto start = [&](int rank, bool says_that_it_waits) {
    return std::make_unique<Process>([&, rank,
                                      says_that_it_waits](const Mouth& mouth) {
      const JoinOptions options =
          says_that_it_waits ? SaysThatItWaits(mouth, base::kInterruptInterval)
                             : Options();
      JobOfProcesses::Live(Worker(rank, 3, endpoint), options, mouth, {});
    });
  };
  const auto zero = start(0, true);
  EXPECT_EQ(zero->Hear(), "waits");
  const auto first = start(1, true);
  EXPECT_EQ(first->Hear(), "waits");
  first->End(SIGKILL);
  const auto second = start(1, false);
  const auto two = start(2, false);
  EXPECT_EQ(zero->Hear(), "joined");
  EXPECT_EQ(second->Hear(), "joined");
  EXPECT_EQ(two->Hear(), "joined");
}

}  // namespace
}  // namespace fleet::cluster
