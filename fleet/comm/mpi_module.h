// SPDX-License-Identifier: Apache-2.0

// The door between libfleet_core and libfleet_mpi.so: one function, found by
// its name.

#ifndef FLEET_COMM_MPI_MODULE_H_
#define FLEET_COMM_MPI_MODULE_H_

#include <memory>
#include <vector>

#include "fleet/comm/communicator.h"

namespace fleet::comm {

struct MpiConnecting {
  std::vector<int> ranks;
  CommunicatorOptions options;
  Deadline deadline;
  // What the module answers.
  Status status;
  std::unique_ptr<Communicator> communicator;
};

inline constexpr char kMpiEntry[] = "FleetConnectMpi";
using MpiEntry = void(MpiConnecting* connecting);

}  // namespace fleet::comm

#endif  // FLEET_COMM_MPI_MODULE_H_
