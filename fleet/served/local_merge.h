// SPDX-License-Identifier: Apache-2.0

// Trainer threads of one worker that take steps together.

#ifndef FLEET_SERVED_LOCAL_MERGE_H_
#define FLEET_SERVED_LOCAL_MERGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/served/rows.h"

namespace fleet::served {

// The gradients of one step of all threads. With one thread nothing is kept
// here: its gradients can leave as they are.
class LocalMerge final {
 public:
  // What the last thread of a step finds here, scaled to the threads' mean.
  struct Step {
    std::map<TableId, RowBatch> rows;
    std::map<TableId, std::vector<float>> dense;
  };

  void BeginThreads(int count) EXCLUDES(mutex_);
  // A thread has no batch left. If the others wait for it alone, one of them
  // goes on.
  void EndThread() EXCLUDES(mutex_);
  int num_threads() const EXCLUDES(mutex_);

  // Takes gradients when there are several threads; false when not.
  bool Add(TableId table, size_t dim, std::span<const GradientsOfIds> lists,
           const LookupOptions& options) EXCLUDES(mutex_);
  bool AddDense(std::span<const DenseGradient> gradients) EXCLUDES(mutex_);

  // Waits until all threads are here. The last one calls `send` with the
  // merged step (empty when alone), which leaves the new values in its own
  // `values`; then all return what `send` did, with these values in theirs.
  Status EndStep(std::span<const DenseValues> values,
                 const std::function<Status(const Step&)>& send,
                 base::Deadline deadline, const base::InterruptCheck& interrupt)
      EXCLUDES(mutex_);

 private:
  // Waits for the end of `round`. True: this thread is to end it.
  Result<bool> WaitLocked(uint64_t round, base::Deadline deadline,
                          const base::InterruptCheck& interrupt)
      REQUIRES(mutex_);
  void ScaleLocked() REQUIRES(mutex_);
  void ClearLocked() REQUIRES(mutex_);
  void CopyFromLeaderLocked(std::span<const DenseValues> values) const
      REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  int num_threads_ GUARDED_BY(mutex_) = 1;
  int num_here_ GUARDED_BY(mutex_) = 0;
  bool sending_ GUARDED_BY(mutex_) = false;  // without the lock
  uint64_t round_ GUARDED_BY(mutex_) = 0;
  Status outcome_ GUARDED_BY(mutex_);  // of the round before
  // Where the last thread of that round has its values. It changes them in the
  // next round only, when all are here again.
  std::vector<DenseValues> leader_ GUARDED_BY(mutex_);
  Step step_ GUARDED_BY(mutex_);
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_LOCAL_MERGE_H_
