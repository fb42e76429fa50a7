// SPDX-License-Identifier: Apache-2.0

// Ends reads of files and commands from another thread.

#ifndef FLEET_DATA_STOP_SIGNAL_H_
#define FLEET_DATA_STOP_SIGNAL_H_

#include "fleet/base/descriptor.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::data {

// Thread-safe.
class StopSignal final {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // All reads that know this signal end with `why`, which is not ok; of several
  // the first counts.
  void Raise(Status why);
  // Ok while nothing was raised.
  Status status() const;
  // Waits until `fd`, or `other` if that is not negative, can be read, or until
  // the signal is raised, which is its failure.
  Status WaitReadable(int fd, int other = -1) const;

 private:
  base::Descriptor fd_;  // an eventfd, readable once raised
  mutable base::Mutex mutex_;
  Status why_ GUARDED_BY(mutex_);
};

}  // namespace fleet::data

#endif  // FLEET_DATA_STOP_SIGNAL_H_
