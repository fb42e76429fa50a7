// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launch.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/random.h>
#include <unistd.h>

#include "fleet/base/file_system.h"
#include "fleet/channel/hmac.h"
#include "fleet/cluster/launch_guard.h"
#include "fleet/cluster/launch_job.h"
#include "fleet/cluster/launch_machine.h"
#include "fleet/cluster/launch_plan.h"
#include "fleet/cluster/launch_ports.h"
#include "fleet/cluster/launch_process.h"
#include "fleet/cluster/launch_screen.h"
#include "fleet/cluster/launch_text.h"

namespace fleet::cluster {
namespace {

constexpr int kCannotStart = 2;

int CannotStart(const Status& status) {
  WriteText(STDERR_FILENO, "fleetrun: " + status.message() + "\n");
  return kCannotStart;
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Result<std::string> RandomSecret() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return ErrnoStatus(errno, "a random job secret");
  }
  std::string text;
  char digits[3];
  for (unsigned char byte : bytes) {
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

// Where the build has no OpenSSL, nobody could check one.
bool CanCheckSecrets() { return channel::HmacSha256("key", {}).ok(); }

// What the user gives; else one of our own for a job on this host.
Status ChooseSecret(const LaunchOptions& options, const Environment& env,
                    LaunchPlan& plan) {
  const auto given = Find(env, "FLEET_SECRET");
  const auto given_file = Find(env, "FLEET_SECRET_FILE");
  if (options.secret_file || given_file) {
    const std::string path =
        options.secret_file ? *options.secret_file : std::string(*given_file);
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || size == 0) {
      return InvalidArgument("the secret file ", path, ": ",
                             error ? error.message() : "is empty");
    }
    plan.secret_file = std::filesystem::absolute(path);
  } else if (given && !given->empty()) {
    plan.secret = *given;
  } else if (plan.hosts.size() > 1) {
    WriteText(STDERR_FILENO,
              LogLine("WARNING", __FILE__, __LINE__,
                      "This job has no secret: whoever reaches its ports can "
                      "join it. Give all hosts the same --secret-file."));
  } else if (CanCheckSecrets()) {
    ASSIGN_OR_RETURN(plan.secret, RandomSecret());
  }
  return OkStatus();
}

// The banner on stdout; on stderr, as Paddle's logger does it, the table.
void Show(const LaunchOptions& options, const LaunchPlan& plan,
          const Environment& env) {
  if (!options.print_config) return;
  WriteText(STDOUT_FILENO, Banner(DescribeOptions(options)) +
                               "launch train in " +
                               (plan.uses_gpus ? "GPU" : "CPU") + " mode\n");
  const ProcessPlan& first = plan.processes.front();
  const std::string details =
      base::Concat("details abouts PADDLE_TRAINER_ENDPOINTS can be found in ",
                   options.log_dir,
                   "/endpoints.log, and detail running logs maybe found in ",
                   options.log_dir, "/workerlog.0");
  WriteText(
      STDERR_FILENO,
      LogLine("INFO", __FILE__, __LINE__,
              base::Concat("Local start ", plan.processes.size(),
                           " processes. First process distributed environment "
                           "info (Only For Debug): ")) +
          VariableTable(
              ShownVariables(plan, ProcessEnvironment(plan, first, env))) +
          "\n" + LogLine("INFO", __FILE__, __LINE__, details));
}

Status WriteEndpointsLog(const std::string& log_dir, const LaunchPlan& plan) {
  std::error_code error;
  std::filesystem::create_directories(log_dir, error);
  if (error)
    return InvalidArgument("--log_dir ", log_dir, ": ", error.message());
  const std::string path = log_dir + "/endpoints.log";
  std::ofstream file(path);
  file << EndpointsLog(plan.workers);
  file.close();
  if (!file) return InvalidArgument("--log_dir: cannot write ", path);
  return OkStatus();
}

// One start of the job, of which `attempt` came before.
Result<JobEnd> RunOnce(const LaunchOptions& options, const Environment& env,
                       const GuardedJob& guard, const Command& command,
                       LaunchPlan plan, int attempt) {
  ASSIGN_OR_RETURN(ReservedPorts ports, ReservePorts(plan));
  RETURN_IF_ERROR(ChooseSecret(options, env, plan));
  RETURN_IF_ERROR(WriteEndpointsLog(options.log_dir, plan));
  if (attempt == 0) Show(options, plan, env);
  LocalJob job(
      plan, guard,
      {.log_dir = options.log_dir,
       .append_to_logs = plan.mode == LaunchMode::kCollective || attempt > 0,
       .grace = Milliseconds(options.grace_seconds),
       .server_grace = Milliseconds(options.server_grace_seconds)});
  RETURN_IF_ERROR(job.Start(command, env, std::move(ports)));
  return job.Wait();
}

int RunJob(const LaunchOptions& options, const Environment& env,
           const std::string& invoked_as, const GuardedJob& guard) {
  Result<Command> command =
      CommandFor(options.script, options.script_arguments, env, invoked_as);
  if (!command.ok()) return CannotStart(command.status());
  Result<LaunchPlan> plan = MakeLaunchPlan(options, env, ThisMachine(env));
  if (!plan.ok()) return CannotStart(plan.status());
  for (int attempt = 0;; ++attempt) {
    const Result<JobEnd> end =
        RunOnce(options, env, guard, *command, *plan, attempt);
    if (!end.ok()) return CannotStart(end.status());
    if (end->exit_code == 0 || end->was_told || plan->hosts.size() > 1 ||
        attempt == options.max_restarts) {
      return end->exit_code;
    }
    WriteText(STDERR_FILENO,
              base::Concat("fleetrun: starting the job again (", attempt + 1,
                           " of ", options.max_restarts, ")\n"));
  }
}

}  // namespace

int Launch(const LaunchOptions& options, const Environment& env,
           const std::string& invoked_as) {
  return RunGuarded([&](const GuardedJob& guard) {
    return RunJob(options, env, invoked_as, guard);
  });
}

}  // namespace fleet::cluster
