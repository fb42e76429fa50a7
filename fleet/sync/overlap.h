// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_OVERLAP_H_
#define FLEET_SYNC_OVERLAP_H_

#include "fleet/comm/communicator.h"

namespace fleet::sync {

// Whether buckets travel on a thread of the communicator while backward goes
// on. kAuto: when this host has more cores than ranks, else such a thread would
// take the time of backward itself.
enum class Overlap { kAuto, kNo, kYes };

// What kAuto comes to.
bool HasCoresToSpare(int ranks_on_host);

// `ranks_on_host` is 0 when all ranks are on this host.
bool Overlaps(const comm::Communicator& communicator, Overlap wish,
              int ranks_on_host);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_OVERLAP_H_
