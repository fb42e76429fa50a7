// SPDX-License-Identifier: Apache-2.0

// Collectives of ranks on several hosts: inside a host through memory that its
// ranks share, between hosts over channels of one rank of each, its leader.
//
//   all-reduce      host 0                          host 1
//                   rank 0  rank 1                  rank 2  rank 3
//   1  reduce          <──────┘   shared memory        <──────┘
//   2  all-reduce      <────────────── TCP ────────────>
//   3  broadcast       ───────>                        ───────>
//
// So the network carries each host's data once, however many ranks it has. A
// mean is divided once, by leaders, and all ranks get the same bits. Sends go
// over channels between the two ranks.

#ifndef FLEET_COMM_HIERARCHICAL_H_
#define FLEET_COMM_HIERARCHICAL_H_

#include <memory>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/meeting.h"

namespace fleet::comm {

// Called by all ranks of the meeting; returns when all have come.
// `hosts[i]` tells which host rank i is on: any numbers, the same list on all
// ranks. Failures are those of ConnectSharedMemory and ConnectTcp.
// `meeting.store` outlives the communicator.
Result<std::unique_ptr<Communicator>> ConnectHierarchical(
    const Meeting& meeting, const std::vector<int>& hosts,
    CommunicatorOptions options, Deadline deadline);

}  // namespace fleet::comm

#endif  // FLEET_COMM_HIERARCHICAL_H_
