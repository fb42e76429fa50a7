// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/stepwise.h"

#include <utility>

namespace fleet::served {

Status StepwiseSync::BeginTurn() {
  if (waits_for_all()) return OkStatus();
  base::MutexLock lock(turn_mutex_);
  if (turn_ != 0) return OkStatus();
  ASSIGN_OR_RETURN(turn_, client_.BeginTurn(deadline()));
  return OkStatus();
}

Status StepwiseSync::EndTurn() {
  base::MutexLock lock(turn_mutex_);
  if (turn_ == 0) return OkStatus();
  return client_.EndTurn(std::exchange(turn_, 0), deadline());
}

Status StepwiseSync::Stop(std::span<const DenseValues> values) {
  RETURN_IF_ERROR(EndTurn());
  return PullDense(values);
}

Status StepwiseSync::Send(TableId table, const RowView& rows) {
  ++pushes_;
  if (waits_for_all()) {
    if (!rows.shows.empty()) {
      return client_.AccumulateShown(table, rows.keys, rows.rows, rows.shows,
                                     rows.clicks, deadline());
    }
    return client_.Accumulate(table, rows.keys, rows.rows, deadline());
  }
  if (!rows.shows.empty()) {
    return client_.PushShown(table, rows.keys, rows.rows, rows.shows,
                             rows.clicks, deadline(), 1);
  }
  return client_.Push(table, rows.keys, rows.rows, deadline(), 1);
}

Status StepwiseSync::Offer(TableId table,
                           std::span<const GradientsOfIds> gradients,
                           const LookupOptions& options) {
  ASSIGN_OR_RETURN(const ServedTable* const served, tables_.FindSparse(table));
  RETURN_IF_ERROR(CheckLists(*served, gradients, options));
  const size_t dim = DimOf(*served);
  if (merge_.Add(table, dim, gradients, options)) return OkStatus();
  RETURN_IF_ERROR(BeginTurn());
  const std::vector<ps::ValuesOfKeys> parts = PartsOf(gradients, options);
  if (!parts.empty()) {
    ++pushes_;
    return waits_for_all() ? client_.AccumulateParts(table, parts, deadline())
                           : client_.PushParts(table, parts, deadline(), 1);
  }
  const BatchPool::Lease batch(pool_);
  return Send(table, Join(dim, gradients, options, *batch));
}

Status StepwiseSync::SendDense(std::span<const DenseGradient> gradients) {
  if (gradients.empty()) return OkStatus();
  ++pushes_;
  // The step that ends all tables' steps is FinishStep's in sync mode.
  return waits_for_all() ? client_.AccumulateDenseMany(gradients, deadline())
                         : client_.PushDenseMany(gradients, deadline(), 1);
}

Status StepwiseSync::OfferDense(std::span<const DenseGradient> gradients) {
  if (merge_.AddDense(gradients)) return OkStatus();
  RETURN_IF_ERROR(BeginTurn());
  return SendDense(gradients);
}

Status StepwiseSync::SendStep(const LocalMerge::Step& step,
                              std::span<const DenseValues> values) {
  if (!step.rows.empty() || !step.dense.empty()) RETURN_IF_ERROR(BeginTurn());
  for (const auto& [table, batch] : step.rows) {
    if (!batch.keys.empty()) RETURN_IF_ERROR(Send(table, ViewOf(batch)));
  }
  std::vector<DenseGradient> dense;
  for (const auto& [table, sum] : step.dense) {
    if (!sum.empty()) dense.push_back({table, sum});
  }
  ++pulls_;
  if (waits_for_all()) return client_.FinishStep(dense, values, deadline());
  RETURN_IF_ERROR(SendDense(dense));
  RETURN_IF_ERROR(EndTurn());
  return PullDense(values);
}

Status StepwiseSync::EndStep(std::span<const DenseValues> values, HeldValues*) {
  RETURN_IF_ERROR(merge_.EndStep(
      values,
      [&](const LocalMerge::Step& step) { return SendStep(step, values); },
      deadline(), options_.interrupt));
  ++steps_;
  return OkStatus();
}

Status StepwiseSync::EndPass() {
  bool all_ended = !waits_for_all();
  while (!all_ended) {
    ASSIGN_OR_RETURN(all_ended, client_.IdleStep(deadline()));
  }
  return OkStatus();
}

SynchronizerStats StepwiseSync::stats() const {
  SynchronizerStats stats;
  stats.steps = steps_;
  stats.pushes = pushes_;
  stats.pushed = pushes_;
  stats.pulls = pulls_;
  stats.lost_updates = client_.num_lost_updates();
  stats.server_restarts = client_.num_server_restarts();
  return stats;
}

}  // namespace fleet::served
