// SPDX-License-Identifier: Apache-2.0

// What this host has, found out without CUDA's libraries.

#ifndef FLEET_LAUNCH_MACHINE_H_
#define FLEET_LAUNCH_MACHINE_H_

#include <filesystem>
#include <string>

#include "fleet/cluster/environment.h"
#include "fleet/launch/plan.h"

namespace fleet::launch {

// The GPUs that CUDA would show: those with a device file, as far as
// CUDA_VISIBLE_DEVICES allows. `root` is "/" but for tests.
int CountGpus(const cluster::Environment& env,
              const std::filesystem::path& root = "/");

// GPUs, and the cores that this process may run on.
Machine ThisMachine(const cluster::Environment& env);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_MACHINE_H_
