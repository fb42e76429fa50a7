// SPDX-License-Identifier: Apache-2.0

// The face of the library: a training program for one machine runs on many.
//
//   ASSIGN_OR_RETURN(auto job, fleet::Fleet::Init());
//   fleet::DistributedModel model(*job, Net());               // torch::nn
//   fleet::DistributedOptimizer optimizer(
//       *job, torch::optim::SGD(model->parameters(), 0.01));  // torch::optim
//   for (auto& batch : *loader) {
//     ... forward, loss.backward(), optimizer.step() ...
//   }
//   job->Finish();
//
// DistributedModel and DistributedOptimizer are in distributed_model.h, a
// sampler for torch::data in distributed_sampler.h, collectives on tensors in
// collectives.h.
//
// Started by fleetrun, torchrun, mpirun or srun; alone, it is a job of one.

#ifndef FLEET_FLEET_H_
#define FLEET_FLEET_H_

#include <chrono>
#include <memory>
#include <optional>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/role.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/world.h"

namespace fleet {

struct InitOptions {
  // Who this process is. Unset: whatever launcher made the environment says.
  std::optional<cluster::Role> role;
  // Asked while calls wait, so that ^C ends them.
  base::InterruptCheck interrupt;
};

// One worker of a collective job: its role, its connection to the others, and
// the collectives over them. Timeouts come from the environment
// (docs/configuration.md). Several may live in one process, each as one rank.
// One thread at a time; a communicator's Abort may come from any.
class Fleet final {
 public:
  // Meets the other ranks, which may take until FLEET_START_TIMEOUT.
  // InvalidArgument for an environment that makes no sense and for a role that
  // is no worker's, DeadlineExceeded naming the ranks that never came,
  // Unavailable for one that failed meanwhile, Unimplemented for a backend
  // (FLEET_COMM) that is not built in. What options.interrupt answers ends it.
  static Result<std::unique_ptr<Fleet>> Init(InitOptions options = {});

  // A process that ends without Finish has failed: the others are told, and a
  // launcher that this rank failed by itself, unless another one did before.
  ~Fleet();

  const cluster::Role& role() const { return role_; }
  int rank() const { return role_.index; }
  int size() const { return role_.worker_num; }

  cluster::Membership& membership() { return *membership_; }
  comm::World& world() { return *world_; }
  // Over all ranks.
  comm::Communicator& communicator() { return world_->all(); }
  // How long a collective waits for late ranks: FLEET_TIMEOUT.
  std::chrono::milliseconds timeout() const { return timeout_; }
  // For a collective that begins now.
  base::Deadline deadline() const;

  // Leaves the job: this rank's part ended well. Rank 0, where the others
  // meet, waits for them to leave too, at most timeout(). Idempotent.
  void Finish();

 private:
  Fleet() = default;

  cluster::Role role_;
  std::chrono::milliseconds timeout_{};
  std::unique_ptr<cluster::Membership> membership_;
  std::unique_ptr<comm::World> world_;
  bool finished_ = false;
};

}  // namespace fleet

#endif  // FLEET_FLEET_H_
