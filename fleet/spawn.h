// SPDX-License-Identifier: Apache-2.0

// A job on this host whose ranks are forked from one program:
//
//   const Status status = fleet::Spawn(2, [](fleet::Job& job) -> Status {
//     fleet::DistributedModel model(job, Net());
//     ...
//     return OkStatus();
//   });

#ifndef FLEET_SPAWN_H_
#define FLEET_SPAWN_H_

#include <functional>

#include "fleet/base/status.h"
#include "fleet/job.h"

namespace fleet {

// Runs `rank_main` in `num_ranks` processes, each one rank of a job, and waits
// for all. A rank that returns a Status which is not ok, throws, or is killed
// has failed; the others are then ended, and what is returned names the rank
// that failed first by itself. The ranks end with this process, too.
//
// It forks, so it comes before this process has other threads: what those hold
// locked would stay locked in the ranks. FailedPrecondition says how many
// threads there are; a parallel computation of LibTorch begins some.
// InvalidArgument for less than one rank.
Status Spawn(int num_ranks, const std::function<Status(Job&)>& rank_main);

}  // namespace fleet

#endif  // FLEET_SPAWN_H_
