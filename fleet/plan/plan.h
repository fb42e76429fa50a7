// SPDX-License-Identifier: Apache-2.0

// What this process of a job runs: the user's programs, rewritten for its role.
//
//   ASSIGN_OR_RETURN(Plan plan, MakePlan(main, startup, {}, role));
//   executor.Run(*plan.startup, ...);
//   executor.Run(*plan.main, ...);
//
// A plan is made of passes, one rewrite per file. They are pure: the same
// programs, strategy and role give the same plan, on every rank. Nothing here
// runs anything; the operations that passes insert are carried out by
// extensions of the executor (sync/static_collectives.h).

#ifndef FLEET_PLAN_PLAN_H_
#define FLEET_PLAN_PLAN_H_

#include <memory>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/role.h"
#include "fleet/plan/insert_allreduce.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// What the user wishes. The defaults are those of Paddle.
struct Strategy {
  AllReduceOptions allreduce;
  // Batch norms take the statistics of the batches of all ranks.
  bool sync_batch_norm = false;
};

struct Plan {
  std::unique_ptr<program::Program> main;
  std::unique_ptr<program::Program> startup;
  std::vector<std::string> passes;  // those that changed something, in order
};

// `main` has its backward and its updates. One worker alone runs the programs
// as they are. Unimplemented for a job with servers. FailedPrecondition when
// several workers have nothing to exchange, because `main` updates nothing.
Result<Plan> MakePlan(const program::Program& main,
                      const program::Program& startup, const Strategy& strategy,
                      const cluster::Role& role);

// Makes the plan in the programs themselves, which somebody else holds.
// Returns the passes. After an error they are as they were.
Result<std::vector<std::string>> ApplyPlan(program::Program& main,
                                           program::Program& startup,
                                           const Strategy& strategy,
                                           const cluster::Role& role);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_PLAN_H_
