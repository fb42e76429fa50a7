// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/futex.h"

#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace fleet::base {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Not the private kind: the sleeper may be in another process.
void Futex(std::atomic<uint32_t>& word, int what, uint32_t value,
           const timespec* timeout) {
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), what, value,
                timeout, nullptr, 0);
}

}  // namespace

void FutexSleep(std::atomic<uint32_t>& word, uint32_t seen, Deadline deadline) {
  if (deadline.is_infinite()) return Futex(word, FUTEX_WAIT, seen, nullptr);
  const int64_t ns = deadline.remaining().count();
  timespec left{};
  left.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  left.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  Futex(word, FUTEX_WAIT, seen, &left);
}

void FutexWake(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  Futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace fleet::base
