// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/guard.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "fleet/base/check.h"
#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/launch/text.h"

namespace fleet::launch {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// Without those that whoever started fleetrun ignores: a blocked signal comes
// even when it is ignored.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : kPassedOn) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  sigaddset(&set, SIGCHLD);
  return set;
}

// Children by parent, of all processes that /proc shows.
std::multimap<pid_t, pid_t> ReadProcessTree() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, pid).ptr != end || pid == 0) continue;
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;  // it has ended
    // "pid (name) state parent ...", where a name may hold anything.
    const size_t close = stat.rfind(')');
    if (close == stat.npos || close + 4 >= stat.size()) continue;
    pid_t parent = 0;
    std::from_chars(stat.data() + close + 4, stat.data() + stat.size(), parent);
    children.emplace(parent, pid);
  }
  return children;
}

void SignalBelow(const std::multimap<pid_t, pid_t>& tree, pid_t parent,
                 int signal) {
  const auto [first, last] = tree.equal_range(parent);
  for (auto it = first; it != last; ++it) {
    kill(it->second, signal);
    SignalBelow(tree, it->second, signal);
  }
}

// Waits at most so long for a child to end.
void WaitForChild(int milliseconds) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const timespec patience = {0, milliseconds * 1000000L};
  sigtimedwait(&set, nullptr, &patience);
}

// The first process: passes signals on, until the second has ended.
int WaitForJob(pid_t job, int signals) {
  while (true) {
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) != sizeof(info)) continue;
    if (info.ssi_signo != SIGCHLD) {
      kill(job, static_cast<int>(info.ssi_signo));
      continue;
    }
    int wait_status = 0;
    const pid_t ended = waitpid(job, &wait_status, WNOHANG);
    if (ended == 0) continue;
    // It leaves nothing behind, unless it was killed.
    EndDescendants();
    if (ended != job) return 1;
    if (WIFSIGNALED(wait_status)) {
      std::fprintf(stderr,
                   "fleetrun: its process %d ended by %s; all ranks were "
                   "killed\n",
                   static_cast<int>(job), DescribeExit(wait_status).c_str());
    }
    return ExitCode(wait_status);
  }
}

}  // namespace

int RunGuarded(const std::function<int(const GuardedJob&)>& job) {
  const sigset_t set = WatchedSignals();
  FLEET_CHECK_EQ(sigprocmask(SIG_BLOCK, &set, nullptr), 0);
  // A screen that is gone must not kill us before we have ended the ranks.
  signal(SIGPIPE, SIG_IGN);
  // An ignored SIGCHLD would reap children by itself.
  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  FLEET_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  base::Descriptor front_gone(ends[0]);
  base::Descriptor alive(ends[1]);  // until the first process ends
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fleetrun: fork");
    return 1;
  }
  const base::Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC));
  if (child > 0) {
    (void)front_gone.Close();
    return WaitForJob(child, signals.get());
  }
  // Away from signals that a terminal or a kill -PGRP sends to the first. It
  // still writes to the terminal, also where that stops those in the
  // background.
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)alive.Close();
  const int code = job({signals.get(), front_gone.get()});
  EndDescendants();
  std::fflush(nullptr);
  _exit(code);
}

void LeaveGuard(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // it died before that
  setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGTTOU, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void SignalDescendants(int signal) {
  SignalBelow(ReadProcessTree(), getpid(), signal);
}

bool EndDescendants() {
  const auto deadline = base::Deadline::After(std::chrono::seconds(10));
  while (!deadline.expired()) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid > 0) continue;
    if (pid < 0 && errno == ECHILD) return true;
    // Again until none is left: some may fork while they are being killed.
    SignalDescendants(SIGKILL);
    WaitForChild(20);
  }
  return false;
}

}  // namespace fleet::launch
