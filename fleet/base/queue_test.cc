// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/queue.h"

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

const Deadline kNever = Deadline::Infinite();

TEST(BoundedQueue, KeepsOrder) {
  BoundedQueue<int> queue(3);
  for (int i : {1, 2, 3}) ASSERT_OK(queue.Push(i, kNever));
  EXPECT_EQ(queue.size(), 3u);
  for (int i : {1, 2, 3}) EXPECT_EQ(queue.Pop(kNever).value(), i);
}

TEST(BoundedQueue, FullAndEmptyEndAtTheDeadline) {
  BoundedQueue<int> queue(1);
  EXPECT_THAT(queue.Pop(Deadline::After(1ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  ASSERT_OK(queue.Push(1, kNever));
  EXPECT_THAT(queue.Push(2, Deadline::After(1ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(queue.Pop(Deadline::After(0s)).value(), 1);
}

TEST(BoundedQueue, APushThatFailsLeavesTheItemWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_OK(queue.Push(std::make_unique<int>(1), kNever));
  auto item = std::make_unique<int>(2);
  EXPECT_THAT(queue.Push(std::move(item), Deadline::After(0s)),
              HasCode(StatusCode::kDeadlineExceeded));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueue, CloseLetsConsumersDrain) {
  BoundedQueue<int> queue(2);
  ASSERT_OK(queue.Push(1, kNever));
  queue.Close();
  EXPECT_THAT(queue.Push(2, kNever), HasCode(StatusCode::kFailedPrecondition));
  EXPECT_EQ(queue.Pop(kNever).value(), 1);
  EXPECT_EQ(queue.Pop(kNever).value(), std::nullopt);
  EXPECT_EQ(queue.Pop(kNever).value(), std::nullopt);
}

TEST(BoundedQueue, AbortDropsAllAndTheFirstReasonStays) {
  auto alive = std::make_shared<int>(0);
  BoundedQueue<std::shared_ptr<int>> queue(2);
  ASSERT_OK(queue.Push(alive, kNever));
  queue.Abort(Unavailable("worker gone"));
  queue.Abort(Internal("later"));
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_THAT(queue.Pop(kNever),
              StatusIs(StatusCode::kUnavailable, "worker gone"));
  EXPECT_THAT(queue.Push(alive, kNever),
              StatusIs(StatusCode::kUnavailable, "worker gone"));
}

TEST(BoundedQueue, CloseAndAbortWakeWaiters) {
  BoundedQueue<int> queue(1);
  std::thread consumer(
      [&] { EXPECT_EQ(queue.Pop(kNever).value(), std::nullopt); });
  queue.Close();
  consumer.join();

  BoundedQueue<int> full(1);
  ASSERT_OK(full.Push(1, kNever));
  std::thread producer([&] {
    EXPECT_THAT(full.Push(2, kNever), HasCode(StatusCode::kUnavailable));
  });
  full.Abort(Unavailable("stop"));
  producer.join();
}

TEST(BoundedQueue, ManyProducersAndConsumersLoseNothing) {
  BoundedQueue<int> queue(4);
  constexpr int kEach = 500;
  std::vector<std::thread> producers, consumers;
  std::vector<long> sums(3, 0);
  for (int p = 0; p < 3; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kEach; ++i) {
        ASSERT_OK(queue.Push(p * kEach + i, kNever));
      }
    });
  }
  for (long& sum : sums) {
    consumers.emplace_back([&queue, &sum] {
      while (std::optional<int> item = queue.Pop(kNever).value()) sum += *item;
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();
  constexpr long kAll = 3 * kEach;
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0L),
            kAll * (kAll - 1) / 2);
}

}  // namespace
}  // namespace fleet::base
