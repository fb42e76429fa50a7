// SPDX-License-Identifier: Apache-2.0
#include "fleet/distributed_program.h"

#include "fleet/sync/overlap.h"

namespace fleet {

Status DistributeProgram(Job& job, program::Program& main,
                         program::Program& startup,
                         const plan::Strategy& strategy) {
  const cluster::Role& role = job.role();
  plan::Strategy fitting = strategy;
  fitting.allreduce.overlap &=
      sync::HasCoresToSpare(role.local_size.value_or(role.worker_num));
  return plan::ApplyPlan(main, startup, fitting, role).status();
}

}  // namespace fleet
