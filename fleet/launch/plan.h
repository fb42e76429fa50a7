// SPDX-License-Identifier: Apache-2.0

// From what the user said to the processes that have to run here, each with
// its environment. All of it is pure; nothing is started.
//
//   ASSIGN_OR_RETURN(LaunchPlan plan, MakeLaunchPlan(options, env, machine));
//   ASSIGN_OR_RETURN(auto ports, ReservePorts(plan));     // launch_ports.h
//   for (const ProcessPlan& process : plan.processes)
//     Start(process, ProcessEnvironment(plan, process, env));

#ifndef FLEET_LAUNCH_PLAN_H_
#define FLEET_LAUNCH_PLAN_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/endpoint.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"
#include "fleet/launch/options.h"

namespace fleet::launch {

// What a plan depends on besides words.
struct Machine {
  int num_gpus = 0;
  int num_cores = 1;
  // Whether an address or name belongs to this host.
  std::function<bool(const std::string&)> is_own_address;
};

// One process of this host.
struct ProcessPlan {
  cluster::RoleKind kind = cluster::RoleKind::kWorker;
  int index = 0;        // among all of its kind; a worker's rank
  int local_index = 0;  // among those of its kind on this host
  std::string gpus;     // "0", "2,3"; empty: none
};

struct LaunchPlan {
  LaunchMode mode = LaunchMode::kCollective;
  // All processes of the job by index. A port 0 is chosen when it is bound,
  // which happens only where the whole job is on this host.
  std::vector<cluster::Endpoint> workers, servers, heter_workers;
  std::vector<std::string> hosts;  // of the job, each once
  int own_host = 0;                // index in `hosts`
  bool uses_gpus = false;
  int num_cores = 1;
  // MASTER_ADDR and MASTER_PORT, for programs that bring torch's own
  // rendezvous: a port that nobody listens at until their rank 0 does. The port
  // may be 0 as above, and stays 0 where none can be promised.
  cluster::Endpoint torch_master;
  // Where the processes of this host find the job's secret; none: it has none.
  std::optional<std::string> secret_file;
  std::optional<int> http_port;
  // Where servers note their last save, one file each, so that one that failed
  // can be started again from there. Empty: they are not started again.
  std::string notes_folder;
  // Where servers log what they acknowledge, where they do
  // (FLEET_PS_DURABILITY).
  std::string server_log_folder;
  // The processes of this host: servers, then workers, then heter workers.
  std::vector<ProcessPlan> processes;

  const cluster::Endpoint& endpoint_of(const ProcessPlan& process) const;
  cluster::Endpoint& endpoint_of(const ProcessPlan& process);
  // How many processes of `kind` this host has.
  int num_local(cluster::RoleKind kind) const;
};

// Where the job of `options` runs, except with --master, where hosts have to
// talk first (launch_meeting.h). InvalidArgument names the flag or variable.
Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const cluster::Environment& env,
                                  const Machine& machine);

// The devices of each rank on this host, as the flags deal them: "" where a
// rank has none.
Result<std::vector<std::string>> DealGpus(const LaunchOptions& options,
                                          const cluster::Environment& env,
                                          const Machine& machine);

// A collective job on `hosts`, of which this is `own_host`: on each, ranks at
// the ports from `start_port` on, or any ports for 0.
LaunchPlan PlanCollective(std::vector<std::string> hosts, int own_host,
                          int start_port, const std::vector<std::string>& gpus,
                          const Machine& machine);

// A job with servers on this host alone, at ports from `start_port` on, or any
// for 0. Others may join it (JoinPlan).
struct NumPerKind {
  int servers = 0;
  int workers = 0;
  int heter_workers = 0;
};
LaunchPlan PlanServersHere(const std::string& host, const NumPerKind& num,
                           int start_port, std::optional<int> http_port,
                           const Machine& machine);

// What the process finds in its environment: `inherited` without proxies and
// without what an outer job left, Paddle's variables, torchrun's, and Fleet's.
cluster::Environment ProcessEnvironment(const LaunchPlan& plan,
                                        const ProcessPlan& process,
                                        const cluster::Environment& inherited);

// The variables that the table on the screen shows, in its order.
std::vector<std::pair<std::string, std::string>> ShownVariables(
    const LaunchPlan& plan, const cluster::Environment& environment);

// "rank 1", "worker 1", "server 0": how messages call a process.
std::string NameOf(const LaunchPlan& plan, const ProcessPlan& process);
// "workerlog.1", "serverlog.0", "heterlog.0".
std::string LogNameOf(const ProcessPlan& process);
// Where a server notes its last save; empty for other processes, and where they
// note nothing.
std::string NoteOf(const LaunchPlan& plan, const ProcessPlan& process);
// What the servers promise of acknowledged updates, as far as a launcher knows:
// FLEET_PS_DURABILITY, else "log" where they may be started again. Where the
// variable is not set, the program of the servers may say something else.
std::string DurabilityOf(const LaunchPlan& plan,
                         const cluster::Environment& env);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_PLAN_H_
