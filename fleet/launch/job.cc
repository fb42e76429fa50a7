// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <iomanip>
#include <poll.h>
#include <sstream>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/base/descriptor.h"
#include "fleet/channel/socket.h"
#include "fleet/launch/text.h"

namespace fleet::launch {
namespace {

using std::chrono::milliseconds;

// How late a line of the log may be on the screen.
constexpr milliseconds kScreenInterval{50};

// A process that dies takes others with it, which see that it is gone while the
// kernel still cleans up behind it, and may end before it. Some say that they
// fail because of another; then that one is waited for. It may also be stopped,
// or on a host that vanished, so not for ever.
constexpr milliseconds kFirstFailurePatience{100};
constexpr milliseconds kCulpritPatience{5000};

// By a signal that is not the program's own way to give up.
bool WasKilled(int wait_status) {
  return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) != SIGABRT;
}

using base::LogSeverity;

void WriteError(const std::string& text) { Say(LogSeverity::ERROR, text); }

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

LocalJob::LocalJob(const LaunchPlan& plan, const GuardedJob& guard,
                   HostWatch& hosts, JobOptions options)
    : plan_(plan),
      guard_(guard),
      hosts_(hosts),
      options_(std::move(options)),
      begin_(std::chrono::steady_clock::now()),
      num_hosts_waited_for_(hosts.num_links()) {}

bool LocalJob::Running::fails_by_others() const {
  return said == cluster::LauncherWord::kOthersFailed &&
         !WasKilled(wait_status);
}

Status LocalJob::Start(JobCommands commands, cluster::Environment env,
                       ReservedPorts ports) {
  ASSIGN_OR_RETURN(listener_, WordListener::Open());
  commands_ = std::move(commands);
  env_ = std::move(env);
  for (size_t i = 0; i < plan_.processes.size(); ++i) {
    const ProcessPlan& plan = plan_.processes[i];
    Running process = {&plan, options_.log_dir + "/" + LogNameOf(plan)};
    RETURN_IF_ERROR(StartOne(process, ports.listeners[i].get()));
    if (options_.max_server_restarts > 0 &&
        plan.kind == cluster::RoleKind::kServer) {
      process.listener = std::move(ports.listeners[i]);
    }
    if (plan.kind == cluster::RoleKind::kWorker && plan.local_index == 0) {
      screen_.emplace(process.log_path, process.log_begin, STDOUT_FILENO);
    }
    running_.push_back(std::move(process));
  }
  return OkStatus();
}

Status LocalJob::StartOne(Running& process, int listen_fd) {
  const base::Descriptor log(open(process.log_path.c_str(),
                                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                                  0640));
  if (!log.valid()) return ErrnoStatus(errno, process.log_path);
  process.log_begin = lseek(log.get(), 0, SEEK_END);
  const bool is_server = process.plan->kind == cluster::RoleKind::kServer;
  cluster::Environment env = ProcessEnvironment(plan_, *process.plan, env_);
  env["FLEET_LAUNCHER"] = ToString(
      cluster::LauncherPlace{listener_->address(), LogNameOf(*process.plan)});
  ++process.num_starts;
  if (is_server) {
    env["FLEET_SERVER_EPOCH"] = std::to_string(process.num_starts);
  }
  ASSIGN_OR_RETURN(
      process.pid,
      StartProcess(is_server ? commands_.servers : commands_.script,
                   std::move(env), log.get(), listen_fd));
  process.ended = false;
  process.wait_status = 0;
  process.said.reset();
  return OkStatus();
}

bool LocalJob::RestartServer(Running& failed) {
  if (end_.num_server_restarts >= options_.max_server_restarts) return false;
  // It has ended because of what it does not have: it would again.
  if (failed.knows_of_loss && !WasKilled(failed.wait_status)) return false;
  const std::string note = NoteOf(plan_, *failed.plan);
  const std::string name = NameOf(plan_, *failed.plan);
  const bool logs = failed.logs.value_or(DurabilityOf(plan_, env_) != "none");
  if (!logs && access(note.c_str(), R_OK) != 0) {
    WriteError(base::Concat("fleetrun: ", name,
                            " has not saved anything from which it could be "
                            "started again\n"));
    return false;
  }
  ++end_.num_server_restarts;
  Say(LogSeverity::WARNING,
      base::Concat(Report(failed), "fleetrun: starting ", name,
                   " again from its ", logs ? "log" : "last save", " (",
                   end_.num_server_restarts, " of ",
                   options_.max_server_restarts, ")\n"));
  const Status started = StartOne(failed, failed.listener.get());
  if (!started.ok()) WriteError(started.message() + "\n");
  return started.ok();
}

bool LocalJob::GoesOnWithout(Running& failed) {
  if (phase_ != Phase::kRunning || plan_.mode != LaunchMode::kServers) {
    return false;
  }
  if (failed.plan->kind == cluster::RoleKind::kServer)
    return RestartServer(failed);
  if (!options_.go_on_without_lost_workers) return false;
  const bool others =
      std::any_of(running_.begin(), running_.end(), [&](const Running& r) {
        return r.plan->kind != cluster::RoleKind::kServer && &r != &failed &&
               (!r.ended || r.wait_status == 0);
      });
  if (!others) return false;
  Say(LogSeverity::WARNING,
      base::Concat(Report(failed), "fleetrun: the job goes on without ",
                   NameOf(plan_, *failed.plan), " (FLEET_PS_GO_ON)\n"));
  return true;
}

JobEnd LocalJob::Wait() {
  CheckWorkers();
  while (!AllEnded(/*workers_only=*/false) || WaitsForHosts() ||
         phase_ == Phase::kFailing) {
    // Once the end has begun, nobody needs to tell us to end.
    const int hosts = phase_ == Phase::kEnding ? -1 : hosts_.fd();
    pollfd events[] = {{guard_.signals, POLLIN, 0},
                       {guard_.front_gone, POLLIN, 0},
                       {hosts, POLLIN, 0},
                       {listener_->fd(), POLLIN, 0}};
    poll(events, 4, PollPatience());
    if (events[1].revents != 0) {
      // kill -9 of fleetrun: there is nobody to tell.
      EndDescendants();
      _exit(128 + SIGKILL);
    }
    if (events[3].revents != 0) HearWords();
    if (events[0].revents != 0) HandleSignals();
    if (events[2].revents != 0) HandleHosts();
    CheckDeadline();
    if (screen_) screen_->Copy();
  }
  // What they left running, whatever its depth.
  EndDescendants();
  if (end_.exit_code == 0) hosts_.TellDone();
  FinishScreen();
  RemarkIfNeverMet();
  RemarkIfLost();
  if (plan_.num_local(cluster::RoleKind::kServer) > 0 && end_.exit_code == 0) {
    Say(LogSeverity::INFO, servers_were_told_
                               ? "fleetrun: the servers did not end by "
                                 "themselves and were ended\n"
                               : "fleetrun: all servers have ended\n");
  }
  return end_;
}

void LocalJob::HandleSignals() {
  signalfd_siginfo info;
  if (read(guard_.signals, &info, sizeof(info)) != sizeof(info)) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGCHLD) return Reap();
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    // A message for the script, say that the batch system will end it soon.
    for (const Running& process : running_) {
      if (!process.ended) kill(process.pid, signal);
    }
    return;
  }
  if (end_.was_told) {
    // Told twice: somebody is in a hurry.
    phase_deadline_ = base::Deadline::After(milliseconds(0));
    return;
  }
  Say(LogSeverity::WARNING,
      base::Concat("fleetrun: SIG", sigabbrev_np(signal), ": ending ",
                   running_.size(), " processes\n"));
  end_.was_told = true;
  if (end_.exit_code == 0) {
    end_.exit_code = 128 + signal;
    hosts_.TellFailure(
        {end_.exit_code,
         base::Concat("fleetrun on host ", HostName(), " was ended by SIG",
                      sigabbrev_np(signal))});
  }
  End(signal);
}

