// SPDX-License-Identifier: Apache-2.0

// What a user says to fleetrun. The flags are those of all of Paddle's
// launchers; docs/howto/launch.md lists them with examples.

#ifndef FLEET_LAUNCH_OPTIONS_H_
#define FLEET_LAUNCH_OPTIONS_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::launch {

enum class LaunchMode {
  kCollective,  // equal ranks
  kServers,     // workers and parameter servers
};

struct LaunchOptions {
  // How many processes, and on which devices. Lists are as the user wrote them;
  // what is unset was not said.
  std::optional<std::string> gpus;  // "0,1", or "cpu"
  std::optional<int> nproc_per_node;
  std::optional<std::string> run_mode;  // collective, ps, ps-heter
  std::optional<std::string> backend;   // auto, nccl, gloo: gloo means CPU

  // Hosts.
  std::optional<std::string> ips;
  std::optional<std::string> host;    // which of `ips` this one is
  std::optional<std::string> master;  // "ip:port", where launchers meet
  std::optional<int> nnodes;
  std::optional<int> node_rank;
  std::optional<int> start_port;
  bool use_paddlecloud = false;

  // Parameter servers.
  std::optional<std::string> servers, workers, heter_workers;
  std::optional<int> server_num, worker_num, heter_worker_num;
  std::optional<int> http_port;
  // What servers run; the script, when not said.
  std::optional<std::string> server_program;

  // How the job is run.
  std::string log_dir = "log";
  std::optional<std::string> secret_file;
  int max_restarts = 0;
  double grace_seconds = 5;          // between SIGTERM and SIGKILL
  double server_grace_seconds = 10;  // for servers after the last worker
  // Unset: the short banner. True: the long one. False: none.
  std::optional<bool> print_config;
  std::optional<std::string> job_id;     // what the user calls the job
  std::optional<std::string> log_level;  // DEBUG, INFO, WARNING or ERROR

  std::string script;
  std::vector<std::string> script_arguments;
};

// fleetrun --help: this text goes to stdout.
struct LaunchHelp {
  std::string text;
};

// Reads the arguments behind the program's name. The first one that belongs to
// no flag is the script, and all behind it is the script's. Of a flag given
// twice the last counts. InvalidArgument names the flag.
Result<std::variant<LaunchOptions, LaunchHelp>> ParseLaunchOptions(
    const std::vector<std::string>& arguments);

// By run_mode, else by whether any flag speaks of servers or workers.
// InvalidArgument for a run_mode that does not exist.
Result<LaunchMode> ModeOf(const LaunchOptions& options);

// The lines between the rules of the long banner, "key: value", sorted.
std::string DescribeOptions(const LaunchOptions& options);
// "key=value key=value": those of these that were given, as the short banner
// has them.
std::string DescribeGivenOptions(const LaunchOptions& options);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_OPTIONS_H_
