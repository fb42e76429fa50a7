// SPDX-License-Identifier: Apache-2.0

// Where the workers of a job meet: the addresses at which rank 0 may listen.

#ifndef FLEET_CLUSTER_MEETING_PLACE_H_
#define FLEET_CLUSTER_MEETING_PLACE_H_

#include <memory>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/role.h"

namespace fleet::cluster {

struct MeetingPlace {
  // Rank 0 takes the first that is free, the others look through all of them.
  std::vector<channel::Address> addresses;
  // Not empty where `addresses` are guesses, and another job may be found at
  // one of them: what tells the jobs apart.
  std::string name;
};

// The place where a role's workers meet. In this order:
//
//   the launcher says                            they meet at
//   master, and that it is torchrun's            master if it is free, else one
//                                                of eight ports of its host
//                                                that the job's name gives
//   master                                       master
//   worker endpoints                             the first of them
//   a name of the job, all workers on one host   "@fleet-UID-NAME"
//   a name of the job, and names of its hosts    one of eight ports of the
//                                                first, that the name gives
//
// InvalidArgument when it says nothing of this. Depends on `role` and on this
// process's user alone. Thread-safe.
Result<MeetingPlace> FindMeetingPlace(const Role& role);

// Takes, for rank 0, the first address of `place` that is free. Where there is
// only one, it waits a few seconds for it: a job that was just killed may still
// hold it. A host that is a name is listened for as BindAddress says.
// Unavailable when all are taken, or when `place` is not on this host.
Result<std::unique_ptr<channel::Listener>> ListenAt(
    const MeetingPlace& place, const channel::MeetOptions& options,
    base::Deadline deadline);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_MEETING_PLACE_H_