void LocalJob::HandleHosts() {
  // A rank that died of the same failure says more about it.
  Reap();
  for (const HostNews& news : hosts_.TakeNews()) {
    if (news.kind == HostNews::Kind::kWorkersEnded) {
      --num_hosts_waited_for_;
    } else if (phase_ == Phase::kFailing && !OnlyByOthers()) {
      Fail();
    } else if (phase_ != Phase::kEnding) {
      FailElsewhere(news.failure);
    }
  }
  CheckWorkers();
}

void LocalJob::FailElsewhere(const JobFailure& failure) {
  if (screen_) screen_->Copy();
  WriteError(base::Concat("fleetrun: ", failure.text,
                          ". Ending the processes of this host.\n"));
  end_.exit_code = failure.exit_code;
  // The first host passes it on to the others.
  hosts_.TellFailure(failure);
  End(SIGTERM);
}

void LocalJob::Reap() {
  int wait_status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
    const auto found =
        std::find_if(running_.begin(), running_.end(),
                     [pid](const Running& r) { return r.pid == pid; });
    if (found == running_.end()) continue;  // an orphan of a rank
    // What it said is there, because it has ended.
    HearWords();
    found->ended = true;
    found->wait_status = wait_status;
    if (wait_status != 0 && phase_ != Phase::kEnding &&
        !GoesOnWithout(*found)) {
      failed_.push_back(&*found);
    }
  }
  if (failed_.empty()) return CheckWorkers();
  if (phase_ == Phase::kEnding) return;
  const bool one_was_killed =
      std::any_of(failed_.begin(), failed_.end(),
                  [](const Running* r) { return WasKilled(r->wait_status); });
  const bool all_here = AllEnded(/*workers_only=*/false) &&
                        (hosts_.num_links() == 0 || !OnlyByOthers());
  if (one_was_killed || all_here) return Fail();
  const bool waits_for_culprit = OnlyByOthers();
  if (phase_ == Phase::kFailing && waits_for_culprit == waits_for_culprit_) {
    return;
  }
  phase_ = Phase::kFailing;
  waits_for_culprit_ = waits_for_culprit;
  phase_deadline_ = base::Deadline::After(
      waits_for_culprit ? kCulpritPatience : kFirstFailurePatience);
}

