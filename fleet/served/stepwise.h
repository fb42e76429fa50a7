// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_STEPWISE_H_
#define FLEET_SERVED_STEPWISE_H_

#include <atomic>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/served/local_merge.h"
#include "fleet/served/rows.h"
#include "fleet/served/synchronizer.h"

namespace fleet::served {

// Modes in which a step ends when the servers have its gradients: sync, where
// all workers' steps are one, and half-async, where each worker's is its own.
class StepwiseSync final : public Synchronizer {
 public:
  StepwiseSync(ps::PsClient& client, const SynchronizerOptions& options)
      : client_(client), options_(options) {}

  Status AddTables(std::vector<ServedTable> tables) override;
  Status Initialize(std::span<const DenseValues> values) override;
  Status Fetch(TableId table, std::span<const RowsOfIds> lookups,
               const LookupOptions& options) override;
  Status Offer(TableId table, std::span<const GradientsOfIds> gradients,
               const LookupOptions& options) override;
  Status OfferDense(std::span<const DenseGradient> gradients) override;
  using Synchronizer::EndStep;
  Status EndStep(std::span<const DenseValues> values,
                 HeldValues* held) override;
  Status PullDense(std::span<const DenseValues> values) override;
  Status Flush(std::span<const DenseValues>) override { return EndTurn(); }
  Status Stop(std::span<const DenseValues> values) override;
  void BeginThreads(int count) override { merge_.BeginThreads(count); }
  void EndThread() override { merge_.EndThread(); }
  Status EndPass() override;
  SynchronizerStats stats() const override;
  const SynchronizerOptions& options() const override { return options_; }
  const ServedTable* table(TableId id) const override {
    return tables_.Find(id);
  }

 private:
  Deadline deadline() const { return Deadline::After(options_.timeout); }
  bool waits_for_all() const { return options_.mode == PsMode::kSync; }
  // A half-async step is sent inside of a turn, from its first gradient to its
  // end. In sync mode a save is between two steps anyway: the next one is not
  // applied before the worker that saves has ended its own.
  Status BeginTurn();
  Status EndTurn();
  Status Send(TableId table, const RowView& rows);
  Status SendDense(std::span<const DenseGradient> gradients);
  Status SendStep(const LocalMerge::Step& step,
                  std::span<const DenseValues> values);

  ps::PsClient& client_;
  const SynchronizerOptions options_;
  ServedTables tables_;
  BatchPool pool_;
  LocalMerge merge_;
  base::Mutex turn_mutex_;
  uint64_t turn_ GUARDED_BY(turn_mutex_) = 0;  // 0: none
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> pushes_ = 0;
  std::atomic<uint64_t> pulls_ = 0;
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_STEPWISE_H_
