// SPDX-License-Identifier: Apache-2.0

// Starting one process of a job.

#ifndef FLEET_LAUNCH_PROCESS_H_
#define FLEET_LAUNCH_PROCESS_H_

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"

namespace fleet::launch {

// What to execute.
struct Command {
  std::string program;                 // a path
  std::vector<std::string> arguments;  // argv, the program's name first
};

// The command for a script: *.py by Python, unbuffered, everything else as it
// is, found in PATH when it is no path. Python is FLEET_PYTHON, or else
// `python` beside `invoked_as`, the path by which fleetrun was started, or else
// python3 in PATH. NotFound when script or program is not there.
Result<Command> CommandFor(const std::string& script,
                           const std::vector<std::string>& script_arguments,
                           const cluster::Environment& env,
                           std::string_view invoked_as);

// The command for servers that run a program of their own, which is also looked
// for beside fleetrun.
Result<Command> ServerCommandFor(const std::string& program,
                                 const cluster::Environment& env,
                                 std::string_view invoked_as);

// Starts it with exactly `env`, and FLEET_LISTEN_FD for `listen_fd` unless that
// is -1. It reads nothing, writes to `log_fd`, leads a process group of its
// own, and is killed when this process dies.
Result<pid_t> StartProcess(const Command& command, cluster::Environment env,
                           int log_fd, int listen_fd);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_PROCESS_H_