void LocalJob::HearWords() {
  for (const cluster::SaidWord& word : listener_->Take()) {
    for (Running& process : running_) {
      if (LogNameOf(*process.plan) != word.process) continue;
      if (word.word == cluster::LauncherWord::kMet) {
        process.has_met = true;
      } else if (word.word == cluster::LauncherWord::kLost) {
        process.knows_of_loss = true;
      } else if (word.word == cluster::LauncherWord::kLogs ||
                 word.word == cluster::LauncherWord::kLogsNothing) {
        process.logs = word.word == cluster::LauncherWord::kLogs;
      } else if (!process.said) {
        process.said = word.word;
      }
    }
  }
}

bool LocalJob::OnlyByOthers() const {
  return std::all_of(failed_.begin(), failed_.end(),
                     [](const Running* r) { return r->fails_by_others(); });
}

void LocalJob::CheckWorkers() {
  if (phase_ != Phase::kRunning || plan_.mode != LaunchMode::kServers ||
      !AllEnded(/*workers_only=*/true)) {
    return;
  }
  const bool is_first = plan_.own_host == 0;
  if (!told_workers_ended_ && (!is_first || num_hosts_waited_for_ == 0)) {
    told_workers_ended_ = true;
    hosts_.TellWorkersEnded();
  }
  if (num_hosts_waited_for_ > 0) return;
  phase_ = Phase::kServersEnding;
  phase_deadline_ = base::Deadline::After(options_.server_grace);
  if (plan_.num_local(cluster::RoleKind::kServer) == 0) return;
  Say(LogSeverity::INFO,
      "fleetrun: all workers have ended; waiting for the servers\n");
}

bool LocalJob::WaitsForHosts() const {
  return phase_ == Phase::kRunning && plan_.mode == LaunchMode::kServers &&
         plan_.own_host == 0 && num_hosts_waited_for_ > 0;
}

