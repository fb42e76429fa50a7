// SPDX-License-Identifier: Apache-2.0

// The short forms in which Slurm writes lists. `source` is the variable that
// the text came from; errors name it. Pure and thread-safe.

#ifndef FLEET_CLUSTER_SLURM_H_
#define FLEET_CLUSTER_SLURM_H_

#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::cluster {

// Node names of SLURM_NODELIST in its order: "n[08-10,12],login" is n08, n09,
// n10, n12, login. Several brackets in one name count like an odometer, the
// last one fastest. InvalidArgument for brackets or ranges that are wrong, for
// a name that occurs twice, and for more than 65536 nodes.
Result<std::vector<std::string>> ParseSlurmNodeList(std::string_view text,
                                                    std::string_view source);

// Tasks of each node, of SLURM_TASKS_PER_NODE: "2(x3),1" is 2, 2, 2, 1.
Result<std::vector<int>> ParseSlurmTasksPerNode(std::string_view text,
                                                std::string_view source);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_SLURM_H_
