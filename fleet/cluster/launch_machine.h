// SPDX-License-Identifier: Apache-2.0

// What this host has, found out without CUDA's libraries.

#ifndef FLEET_CLUSTER_LAUNCH_MACHINE_H_
#define FLEET_CLUSTER_LAUNCH_MACHINE_H_

#include <filesystem>
#include <string>

#include "fleet/cluster/environment.h"
#include "fleet/cluster/launch_plan.h"

namespace fleet::cluster {

// The GPUs that CUDA would show: those with a device file, as far as
// CUDA_VISIBLE_DEVICES allows. `root` is "/" but for tests.
int CountGpus(const Environment& env, const std::filesystem::path& root = "/");

// GPUs, and the cores that this process may run on.
Machine ThisMachine(const Environment& env);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_LAUNCH_MACHINE_H_