void LocalJob::Fail() {
  // One that was killed did not end because of another, nor did one that has
  // not said so.
  const auto order = [](const Running* r) {
    return WasKilled(r->wait_status) ? 0 : r->fails_by_others() ? 2 : 1;
  };
  std::stable_sort(
      failed_.begin(), failed_.end(),
      [&](const Running* a, const Running* b) { return order(a) < order(b); });
  if (screen_) screen_->Copy();
  const Running& first = *failed_.front();
  std::string text;
  for (const Running* r : failed_) {
    if (order(r) == order(&first)) {
      text += Report(*r);
    } else {
      text += base::Concat("fleetrun: ", Describe(*r), ", after ",
                           NameOf(plan_, *first.plan), " had. Its log is ",
                           r->log_path, ".\n");
    }
  }
  text += base::Concat("fleetrun: the job has failed because of ",
                       NameOf(plan_, *first.plan),
                       "; its other processes are ended\n");
  WriteError(text);
  end_.exit_code = ExitCode(first.wait_status);
  hosts_.TellFailure({end_.exit_code, Describe(first)});
  End(SIGTERM);
}

std::string LocalJob::Describe(const Running& failed) const {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_)
          .count();
  std::ostringstream out;
  out << NameOf(plan_, *failed.plan) << " at "
      << plan_.endpoint_of(*failed.plan) << " (host " << HostName()
      << ", process " << failed.pid
      << ") failed: " << DescribeExit(failed.wait_status) << " after "
      << std::fixed << std::setprecision(1) << seconds << " s";
  return out.str();
}

std::string LocalJob::Report(const Running& failed) const {
  std::ostringstream out;
  out << "fleetrun: " << Describe(failed) << ". Its log, " << failed.log_path;
  const std::vector<std::string> lines =
      LastLines(ReadEnd(failed.log_path, failed.log_begin));
  if (lines.empty()) {
    out << ", is empty.\n";
    return out.str();
  }
  out << ", ends with:\n";
  for (const std::string& line : lines) out << "  | " << line << "\n";
  return out.str();
}

void LocalJob::RemarkIfNeverMet() const {
  const bool met = std::any_of(running_.begin(), running_.end(),
                               [](const Running& r) { return r.has_met; });
  if (met || end_.exit_code != 0 || plan_.workers.size() < 2 ||
      plan_.mode != LaunchMode::kCollective || !commands_.script_is_python) {
    return;
  }
  Say(LogSeverity::WARNING,
      base::Concat("fleetrun: the ", plan_.workers.size(),
                   " ranks never met, so each ran the script for itself: in "
                   "Fleet fleet.init(is_collective=True) or "
                   "paddle.distributed.init_parallel_env() makes them one "
                   "job\n"));
}

void LocalJob::RemarkIfLost() const {
  for (const Running& process : running_) {
    if (!process.knows_of_loss) continue;
    Say(LogSeverity::WARNING,
        base::Concat("fleetrun: updates are lost that a server had "
                     "acknowledged before it was started again; ",
                     NameOf(plan_, *process.plan), " says which in its log, ",
                     process.log_path, "\n"));
  }
}

void LocalJob::End(int signal) {
  phase_ = Phase::kEnding;
  phase_deadline_ = base::Deadline::After(options_.grace);
  for (const Running& process : running_) {
    if (!process.ended) kill(-process.pid, signal);
  }
}

void LocalJob::CheckDeadline() {
  if (!phase_deadline_.expired()) return;
  if (phase_ == Phase::kServersEnding) {
    servers_were_told_ = true;
    return End(SIGTERM);
  }
  if (phase_ == Phase::kFailing) return Fail();
  for (const Running& process : running_) {
    if (!process.ended) kill(-process.pid, SIGKILL);
  }
  phase_deadline_ = base::Deadline::Infinite();
}

void LocalJob::FinishScreen() {
  while (screen_) {
    const int busy = screen_->Copy();
    if (busy < 0) return;
    pollfd events[] = {{busy, POLLOUT, 0},
                       {guard_.signals, POLLIN, 0},
                       {guard_.front_gone, POLLIN, 0}};
    poll(events, 3, -1);
    if (events[1].revents != 0) HandleSignals();
    if (events[2].revents != 0 || end_.was_told) return;
  }
}

bool LocalJob::AllEnded(bool workers_only) const {
  return std::all_of(running_.begin(), running_.end(), [&](const Running& r) {
    return r.ended ||
           (workers_only && r.plan->kind == cluster::RoleKind::kServer);
  });
}

int LocalJob::PollPatience() const {
  const int patience = channel::PollTimeout(phase_deadline_);
  const int interval = static_cast<int>(kScreenInterval.count());
  return patience < 0 ? interval : std::min(patience, interval);
}

}  // namespace fleet::launch
