// SPDX-License-Identifier: Apache-2.0

// Waits on words in memory that processes share. Who waits reads the word, says
// that it is about to sleep, looks once more at what it waits for, and sleeps
// while the word stays as it was. Who has done something looks whether somebody
// sleeps, and if so changes the word and wakes.

#ifndef FLEET_BASE_FUTEX_H_
#define FLEET_BASE_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "fleet/base/deadline.h"

namespace fleet::base {

// Until FutexWake or `deadline`, unless `word` is no longer `seen`. May return
// for no reason: whatever ends it, the caller looks again.
void FutexSleep(std::atomic<uint32_t>& word, uint32_t seen, Deadline deadline);

// Changes `word` and wakes all who sleep on it.
void FutexWake(std::atomic<uint32_t>& word);

// Between two looks of a loop that does not sleep: lets the core's other thread
// run, and the memory it looks at settle.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace fleet::base

#endif  // FLEET_BASE_FUTEX_H_
