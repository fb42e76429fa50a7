// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/launch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <poll.h>
#include <random>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/file_name.h"
#include "fleet/channel/hmac.h"
#include "fleet/channel/secret.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/launch/guard.h"
#include "fleet/launch/job.h"
#include "fleet/launch/log_folder.h"
#include "fleet/launch/machine.h"
#include "fleet/launch/meeting.h"
#include "fleet/launch/plan.h"
#include "fleet/launch/ports.h"
#include "fleet/launch/process.h"
#include "fleet/launch/screen.h"
#include "fleet/launch/secret_file.h"
#include "fleet/launch/text.h"
#include "fleet/launch/watch.h"

namespace fleet::launch {
namespace {

using base::LogSeverity;

constexpr int kCannotStart = 2;

// What a job without a name is called.
constexpr std::string_view kUnnamedJob = "default";

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// What the user gives; else one of our own for a job on this host. Returns the
// memory that the processes read it from, where it is in no file of the user's.
Result<std::optional<SecretFile>> ChooseSecret(const LaunchOptions& options,
                                               const cluster::Environment& env,
                                               bool one_host,
                                               LaunchPlan& plan) {
  const auto given = cluster::Find(env, "FLEET_SECRET");
  const auto given_file = cluster::Find(env, "FLEET_SECRET_FILE");
  if (options.secret_file || given_file) {
    const std::string path =
        options.secret_file ? *options.secret_file : std::string(*given_file);
    RETURN_IF_ERROR(cluster::ReadSecretFile(path).status());
    plan.secret_file = std::filesystem::absolute(path);
    return std::nullopt;
  }
  channel::Secret secret;
  if (given && !given->empty()) {
    secret = *given;
  } else if (one_host && channel::CanCheckSecrets()) {
    ASSIGN_OR_RETURN(secret, channel::Secret::Random());
  } else {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(SecretFile file, SecretFile::Make(secret));
  plan.secret_file = file.path();
  return file;
}

// A job of several hosts without a secret: refused where one is required,
// otherwise a warning.
Status CheckSecret(const LaunchPlan& plan, const cluster::Environment& env,
                   bool hosts_are_named) {
  if (plan.secret_file.has_value()) return OkStatus();
  ASSIGN_OR_RETURN(const cluster::JoinSettings join,
                   cluster::ReadJoinSettings(env));
  RETURN_IF_ERROR(cluster::CheckSecretRequired(join.options));
  const std::vector<std::string> named =
      hosts_are_named ? plan.hosts : std::vector<std::string>();
  Say(LogSeverity::WARNING,
      LogLine(
          "WARNING", __FILE__, __LINE__,
          base::Concat("This job has no secret: ", cluster::WhoCanJoin(named),
                       " can join it. Give all hosts the same "
                       "--secret-file.")));
  return OkStatus();
}

// "2 servers and 4 workers", of this host.
std::string CountText(const LaunchPlan& plan) {
  const bool servers = plan.mode == LaunchMode::kServers;
  const std::pair<cluster::RoleKind, const char*> kinds[] = {
      {cluster::RoleKind::kServer, "server"},
      {cluster::RoleKind::kWorker, servers ? "worker" : "rank"},
      {cluster::RoleKind::kHeterWorker, "heter worker"}};
  std::string text;
  for (const auto& [kind, name] : kinds) {
    const int num = plan.num_local(kind);
    if (num == 0) continue;
    if (!text.empty()) text += " and ";
    text += base::Concat(num, " ", name, num == 1 ? "" : "s");
  }
  return text;
}

// Three lines on stderr: what was asked for, what runs here, and how the first
// process finds the others.
void ShowInShort(const LaunchOptions& options, const LaunchPlan& plan,
                 const cluster::Environment& env) {
  const ProcessPlan& first = plan.processes.front();
  std::string text = "fleetrun: ";
  if (options.job_id) text += "job " + *options.job_id + ", ";
  text += base::Concat(
      "Configuration Arguments: ", DescribeGivenOptions(options), "\n",
      "fleetrun: ", CountText(plan), " on this host, in ",
      plan.uses_gpus ? "GPU" : "CPU", " mode. Logs are in ", options.log_dir,
      "; --print_config shows all settings.\n",
      "fleetrun: Distributed Envs of ", NameOf(plan, first), ": ",
      VariableLine(ShownVariables(plan, ProcessEnvironment(plan, first, env))),
      "\n");
  Say(LogSeverity::INFO, text);
}

// The banner on stdout; on stderr, as Paddle's logger does it, the table.
void ShowAtLength(const LaunchOptions& options, const LaunchPlan& plan,
                  const cluster::Environment& env) {
  WriteText(STDOUT_FILENO, Banner(DescribeOptions(options)) +
                               "launch train in " +
                               (plan.uses_gpus ? "GPU" : "CPU") + " mode\n");
  const ProcessPlan& first = plan.processes.front();
  const std::string logs =
      base::Concat("The endpoints of all ranks are in ", options.log_dir,
                   "/endpoints.log, the logs in ", options.log_dir, ".");
  WriteText(
      STDERR_FILENO,
      LogLine("INFO", __FILE__, __LINE__,
              base::Concat("Local start ", plan.processes.size(),
                           " processes. First process distributed environment "
                           "info (Only For Debug): ")) +
          VariableTable(
              ShownVariables(plan, ProcessEnvironment(plan, first, env))) +
          "\n" + LogLine("INFO", __FILE__, __LINE__, logs));
}

Status WriteEndpointsLog(const std::string& log_dir, const LaunchPlan& plan) {
  const std::string path = log_dir + "/endpoints.log";
  std::ofstream file(path);
  file << EndpointsLog(plan.workers);
  file.close();
  if (!file) return InvalidArgument("--log_dir: cannot write ", path);
  return OkStatus();
}

// Runs `meeting` on a thread, so that signals are heard. One that tells to end
// ends this process: nothing has been started yet.
Status MeetUnlessTold(const GuardedJob& guard,
                      const std::function<Status()>& meeting) {
  int done[2];
  if (pipe2(done, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const base::Descriptor done_read(done[0]);
  base::Descriptor done_write(done[1]);
  Status status;
  std::jthread thread([&] {
    status = meeting();
    done_write = base::Descriptor();
  });
  pollfd events[] = {{guard.signals, POLLIN, 0},
                     {guard.front_gone, POLLIN, 0},
                     {done_read.get(), POLLIN, 0}};
  while (events[2].revents == 0) {
    poll(events, 3, -1);
    if (events[1].revents != 0) _exit(128 + SIGKILL);
    signalfd_siginfo info;
    if (events[0].revents == 0 ||
        read(guard.signals, &info, sizeof(info)) != sizeof(info)) {
      continue;
    }
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      // Not kept for the ranks: one that has only just started dies of it.
      Say(LogSeverity::WARNING,
          base::Concat("fleetrun: SIG", sigabbrev_np(signal),
                       " while hosts meet: there is no rank yet that could get "
                       "it\n"));
      continue;
    }
    WriteText(STDERR_FILENO, "fleetrun: told to end while hosts met\n");
    _exit(128 + signal);
  }
  thread.join();
  return status;
}

// Waits for the launchers of the other hosts, and completes `plan` with what
// only they know.
Result<std::vector<HostLink>> MeetHosts(
    const GuardedJob& guard, const cluster::Environment& env,
    const std::optional<MasterOptions>& master, const ReservedPorts& ports,
    LaunchPlan& plan) {
  std::vector<HostLink> links;
  if (!master && plan.hosts.size() == 1) return links;
  MeetingOptions options;
  // Secret and patience are those of the ranks.
  ASSIGN_OR_RETURN(const cluster::JoinSettings join,
                   cluster::ReadJoinSettings(
                       ProcessEnvironment(plan, plan.processes.front(), env)));
  options.trust = join.options.trust;
  if (!master) options.trust.named_hosts = plan.hosts;
  options.deadline = base::Deadline::After(join.start_timeout);
  if (!master) {
    const cluster::Endpoint place = MeetingEndpoint(plan, plan.own_host);
    for (size_t i = 0; i < plan.processes.size(); ++i) {
      if (plan.endpoint_of(plan.processes[i]) != place) continue;
      RETURN_IF_ERROR(MeetUnlessTold(guard, [&]() -> Status {
        ASSIGN_OR_RETURN(links,
                         MeetByList(plan, ports.listeners[i].get(), options));
        return OkStatus();
      }));
      return links;
    }
  }
  const HostShare share = ShareOf(plan);
  RETURN_IF_ERROR(MeetUnlessTold(guard, [&]() -> Status {
    ASSIGN_OR_RETURN(Roster roster, MeetAtMaster(*master, share, options));
    plan = JoinPlan(std::move(plan), roster);
    links = std::move(roster.links);
    return OkStatus();
  }));
  return links;
}

// The plan, as far as this host knows it alone.
Result<LaunchPlan> PlanHere(const LaunchOptions& options,
                            const cluster::Environment& env,
                            const std::optional<MasterOptions>& master) {
  const Machine machine = ThisMachine(env);
  if (!master) return MakeLaunchPlan(options, env, machine);
  std::string host;
  if (options.host) {
    host = *options.host;
  } else if (machine.is_own_address(master->master.host)) {
    host = master->master.host;
  } else {
    ASSIGN_OR_RETURN(host, AddressTowards(master->master));
  }
  ASSIGN_OR_RETURN(const LaunchMode mode, ModeOf(options));
  if (mode == LaunchMode::kServers) {
    const NumPerKind num = {options.server_num.value_or(0),
                            options.worker_num.value_or(0),
                            options.heter_worker_num.value_or(0)};
    if (num.servers + num.workers + num.heter_workers == 0) {
      return InvalidArgument(
          "--master: how many run on this host? (--server_num, --worker_num)");
    }
    return PlanServersHere(host, num, options.start_port.value_or(0),
                           options.http_port, machine);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> gpus,
                   DealGpus(options, env, machine));
  return PlanCollective({host}, 0, options.start_port.value_or(0), gpus,
                        machine);
}

// One start of the job, of which `attempt` came before.
Result<JobEnd> RunOnce(const LaunchOptions& options,
                       const cluster::Environment& env, const GuardedJob& guard,
                       const JobCommands& commands, LaunchPlan plan,
                       const std::optional<MasterOptions>& master,
                       int attempt) {
  ASSIGN_OR_RETURN(ReservedPorts ports, ReservePorts(plan));
  const bool one_host = !master && plan.hosts.size() == 1;
  ASSIGN_OR_RETURN(const std::optional<SecretFile> secret,
                   ChooseSecret(options, env, one_host, plan));
  if (!one_host) RETURN_IF_ERROR(CheckSecret(plan, env, !master));
  ASSIGN_OR_RETURN(std::vector<HostLink> links,
                   MeetHosts(guard, env, master, ports, plan));
  HostWatch hosts(std::move(links));
  RETURN_IF_ERROR(WriteEndpointsLog(options.log_dir, plan));
  if (attempt == 0 && !options.print_config) ShowInShort(options, plan, env);
  if (attempt == 0 && options.print_config == true) {
    ShowAtLength(options, plan, env);
  }
  LocalJob job(
      plan, guard, hosts,
      {.log_dir = options.log_dir,
       .grace = Milliseconds(options.grace_seconds),
       .server_grace = Milliseconds(options.server_grace_seconds),
       .max_server_restarts = std::max(0, options.max_restarts - attempt),
       .go_on_without_lost_workers =
           cluster::Find(env, "FLEET_PS_GO_ON") == "1"});
  RETURN_IF_ERROR(job.Start(commands, env, std::move(ports)));
  return job.Wait();
}

// Where the servers of this job log, each in a folder of its own, and what goes
// when they are of no use any more.
struct ServerLogs {
  std::filesystem::path folder, outermost;

  Status Remove() const {
    std::error_code error;
    std::filesystem::remove_all(outermost, error);
    if (!error) return OkStatus();
    return InvalidArgument(outermost.string(), ": ", error.message());
  }
};

// A folder with the name of the job in `ps` of the log folder, which is this
// job's alone, or in one that the user names. There others may run, under the
// same name, too.
ServerLogs PlaceServerLogs(const LaunchOptions& options,
                           const cluster::Environment& env) {
  const std::string_view name =
      cluster::Find(env, "PADDLE_JOB_ID").value_or("");
  const std::string job = base::FileNameOf(name.empty() ? kUnnamedJob : name);
  const auto given = cluster::Find(env, "FLEET_PS_LOG_DIR");
  if (given.has_value() && !given->empty()) {
    std::random_device random;
    const auto folder = std::filesystem::absolute(*given) /
                        base::Concat(job, ".", ::getpid(), ".", random());
    return {folder, folder};
  }
  const auto own = std::filesystem::absolute(options.log_dir) / "ps";
  return {own / job, own};
}

Result<int> RunJob(LaunchOptions options, const cluster::Environment& env,
                   const std::string& invoked_as, const GuardedJob& guard) {
  JobCommands commands;
  ASSIGN_OR_RETURN(
      commands.script,
      CommandFor(options.script, options.script_arguments, env, invoked_as));
  commands.script_is_python = options.script.ends_with(".py");
  commands.servers = commands.script;
  if (options.server_program) {
    ASSIGN_OR_RETURN(commands.servers, ServerCommandFor(*options.server_program,
                                                        env, invoked_as));
  }
  ASSIGN_OR_RETURN(std::optional<MasterOptions> master,
                   ReadMaster(options, env));
  ASSIGN_OR_RETURN(LaunchPlan plan, PlanHere(options, env, master));
  ASSIGN_OR_RETURN(const LogFolder logs, LogFolder::Take(options.log_dir));
  if (logs.path() != options.log_dir) {
    Say(LogSeverity::WARNING,
        base::Concat("fleetrun: the logs of another job that runs are in ",
                     options.log_dir, "; those of this one are in ",
                     logs.path(), "\n"));
    options.log_dir = logs.path();
  }
  const bool with_servers = plan.mode == LaunchMode::kServers;
  if (with_servers && options.max_restarts > 0) {
    plan.notes_folder = std::filesystem::absolute(options.log_dir);
  }
  // Hosts do not know of each other's restarts, except of servers, which the
  // workers of all hosts wait for.
  const bool one_host = !master && plan.hosts.size() == 1;
  const int max_restarts = one_host ? options.max_restarts : 0;
  if (options.max_restarts > max_restarts && !with_servers) {
    Say(LogSeverity::WARNING,
        LogLine("WARNING", __FILE__, __LINE__,
                base::Concat("--max_restarts=", options.max_restarts,
                             " is for jobs on one host: should this job fail, "
                             "it is not started again.")));
  }
  const ServerLogs server_logs = PlaceServerLogs(options, env);
  plan.server_log_folder = server_logs.folder;
  for (int attempt = 0;; ++attempt) {
    // A log is of no use to another job, nor to one that begins again, which
    // begins with its last save.
    RETURN_IF_ERROR(server_logs.Remove().WithContext("logs of servers"));
    ASSIGN_OR_RETURN(JobEnd end, RunOnce(options, env, guard, commands, plan,
                                         master, attempt));
    attempt += end.num_server_restarts;
    const bool ends =
        end.exit_code == 0 || end.was_told || attempt >= max_restarts;
    if (end.exit_code == 0) {
      const Status removed = server_logs.Remove();
      if (!removed.ok()) {
        Say(LogSeverity::WARNING,
            base::Concat("fleetrun: ", removed.message(), "\n"));
      }
    }
    if (ends) return end.exit_code;
    Say(LogSeverity::WARNING,
        base::Concat("fleetrun: starting the job again (", attempt + 1, " of ",
                     max_restarts, ")\n"));
  }
}

}  // namespace

int Launch(const LaunchOptions& options, const cluster::Environment& env,
           const std::string& invoked_as) {
  cluster::Environment told = env;
  if (options.log_level) {
    base::SetMinLogSeverity(base::LogSeverityFromName(*options.log_level));
    told.emplace("FLEET_LOG_LEVEL", *options.log_level);
  }
  if (options.job_id) told["PADDLE_JOB_ID"] = *options.job_id;
  return RunGuarded([&](const GuardedJob& guard) {
    const Result<int> code = RunJob(options, told, invoked_as, guard);
    if (code.ok()) return *code;
    WriteText(STDERR_FILENO, "fleetrun: " + code.status().message() + "\n");
    return kCannotStart;
  });
}

}  // namespace fleet::launch
