// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/local_merge.h"

#include <algorithm>
#include <cstring>

namespace fleet::served {

using base::Deadline;

void LocalMerge::BeginThreads(int count) {
  base::MutexLock lock(mutex_);
  num_threads_ = std::max(count, 1);
}

void LocalMerge::EndThread() {
  base::MutexLock lock(mutex_);
  num_threads_ = std::max(num_threads_ - 1, 1);
  changed_.NotifyAll();
}

int LocalMerge::num_threads() const {
  base::MutexLock lock(mutex_);
  return num_threads_;
}

bool LocalMerge::Add(TableId table, size_t dim,
                     std::span<const GradientsOfIds> lists,
                     const LookupOptions& options) {
  base::MutexLock lock(mutex_);
  if (num_threads_ <= 1) return false;
  RowBatch& batch = step_.rows[table];
  for (const GradientsOfIds& list : lists) batch.Append(dim, list, options);
  return true;
}

bool LocalMerge::AddDense(std::span<const DenseGradient> gradients) {
  base::MutexLock lock(mutex_);
  if (num_threads_ <= 1) return false;
  for (const DenseGradient& gradient : gradients) {
    std::vector<float>& sum = step_.dense[gradient.table];
    if (sum.empty()) {
      sum.assign(gradient.values.begin(), gradient.values.end());
      continue;
    }
    const float* from = gradient.values.data();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += from[i];
  }
  return true;
}

void LocalMerge::ScaleLocked() {
  if (num_here_ <= 1) return;
  const float scale = 1.0f / static_cast<float>(num_here_);
  for (auto& [id, batch] : step_.rows) {
    for (float& value : batch.rows) value *= scale;
  }
  for (auto& [id, sum] : step_.dense) {
    for (float& value : sum) value *= scale;
  }
}

void LocalMerge::ClearLocked() {
  for (auto& [id, batch] : step_.rows) batch.Clear();
  for (auto& [id, sum] : step_.dense) sum.clear();
}

Result<bool> LocalMerge::WaitLocked(uint64_t round, Deadline deadline,
                                    const base::InterruptCheck& interrupt) {
  while (round_ == round) {
    if (!sending_ && num_here_ >= num_threads_) return true;
    // Who sends has the same deadline, and says more.
    if (!sending_ && deadline.expired()) {
      const int num_here = num_here_--;
      return DeadlineExceeded("the end of a step: ", num_here, " of ",
                              num_threads_, " trainer threads came");
    }
    if (interrupt) {
      if (Status stop = interrupt(); !stop.ok()) {
        if (!sending_) --num_here_;
        return stop;
      }
    }
    const Deadline slice = interrupt || sending_
                               ? Deadline::After(base::kInterruptInterval)
                               : deadline;
    changed_.WaitUntil(mutex_, slice);
  }
  return false;
}

void LocalMerge::CopyFromLeaderLocked(
    std::span<const DenseValues> values) const {
  for (const DenseValues& mine : values) {
    for (const DenseValues& theirs : leader_) {
      if (theirs.table != mine.table ||
          theirs.values.data() == mine.values.data() ||
          theirs.values.size() != mine.values.size()) {
        continue;
      }
      std::memcpy(mine.values.data(), theirs.values.data(),
                  mine.values.size_bytes());
    }
  }
}

Status LocalMerge::EndStep(std::span<const DenseValues> values,
                           const std::function<Status(const Step&)>& send,
                           Deadline deadline,
                           const base::InterruptCheck& interrupt) {
  base::MutexLock lock(mutex_);
  const uint64_t round = round_;
  ++num_here_;
  ASSIGN_OR_RETURN(const bool leads, WaitLocked(round, deadline, interrupt));
  if (!leads) {
    if (outcome_.ok()) CopyFromLeaderLocked(values);
    return outcome_;
  }
  ScaleLocked();
  sending_ = true;
  // The others wait for the end of the round, so nobody touches the step.
  const Step* const step = &step_;
  mutex_.Unlock();
  Status outcome = send(*step);
  mutex_.Lock();
  sending_ = false;
  leader_.assign(values.begin(), values.end());
  ClearLocked();
  num_here_ = 0;
  ++round_;
  outcome_ = outcome;
  changed_.NotifyAll();
  return outcome;
}

}  // namespace fleet::served
