// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/future.h"

#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using namespace std::chrono_literals;

TEST(Future, DeliversAcrossThreads) {
  Promise<std::unique_ptr<int>> promise;
  Future<std::unique_ptr<int>> future = promise.future();
  std::thread other([&] { promise.Set(std::make_unique<int>(42)); });
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<int> value,
                       future.Wait(Deadline::Infinite()));
  EXPECT_EQ(*value, 42);
  other.join();
}

TEST(Future, DeliversFailure) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_FALSE(future.ready());
  promise.Set(DataLoss("torn"));
  EXPECT_TRUE(future.ready());
  EXPECT_THAT(future.Wait(Deadline::Infinite()),
              StatusIs(StatusCode::kDataLoss, "torn"));
}

TEST(Future, WaitsAgainAfterADeadline) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_THAT(future.Wait(Deadline::After(1ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  promise.Set(1);
  EXPECT_EQ(future.Wait(Deadline::After(0s)).value(), 1);
  EXPECT_THAT(future.Wait(Deadline::Infinite()),
              HasCode(StatusCode::kFailedPrecondition));
}

TEST(Future, WaitReadyTakesNothing) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_THAT(future.WaitReady(Deadline::After(1ms)),
              HasCode(StatusCode::kDeadlineExceeded));
  std::thread other([&] { promise.Set(7); });
  EXPECT_OK(future.WaitReady(Deadline::Infinite()));
  EXPECT_OK(future.WaitReady(Deadline::Infinite()));
  EXPECT_EQ(future.Wait(Deadline::After(0s)).value(), 7);
  other.join();
}

TEST(Future, WaitReadyStopsWhenTheCheckSaysSo) {
  Promise<> never;
  Future<> future = never.future();
  int asked = 0;
  const InterruptCheck check = [&]() -> Status {
    return ++asked < 3 ? OkStatus() : Unavailable("interrupted");
  };
  EXPECT_THAT(future.WaitReady(Deadline::Infinite(), check),
              StatusIs(StatusCode::kUnavailable, "interrupted"));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(future.ready());
}

// What a collective says of a late rank looks like a wait that was too short.
TEST(Future, AnOutcomeMayBeThatSomebodyElseWasLate) {
  const Status late = DeadlineExceeded("no sign of rank 1");
  Promise<> promise;
  Future<> future = promise.future();
  int asked = 0;
  const InterruptCheck check = [&]() -> Status {
    if (++asked == 2) promise.Set(late);
    return OkStatus();
  };
  EXPECT_OK(future.WaitReady(Deadline::Infinite(), check));
  EXPECT_EQ(future.Wait(Deadline::Infinite()), late);
}

TEST(Future, FirstOutcomeCounts) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_TRUE(promise.Set(1));
  EXPECT_FALSE(promise.Set(2));
  EXPECT_EQ(future.Wait(Deadline::Infinite()).value(), 1);
}

TEST(Future, DroppedPromiseIsUnavailable) {
  std::optional<Promise<>> promise(std::in_place);
  Future<> future = promise->future();
  promise.reset();
  EXPECT_THAT(future.Wait(Deadline::Infinite()),
              HasCode(StatusCode::kUnavailable));
}

TEST(Future, AssigningAPromiseDropsTheOldOne) {
  Promise<int> promise;
  Future<int> old_future = promise.future();
  promise = Promise<int>();
  EXPECT_THAT(old_future.Wait(Deadline::Infinite()),
              HasCode(StatusCode::kUnavailable));
  promise.Set(3);
  EXPECT_EQ(promise.future().Wait(Deadline::Infinite()).value(), 3);
}

TEST(Future, AbortWakesTheWaiter) {
  Promise<int> promise;
  Future<int> future = promise.future();
  std::thread other([&] { future.Abort(Unavailable("stopped")); });
  EXPECT_THAT(future.Wait(Deadline::Infinite()),
              StatusIs(StatusCode::kUnavailable, "stopped"));
  other.join();
  EXPECT_FALSE(promise.Set(1));
}

}  // namespace
}  // namespace fleet::base
