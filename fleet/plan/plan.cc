// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/plan.h"

#include <utility>

#include "fleet/plan/broadcast_state.h"
#include "fleet/plan/sync_batch_norm.h"

namespace fleet::plan {

Result<std::vector<std::string>> ApplyPlan(program::Program& main,
                                           program::Program& startup,
                                           const Strategy& strategy,
                                           const cluster::Role& role) {
  if (!role.is_collective && !role.non_distributed) {
    return Unimplemented("a plan for ", cluster::ToString(role),
                         ": only collective jobs have one");
  }
  std::vector<std::string> passes;
  if (role.worker_num <= 1) return passes;
  if (InsertAllReduce(main, strategy.allreduce) == 0) {
    return FailedPrecondition(
        "the program updates no parameter by a gradient, so that there is "
        "nothing to exchange between ",
        role.worker_num, " workers");
  }
  passes.emplace_back("insert_allreduce");
  if (strategy.sync_batch_norm && SyncBatchNorm(main)) {
    passes.emplace_back("sync_batch_norm");
  }
  if (BroadcastState(startup)) passes.emplace_back("broadcast_state");
  return passes;
}

Result<Plan> MakePlan(const program::Program& main,
                      const program::Program& startup, const Strategy& strategy,
                      const cluster::Role& role) {
  Plan plan{.main = main.Clone(), .startup = startup.Clone()};
  ASSIGN_OR_RETURN(plan.passes,
                   ApplyPlan(*plan.main, *plan.startup, strategy, role));
  return plan;
}

}  // namespace fleet::plan
