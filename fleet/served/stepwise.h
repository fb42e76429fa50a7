// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_STEPWISE_H_
#define FLEET_SERVED_STEPWISE_H_

#include <atomic>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/served/local_merge.h"
#include "fleet/served/mode.h"

namespace fleet::served {

// Modes in which a step ends when the servers have its gradients: sync, where
// all workers' steps are one, and half-async, where each worker's is its own.
class StepwiseSync final : public Mode {
 public:
  using Mode::Mode;

  Status Offer(TableId table, std::span<const GradientsOfIds> gradients,
               const LookupOptions& options) override;
  Status OfferDense(std::span<const DenseGradient> gradients) override;
  using Synchronizer::EndStep;
  Status EndStep(std::span<const DenseValues> values,
                 HeldValues* held) override;
  Status Flush(std::span<const DenseValues>) override { return EndTurn(); }
  Status Stop(std::span<const DenseValues> values) override;
  void BeginThreads(int count) override { merge_.BeginThreads(count); }
  void EndThread() override { merge_.EndThread(); }
  Status EndPass() override;
  SynchronizerStats stats() const override;

 private:
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

  LocalMerge merge_;
  base::Mutex turn_mutex_;
  uint64_t turn_ GUARDED_BY(turn_mutex_) = 0;  // 0: none
  std::atomic<uint64_t> steps_ = 0;
  std::atomic<uint64_t> pushes_ = 0;
  std::atomic<uint64_t> pulls_ = 0;
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_STEPWISE_H_
