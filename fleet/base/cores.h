// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_BASE_CORES_H_
#define FLEET_BASE_CORES_H_

namespace fleet::base {

// How many cores this process may run on, at least one; fewer than the machine
// has where taskset, mpirun or a container said so.
int NumCores();

}  // namespace fleet::base

#endif  // FLEET_BASE_CORES_H_
