// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/futex.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

TEST(Futex, AWakeEndsASleep) {
  std::atomic<uint32_t> word = 0;
  std::atomic<bool> said = false;
  std::jthread waker([&] {
    said = true;
    FutexWake(word);
  });
  const Deadline patient = Deadline::After(std::chrono::seconds(60));
  while (!said) {
    const uint32_t seen = word;
    if (!said) FutexSleep(word, seen, patient);
  }
  EXPECT_FALSE(patient.expired());
  waker.join();
  EXPECT_EQ(word, 1u);
}

TEST(Futex, AWordThatChangedIsNotSleptOn) {
  std::atomic<uint32_t> word = 7;
  FutexSleep(word, 6, Deadline::Infinite());
}

TEST(Futex, ASleepEndsAtItsDeadline) {
  std::atomic<uint32_t> word = 0;
  const Deadline soon = Deadline::After(std::chrono::milliseconds(5));
  while (!soon.expired()) FutexSleep(word, 0, soon);
  FutexSleep(word, 0, soon);  // in the past
}

}  // namespace
}  // namespace fleet::base
