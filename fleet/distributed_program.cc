// SPDX-License-Identifier: Apache-2.0
#include "fleet/distributed_program.h"

#include <memory>

#include "fleet/sync/overlap.h"
#include "fleet/sync/static_collectives.h"

namespace fleet {

Status DistributeProgram(Fleet& job, program::Program& main,
                         program::Program& startup,
                         const plan::Strategy& strategy) {
  const cluster::Role& role = job.role();
  plan::Strategy fitting = strategy;
  fitting.allreduce.overlap &=
      sync::HasCoresToSpare(role.local_size.value_or(role.worker_num));
  return plan::ApplyPlan(main, startup, fitting, role).status();
}

void AddCollectives(Fleet& job, exec::Executor& executor) {
  std::make_shared<sync::StaticCollectives>(
      [&job](int64_t ring) -> Result<sync::CollectiveGroup> {
        if (ring != 0) {
          return NotFound("there is no group ", ring,
                          "; only that of all ranks, which is 0");
        }
        return sync::CollectiveGroup{
            .communicator = &job.communicator(),
            .ranks_on_host = job.role().local_size.value_or(0),
            .timeout = job.timeout()};
      })
      ->AddTo(executor);
}

}  // namespace fleet
