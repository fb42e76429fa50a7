// SPDX-License-Identifier: Apache-2.0
#include "fleet/spawn.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "fleet/base/descriptor.h"
#include "fleet/channel/secret.h"
#include "fleet/cluster/environment.h"

namespace fleet {
namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

// For the rank that failed by itself, after one that only lost it; and between
// SIGTERM and SIGKILL.
constexpr std::chrono::seconds kCausePatience{1};
constexpr std::chrono::seconds kEndPatience{5};

// What the environment of a rank is made of, taken before any is forked.
struct JobPlan {
  std::vector<Descriptor> listeners;
  std::vector<std::string> endpoints;
  std::string secret;  // "": the environment has one
};

// One of the processes, as the caller sees it.
struct Rank {
  pid_t pid = -1;     // -1: it has ended
  Descriptor report;  // its Status, and its end
};

int CountThreads() {
  int count = 0;
  std::error_code error;
  for ([[maybe_unused]] const auto& thread :
       std::filesystem::directory_iterator("/proc/self/task", error)) {
    ++count;
  }
  return count;
}

// A socket that listens at a free port of this host. It is inherited, so nobody
// can take the port before its rank listens.
Result<Descriptor> Listen(std::string& endpoint) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* bytes = reinterpret_cast<sockaddr*>(&address);
  if (!fd.valid() || bind(fd.get(), bytes, size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), bytes, &size) != 0) {
    return ErrnoStatus(errno, "spawn: cannot listen at 127.0.0.1");
  }
  endpoint = base::Concat("127.0.0.1:", ntohs(address.sin_port));
  return fd;
}

Result<JobPlan> PlanJob(int num_ranks) {
  JobPlan plan;
  for (int i = 0; i < num_ranks; ++i) {
    std::string endpoint;
    ASSIGN_OR_RETURN(Descriptor listener, Listen(endpoint));
    plan.listeners.push_back(std::move(listener));
    plan.endpoints.push_back(std::move(endpoint));
  }
  const cluster::Environment env = cluster::ReadEnvironment();
  if (!cluster::Find(env, "FLEET_SECRET") &&
      !cluster::Find(env, "FLEET_SECRET_FILE")) {
    ASSIGN_OR_RETURN(const channel::Secret secret, channel::Secret::Random());
    plan.secret = secret.text();
  }
  return plan;
}

// ---- in a rank

void Set(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);
}

// The environment that a launcher would give to this rank.
void SetEnvironment(int rank, JobPlan& plan) {
  const size_t size = plan.endpoints.size();
  std::string all;
  for (const std::string& endpoint : plan.endpoints) {
    all += (all.empty() ? "" : ",") + endpoint;
  }
  const std::string& first = plan.endpoints[0];
  const std::string number = std::to_string(rank);
  // What speaks of a job that the caller is in.
  for (const char* name : {"GROUP_RANK", "GROUP_WORLD_SIZE"}) unsetenv(name);
  Set("PADDLE_TRAINER_ID", number);
  Set("PADDLE_TRAINERS_NUM", std::to_string(size));
  Set("PADDLE_TRAINER_ENDPOINTS", all);
  Set("PADDLE_CURRENT_ENDPOINT", plan.endpoints[static_cast<size_t>(rank)]);
  Set("PADDLE_RANK_IN_NODE", number);
  Set("RANK", number);
  Set("WORLD_SIZE", std::to_string(size));
  Set("LOCAL_RANK", number);
  Set("LOCAL_WORLD_SIZE", std::to_string(size));
  Set("MASTER_ADDR", first.substr(0, first.find(':')));
  Set("MASTER_PORT", first.substr(first.find(':') + 1));
  if (!plan.secret.empty()) Set("FLEET_SECRET", plan.secret);
  const int listener = plan.listeners[static_cast<size_t>(rank)].Release();
  Set("FLEET_LISTEN_FD", std::to_string(listener));
  plan.listeners.clear();
  if (getenv("OMP_NUM_THREADS") == nullptr) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    const int threads = std::max(1, cores / static_cast<int>(size));
    Set("OMP_NUM_THREADS", std::to_string(threads));
    at::set_num_threads(threads);
  }
}

Status RunRank(const std::function<Status(Job&)>& rank_main) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Job> job, Job::Init());
  try {
    RETURN_IF_ERROR(rank_main(*job));
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
  return job->Finish();
}

// The life of a rank: its code and message go to `report`.
[[noreturn]] void LiveAsRank(int rank, JobPlan& plan, const Descriptor& report,
                             pid_t parent,
                             const std::function<Status(Job&)>& rank_main) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  SetEnvironment(rank, plan);
  const Status status = RunRank(rank_main);
  std::fflush(nullptr);
  if (status.ok()) _exit(0);
  // At most what a pipe takes at once, so that nobody has to read meanwhile.
  std::string text(1, static_cast<char>(status.code()));
  text += status.message().substr(0, 4000);
  (void)!write(report.get(), text.data(), text.size());
  _exit(1);
}

