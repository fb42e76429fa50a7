// SPDX-License-Identifier: Apache-2.0

// The communicators of a job: one over all ranks, and groups of some of them.
//
//   ASSIGN_OR_RETURN(auto world, World::Connect(*membership, {}, deadline));
//   RETURN_IF_ERROR(world->all().Barrier(deadline));
//
// The backend follows from where the ranks are: all on one host, shared memory;
// on several, shared memory inside each and TCP between them. Where every rank
// has a GPU of its own, that one compares the calls, and NCCL moves what lies
// in memory of GPUs.

#ifndef FLEET_COMM_WORLD_H_
#define FLEET_COMM_WORLD_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/membership.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {

struct WorldOptions {
  // "auto", "shm", "tcp", "mpi" or "nccl".
  std::string backend = "auto";
  // What carries bytes between hosts, for "auto" and "tcp".
  channel::Carrier carrier = channel::Carrier::kTcp;
  // The GPU of this rank, which "auto" and "nccl" may use.
  std::optional<int> gpu;
  // What all ranks of one host have in common and no others. Empty: this boot
  // of the machine, and the network namespace.
  std::string host_key;
  std::chrono::milliseconds stall_report = std::chrono::seconds(60);
  base::InterruptCheck interrupt;
};

// The world as one rank sees it. Thread-safe, but all ranks must make the same
// calls in the same order. `membership` outlives it and all communicators.
//
// What the membership tells ends communicators: the death of a rank those that
// hold it, the failure that one rank reports that one on all its ranks. So the
// ranks get one reason, which names the rank, its host and process. A rank that
// left well disturbs nobody who does not wait for it.
class World {
 public:
  // Meets all ranks. DeadlineExceeded names those that did not come.
  // InvalidArgument for a backend that there is not; FailedPrecondition for
  // "shm" with ranks on several hosts.
  static Result<std::unique_ptr<World>> Connect(cluster::Membership& membership,
                                                WorldOptions options,
                                                base::Deadline deadline);
  virtual ~World() = default;

  // Over all ranks.
  virtual Communicator& all() = 0;

  // Called by all ranks of the job with the same list, which holds each rank at
  // most once; the position in the list is the rank in the group. Those that
  // are not in it get null.
  virtual Result<std::unique_ptr<Communicator>> NewGroup(
      std::vector<int> ranks, base::Deadline deadline) = 0;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_WORLD_H_
