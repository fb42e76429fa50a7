// SPDX-License-Identifier: Apache-2.0

// What the operations of a program whose parameters are on servers do when an
// executor runs them. plan::ServeParameters writes them:
//
//   distributed_lookup_table  rows of ids, from a table
//   distributed_push_sparse   gradients of rows, to a table
//   send                      gradients of dense parameters
//   send_barrier, recv        the end of a step, with new dense parameters
//   geo_step                  the same where updates are made here
//   ps_init                   dense parameters as worker 0 has them
//   fake_init                 nothing: the servers make the rows
//
// Rows go straight between tensors and the client. Tensors on a GPU go through
// the host's memory.

#ifndef FLEET_SYNC_PS_OPS_H_
#define FLEET_SYNC_PS_OPS_H_

#include <memory>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/extension.h"
#include "fleet/program/program.h"
#include "fleet/sync/synchronizer.h"

namespace fleet::sync {

// One for all executors of a worker. Thread-safe.
class ServedPrograms final
    : public exec::Extension,
      public std::enable_shared_from_this<ServedPrograms> {
 public:
  // `synchronizer` outlives the programs.
  explicit ServedPrograms(Synchronizer& synchronizer)
      : synchronizer_(synchronizer) {}

  // For every type of operation that this carries out.
  void AddTo(exec::Executor& executor);
  static const std::vector<std::string>& Types();

  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override;

 private:
  Synchronizer& synchronizer_;
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_PS_OPS_H_
