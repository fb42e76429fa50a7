// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_SYNC_BATCH_NORM_H_
#define FLEET_PLAN_SYNC_BATCH_NORM_H_

#include "fleet/program/program.h"

namespace fleet::plan {

// Batch norms that train take the statistics of the batches of all ranks: a
// batch_norm becomes a sync_batch_norm, and its gradient likewise. Those that
// evaluate stay. Whether there was one.
bool SyncBatchNorm(program::Program& program);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_SYNC_BATCH_NORM_H_
