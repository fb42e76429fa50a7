// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/mutex.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

TEST(Mutex, OneThreadAtATime) {
  Mutex mutex;
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(mutex);
        ++total;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(total, 4000);
}

TEST(CondVar, WakesWhenNotified) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  std::thread other([&] {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    while (!ready) ASSERT_TRUE(changed.WaitUntil(mutex, Deadline::Infinite()));
  }
  other.join();
}

TEST(CondVar, GivesUpAtTheDeadlineAndHoldsTheMutexAgain) {
  Mutex mutex;
  CondVar never;
  const Deadline deadline = Deadline::After(5ms);
  {
    MutexLock lock(mutex);
    while (never.WaitUntil(mutex, deadline)) {
    }
  }
  EXPECT_TRUE(deadline.expired());
  mutex.Lock();  // would hang had the wait left it locked
  mutex.Unlock();
}

}  // namespace
}  // namespace fleet::base
