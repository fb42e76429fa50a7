// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_STATIC_BATCH_NORM_H_
#define FLEET_SYNC_STATIC_BATCH_NORM_H_

#include <chrono>
#include <memory>

#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/exec/extension.h"
#include "fleet/program/program.h"

namespace fleet::sync {

// A step for an operation sync_batch_norm or sync_batch_norm_grad, which have
// the slots and attributes of batch_norm. `communicator` outlives it.
Result<std::unique_ptr<exec::ExtensionStep>> PrepareSyncBatchNorm(
    comm::Communicator& communicator, std::chrono::milliseconds timeout,
    const program::Operation& op);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_STATIC_BATCH_NORM_H_