// ---- in the caller

// Why a rank failed, which has ended; ok if it did not.
Status Reap(Rank& rank, int number) {
  int how = 0;
  while (waitpid(rank.pid, &how, 0) < 0 && errno == EINTR) {
  }
  rank.pid = -1;
  std::string text(5000, '\0');
  const ssize_t size = read(rank.report.get(), text.data(), text.size());
  rank.report = Descriptor();
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return OkStatus();
  const std::string name = base::Concat("rank ", number);
  if (size > 1) {
    return Status(static_cast<StatusCode>(text[0]),
                  text.substr(1, static_cast<size_t>(size) - 1))
        .WithContext(name);
  }
  if (WIFSIGNALED(how)) {
    return Unavailable(name, " was killed by signal ", WTERMSIG(how), " (",
                       strsignal(WTERMSIG(how)), ")");
  }
  return Unavailable(name, " exited with status ", WEXITSTATUS(how));
}

// The ranks that have ended by `until`; waits for one of them if none has.
std::vector<size_t> WaitForEnds(const std::vector<Rank>& ranks,
                                std::optional<Clock::time_point> until) {
  std::vector<pollfd> polls;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].pid < 0) continue;
    polls.push_back({.fd = ranks[i].report.get(), .events = 0, .revents = 0});
    numbers.push_back(i);
  }
  int patience = -1;
  if (until.has_value()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    patience = static_cast<int>(std::max<int64_t>(0, left.count()));
  }
  while (poll(polls.data(), polls.size(), patience) < 0 && errno == EINTR) {
  }
  std::vector<size_t> ended;
  for (size_t i = 0; i < polls.size(); ++i) {
    if ((polls[i].revents & POLLHUP) != 0) ended.push_back(numbers[i]);
  }
  return ended;
}

bool AnyRuns(const std::vector<Rank>& ranks) {
  return std::ranges::any_of(ranks,
                             [](const Rank& rank) { return rank.pid >= 0; });
}

void EndAll(std::vector<Rank>& ranks) {
  const auto signal_all = [&](int signal) {
    for (const Rank& rank : ranks) {
      if (rank.pid >= 0) kill(rank.pid, signal);
    }
  };
  signal_all(SIGTERM);
  const auto until = Clock::now() + kEndPatience;
  while (AnyRuns(ranks) && Clock::now() < until) {
    for (const size_t i : WaitForEnds(ranks, until)) {
      (void)Reap(ranks[i], static_cast<int>(i));
    }
  }
  signal_all(SIGKILL);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].pid >= 0) (void)Reap(ranks[i], static_cast<int>(i));
  }
}

// Waits for all, or for the first failure and its cause.
Status WaitForAll(std::vector<Rank>& ranks) {
  Status failure;
  std::optional<Clock::time_point> until;
  while (AnyRuns(ranks)) {
    for (const size_t i : WaitForEnds(ranks, until)) {
      Status status = Reap(ranks[i], static_cast<int>(i));
      if (status.ok()) continue;
      // A rank that lost another one says Unavailable; that other tells more.
      const bool tells_more = failure.code() == StatusCode::kUnavailable &&
                              status.code() != StatusCode::kUnavailable;
      if (failure.ok() || tells_more) failure = std::move(status);
      if (!until.has_value()) until = Clock::now() + kCausePatience;
    }
    const bool cause_known =
        !failure.ok() && failure.code() != StatusCode::kUnavailable;
    if (cause_known || (until.has_value() && Clock::now() >= *until)) break;
  }
  EndAll(ranks);
  return failure;
}

}  // namespace

Status Spawn(int num_ranks, const std::function<Status(Job&)>& rank_main) {
  if (num_ranks < 1) {
    return InvalidArgument("spawn: a job has at least one rank, not ",
                           num_ranks);
  }
  if (const int threads = CountThreads(); threads != 1) {
    return FailedPrecondition(
        "spawn: this process has ", threads,
        " threads, and a fork copies one only: call Spawn first");
  }
  ASSIGN_OR_RETURN(JobPlan plan, PlanJob(num_ranks));
  std::fflush(nullptr);  // else the ranks would write it, too
  const pid_t parent = getpid();
  std::vector<Rank> ranks(static_cast<size_t>(num_ranks));
  for (int i = 0; i < num_ranks; ++i) {
    Rank& rank = ranks[static_cast<size_t>(i)];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      const Status failure = ErrnoStatus(errno, "spawn: pipe");
      EndAll(ranks);
      return failure;
    }
    rank.report = Descriptor(ends[0]);
    const Descriptor writer(ends[1]);
    rank.pid = fork();
    if (rank.pid == 0) {
      ranks.clear();
      LiveAsRank(i, plan, writer, parent, rank_main);
    }
    if (rank.pid < 0) {
      const Status failure = ErrnoStatus(errno, "spawn: fork");
      EndAll(ranks);
      return failure;
    }
  }
  plan.listeners.clear();  // the ranks have them
  return WaitForAll(ranks);
}

}  // namespace fleet
