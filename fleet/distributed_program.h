// SPDX-License-Identifier: Apache-2.0

// Programs on all ranks of a job: data parallel training by an executor.
//
//   ... build `main` with backward and updates, and `startup` ...
//   RETURN_IF_ERROR(fleet::DistributeProgram(*job, main, startup));
//   exec::Executor executor(library, context);
//   job->AddTo(executor);
//   executor.Run(startup, scope, {}, {});   // all ranks begin as rank 0
//   executor.Run(main, scope, {{"x", x}, {"y", y}}, {"loss"});
//
// How a program is rewritten is said in plan/plan.h, how what was inserted runs
// in sync/static_collectives.h.

#ifndef FLEET_DISTRIBUTED_PROGRAM_H_
#define FLEET_DISTRIBUTED_PROGRAM_H_

#include "fleet/exec/executor.h"
#include "fleet/job.h"
#include "fleet/plan/plan.h"
#include "fleet/program/program.h"

namespace fleet {

// Makes the programs those of this rank, in place. A job of one leaves them as
// they are. Errors are those of plan::MakePlan.
Status DistributeProgram(Job& job, program::Program& main,
                         program::Program& startup,
                         const plan::Strategy& strategy = {});

}  // namespace fleet

#endif  // FLEET_DISTRIBUTED_PROGRAM_H_
