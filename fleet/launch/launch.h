// SPDX-License-Identifier: Apache-2.0

// fleetrun: starts the processes of a job on this host, watches them, and
// leaves nothing behind.

#ifndef FLEET_LAUNCH_LAUNCH_H_
#define FLEET_LAUNCH_LAUNCH_H_

#include <string>

#include "fleet/cluster/environment.h"
#include "fleet/launch/options.h"

namespace fleet::launch {

// Runs the job and returns fleetrun's exit code: 0, or that of the process that
// failed first (128 + signal where one ended it), or 128 + signal when fleetrun
// itself was told to end, or 2 when nothing could be started. `invoked_as` is
// the path by which fleetrun was started. Called once, by a process with one
// thread.
int Launch(const LaunchOptions& options, const cluster::Environment& env,
           const std::string& invoked_as);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_LAUNCH_H_
