// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

const Deadline kNever = Deadline::Infinite();

TEST(ThreadPool, FuturesCarryWhatTasksReturn) {
  ThreadPool pool({.num_threads = 2});
  Future<int> value = pool.Submit([] { return 7; });
  Future<int> result = pool.Submit([]() -> Result<int> { return 8; });
  Future<> nothing = pool.Submit([] {});
  Future<> status = pool.Submit([] { return NotFound("x"); });
  auto owned = std::make_unique<int>(9);
  Future<std::unique_ptr<int>> moved = pool.Submit(
      [owned = std::move(owned)]() mutable { return std::move(owned); });
  EXPECT_EQ(value.Wait(kNever).value(), 7);
  EXPECT_EQ(result.Wait(kNever).value(), 8);
  EXPECT_OK(nothing.Wait(kNever));
  EXPECT_EQ(status.Wait(kNever), NotFound("x"));
  EXPECT_EQ(*moved.Wait(kNever).value(), 9);
}

TEST(ThreadPool, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    ThreadPool pool({.num_threads = 1});
    for (int i = 0; i < 100; ++i) {
      (void)pool.Submit([&order, i] { order.push_back(i); });
    }
  }
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(ThreadPool, DestructorRunsWhatWasSubmitted) {
  std::atomic<int> count = 0;
  {
    ThreadPool pool({.num_threads = 3, .max_waiting = 2});
    for (int i = 0; i < 50; ++i) (void)pool.Submit([&] { ++count; });
  }
  EXPECT_EQ(count, 50);
}

TEST(ThreadPool, AFullQueueAnswersAtTheDeadline) {
  Promise<> gate;
  Future<> opened = gate.future();
  Promise<> started;
  Future<> has_started = started.future();
  ThreadPool pool({.num_threads = 1, .max_waiting = 1});
  Future<> running = pool.Submit([&] {
    started.Set(OkStatus());
    return opened.Wait(kNever);
  });
  ASSERT_OK(has_started.Wait(kNever));
  Future<> waiting = pool.Submit([] {});
  Future<> refused = pool.Submit([] {}, Deadline::After(0s));
  EXPECT_THAT(refused.Wait(kNever), HasCode(StatusCode::kDeadlineExceeded));
  gate.Set(OkStatus());
  EXPECT_OK(running.Wait(kNever));
  EXPECT_OK(waiting.Wait(kNever));
}

TEST(ThreadPool, AbortDropsWhatHasNotBegun) {
  Promise<> gate;
  Future<> opened = gate.future();
  Promise<> started;
  Future<> has_started = started.future();
  ThreadPool pool({.num_threads = 1});
  Future<> running = pool.Submit([&] {
    started.Set(OkStatus());
    return opened.Wait(kNever);
  });
  ASSERT_OK(has_started.Wait(kNever));
  Future<> waiting = pool.Submit([] {});
  pool.Abort(Unavailable("stop"));
  EXPECT_THAT(waiting.Wait(kNever),
              StatusIs(StatusCode::kUnavailable, "thread pool: stop"));
  EXPECT_THAT(pool.Submit([] {}).Wait(kNever),
              StatusIs(StatusCode::kUnavailable, "thread pool: stop"));
  gate.Set(OkStatus());
  EXPECT_OK(running.Wait(kNever));
}

TEST(ThreadPool, ParallelForCallsEveryIndexOnce) {
  ThreadPool pool({.num_threads = 3});
  for (size_t count : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    pool.ParallelFor(count, [&](size_t i) { ++calls[i]; });
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n, 1);
  }
}

TEST(ThreadPool, ParallelForWorksInsideATask) {
  ThreadPool pool({.num_threads = 1});
  std::atomic<int> calls = 0;
  Future<> outer =
      pool.Submit([&] { pool.ParallelFor(10, [&](size_t) { ++calls; }); });
  ASSERT_OK(outer.Wait(kNever));
  EXPECT_EQ(calls, 10);
}

}  // namespace
}  // namespace fleet::base
