// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/interrupt.h"

#include <utility>

#include "fleet/base/check.h"

namespace fleet::base {

void Interrupt::Raise(Status why) {
  FLEET_CHECK(!why.ok());
  MutexLock lock(mutex_);
  if (!why_.ok()) return;
  why_ = std::move(why);
  raised_.NotifyAll();
}

Status Interrupt::status() const {
  MutexLock lock(mutex_);
  return why_;
}

Status Interrupt::SleepUntil(Deadline deadline) {
  MutexLock lock(mutex_);
  while (why_.ok()) {
    if (!raised_.WaitUntil(mutex_, deadline)) break;
  }
  return why_;
}

}  // namespace fleet::base
