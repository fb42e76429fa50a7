// SPDX-License-Identifier: Apache-2.0

// The door between libfleet_core and libfleet_nccl.so: functions found by
// their names.

#ifndef FLEET_COMM_NCCL_MODULE_H_
#define FLEET_COMM_NCCL_MODULE_H_

#include <memory>

#include "fleet/comm/communicator.h"

namespace fleet::comm {

struct NcclConnecting {
  std::unique_ptr<Communicator> companion;
  int device;
  CommunicatorOptions options;
  Deadline deadline;
  // What the module answers.
  Status status;
  std::unique_ptr<Communicator> communicator;
};

inline constexpr char kNcclEntry[] = "FleetConnectNccl";
using NcclEntry = void(NcclConnecting* connecting);

inline constexpr char kNcclCheckEntry[] = "FleetCheckNccl";
using NcclCheckEntry = void(int device, Status* answer);

}  // namespace fleet::comm

#endif  // FLEET_COMM_NCCL_MODULE_H_
