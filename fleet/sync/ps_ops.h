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

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/extension.h"
#include "fleet/program/program.h"
#include "fleet/served/synchronizer.h"

namespace fleet::sync {

using served::DenseValues;
using served::HeldValues;
using served::Synchronizer;
using served::TableId;

// Where dense parameters are: tensors of float32 in the host's memory, kept
// alive. Thread-safe.
class DenseHomes final {
 public:
  void Set(TableId table, const at::Tensor& tensor) EXCLUDES(mutex_);
  // The values of all tables, with the tensors that the spans show.
  std::vector<DenseValues> values() const EXCLUDES(mutex_);

 private:
  mutable base::Mutex mutex_;
  std::map<TableId, at::Tensor> tensors_ GUARDED_BY(mutex_);
};

// What the memory of dense parameters holds, by the tensors that own it: known
// as long as one of them lives, whoever asks. Thread-safe.
class DenseMemories final {
 public:
  // What these tensors hold together. Another tensor at the address of one that
  // is gone is another one.
  std::shared_ptr<HeldValues> Find(std::span<const at::Tensor> tensors)
      EXCLUDES(mutex_);
  // How many memories are known: those that live, and what died since Find.
  size_t size() const EXCLUDES(mutex_);

 private:
  struct Memory {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
    std::shared_ptr<HeldValues> held;
  };

  mutable base::Mutex mutex_;
  std::vector<Memory> memories_ GUARDED_BY(mutex_);
};

// One for all executors of a worker. Thread-safe.
class ServedPrograms final
    : public exec::Extension,
      public std::enable_shared_from_this<ServedPrograms> {
 public:
  // Both outlive the programs. `homes` learns where the parameters of programs
  // are.
  ServedPrograms(Synchronizer& synchronizer, DenseHomes& homes)
      : synchronizer_(synchronizer), homes_(homes) {}

  // For every type of operation that this carries out.
  void AddTo(exec::Executor& executor);
  static const std::vector<std::string>& Types();

  // FailedPrecondition for a table that the synchronizer does not have.
  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override;

 private:
  Synchronizer& synchronizer_;
  DenseHomes& homes_;
  DenseMemories memories_;
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_PS_OPS_H_
