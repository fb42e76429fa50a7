// SPDX-License-Identifier: Apache-2.0

// Launchers of several hosts, before they start anything: that all are there,
// that all were told the same, and where the ranks of the others will listen.

#ifndef FLEET_LAUNCH_MEETING_H_
#define FLEET_LAUNCH_MEETING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/channel/trust.h"
#include "fleet/cluster/endpoint.h"
#include "fleet/cluster/environment.h"
#include "fleet/launch/options.h"
#include "fleet/launch/plan.h"
#include "fleet/launch/watch.h"

namespace fleet::launch {

struct MeetingOptions {
  channel::Trust trust;  // empty: whoever comes is believed
  base::Deadline deadline = base::Deadline::Infinite();
};

// The hosts of a plan by addresses (--ips, --servers). Each one listens at the
// first endpoint that the plan has on it, by `listen_fd`, which stays the
// caller's, and calls all others, so that also those find out who read their
// lists in another order. Returns when all hosts have found that they agree.
// The connections that stay are for HostWatch. FailedPrecondition shows what
// differs, or that the secrets do; DeadlineExceeded names the hosts that never
// came. After a failure threads may still wait for hosts until the deadline:
// the process is meant to exit.
Result<std::vector<HostLink>> MeetByList(const LaunchPlan& plan, int listen_fd,
                                         const MeetingOptions& options);

// The endpoint at which `host` of a plan is called.
cluster::Endpoint MeetingEndpoint(const LaunchPlan& plan, int host);

// What one host brings to a meeting at a master.
struct HostShare {
  std::string host;             // its address
  std::vector<uint16_t> ports;  // of its ranks, or workers
  uint16_t torch_port = 0;      // MASTER_PORT, should it be the first host
  bool with_servers = false;    // the job has servers, here or elsewhere
  std::vector<uint16_t> server_ports, heter_ports;
};
// The share of a host that has a plan, and has taken its ports.
HostShare ShareOf(const LaunchPlan& plan);

struct MasterOptions {
  cluster::Endpoint master;
  int num_hosts = 0;
  std::optional<int> node_rank;  // by arrival when not given

  friend bool operator==(const MasterOptions&, const MasterOptions&) = default;
};

// By --master, --nnodes and --rank, or PADDLE_MASTER and PADDLE_NNODES. None
// when the job is on one host, or its hosts are named otherwise.
Result<std::optional<MasterOptions>> ReadMaster(
    const LaunchOptions& options, const cluster::Environment& env);

// What all hosts have in common after a meeting.
struct Roster {
  int own_host = 0;
  std::vector<HostShare> hosts;
  std::vector<HostLink> links;  // for HostWatch
};

// The hosts of --master and --nnodes. One of them listens there: the one with
// node rank 0 or, where no rank is given, the first of those to which the
// address or name of the master belongs; the others call it. One that starts
// anew while others are waited for takes its own place. Errors as above.
Result<Roster> MeetAtMaster(const MasterOptions& master, const HostShare& own,
                            const MeetingOptions& options);

// The address of this host on the way to `peer`, without sending anything.
Result<std::string> AddressTowards(const cluster::Endpoint& peer);

// The plan of a job on one host, made one of all hosts.
LaunchPlan JoinPlan(LaunchPlan own, const Roster& roster);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_MEETING_H_
