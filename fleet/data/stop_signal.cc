// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/stop_signal.h"

#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/check.h"

namespace fleet::data {

StopSignal::StopSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  FLEET_CHECK(fd_.valid(), "eventfd: ", errno);
}

void StopSignal::Raise(Status why) {
  FLEET_CHECK(!why.ok());
  {
    base::MutexLock lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
  }
  const uint64_t one = 1;
  // Fails only when it is readable already.
  (void)!write(fd_.get(), &one, sizeof(one));
}

Status StopSignal::status() const {
  base::MutexLock lock(mutex_);
  return why_;
}

Status StopSignal::WaitReadable(int fd, int other) const {
  pollfd waits[] = {
      {fd_.get(), POLLIN, 0}, {fd, POLLIN, 0}, {other, POLLIN, 0}};
  while (poll(waits, other < 0 ? 2 : 3, -1) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "poll");
  }
  return waits[0].revents == 0 ? OkStatus() : status();
}

}  // namespace fleet::data
