// SPDX-License-Identifier: Apache-2.0

// The places where the processes of this host will listen, taken before they
// start. A process inherits its listening socket, so nobody can take the port
// in between, and who connects early waits in the socket's queue.

#ifndef FLEET_LAUNCH_PORTS_H_
#define FLEET_LAUNCH_PORTS_H_

#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"
#include "fleet/launch/plan.h"

namespace fleet::launch {

// A socket that listens for those who call `endpoint`, whose port is filled in
// when it was 0. A host that is a name is listened for as BindAddress says.
Result<base::Descriptor> OpenListener(cluster::Endpoint& endpoint);

struct ReservedPorts {
  // By process of the plan; each listens.
  std::vector<base::Descriptor> listeners;
  // Keeps torch_master's port from being given to somebody who asks for any,
  // while one who asks for it by number and SO_REUSEADDR, as torch does, gets
  // it.
  base::Descriptor torch_master;
};

// Binds the endpoints of the plan's own processes, and writes the ports chosen
// for those with port 0 into `plan`. Unavailable says which port is taken and
// which process it was for.
Result<ReservedPorts> ReservePorts(LaunchPlan& plan);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_PORTS_H_
