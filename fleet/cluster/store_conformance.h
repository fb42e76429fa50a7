// SPDX-License-Identifier: Apache-2.0

// For tests: what every Store does. A new kind of store adds a StoreGroup and
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, StoreConformance, testing::Values(MakeTcp));
//
// and inherits all cases.

#ifndef FLEET_CLUSTER_STORE_CONFORMANCE_H_
#define FLEET_CLUSTER_STORE_CONFORMANCE_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/store.h"
#include "fleet/testing/deadlines.h"

namespace fleet::cluster {

using testing::Soon;

// One store as its members see it. They may share an object or have one each.
class StoreGroup {
 public:
  virtual ~StoreGroup() = default;
  virtual Store& member(int index) = 0;
};

using MakeStoreGroup = std::unique_ptr<StoreGroup> (*)(int size);

class StoreConformance : public testing::TestWithParam<MakeStoreGroup> {
 protected:
  static constexpr int kSize = 4;

  Store& member(int index) { return group_->member(index); }

  // Runs `body(i, member(i))` for each i in a thread of its own.
  template <typename Body>
  void RunMembers(Body body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kSize; ++i) {
      threads.emplace_back([this, i, &body] { body(i, member(i)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  struct Place {
    int index;
    int size;
  };

  // What a barrier tells `second` while `first` waits there. Either may come
  // before the other, so both try until it is this way round.
  Status SecondToCome(const std::string& name, Place first, Place second) {
    std::thread waiting([&] {
      Status status = Unavailable("not tried");
      do {
        status = member(0).Barrier(name, first.index, first.size, Soon());
      } while (status.code() == StatusCode::kInvalidArgument ||
               status.code() == StatusCode::kFailedPrecondition);
      EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, "done"));
    });
    const base::Deadline end = Soon();
    Status status = Unavailable("not tried");
    do {
      status = member(1).Barrier(name, second.index, second.size, Past());
      std::this_thread::yield();
    } while (status.code() == StatusCode::kDeadlineExceeded && !end.expired());
    AbortAll(Unavailable("done"));
    waiting.join();
    return status;
  }

  void AbortAll(const Status& reason) {
    for (int i = 0; i < kSize; ++i) member(i).Abort(reason);
  }

  // Already over: a call looks once and does not wait.
  static base::Deadline Past() {
    return base::Deadline::After(std::chrono::seconds(-1));
  }
  // For calls that are meant to run out of time.
  static base::Deadline Briefly() {
    return base::Deadline::After(std::chrono::milliseconds(5));
  }

 private:
  std::unique_ptr<StoreGroup> group_ = GetParam()(kSize);
};

TEST_P(StoreConformance, WhatOneSetsAllGet) {
  EXPECT_OK(member(0).Set("key", "one", Soon()));
  EXPECT_EQ(member(1).Get("key", Soon()).value(), "one");
  EXPECT_OK(member(2).Set("key", "two", Soon()));
  EXPECT_EQ(member(0).Get("key", Soon()).value(), "two");
}

TEST_P(StoreConformance, ValuesAreAnyBytes) {
  const std::string bytes("\0a\n\xff", 4);
  for (const std::string& value :
       {std::string(), bytes, std::string(100'000, 'x')}) {
    EXPECT_OK(member(0).Set(bytes, value, Soon()));
    EXPECT_EQ(member(1).Get(bytes, Soon()).value(), value);
  }
}

TEST_P(StoreConformance, AKeyWithoutAValueIsNotFound) {
  EXPECT_THAT(member(0).Get("absent", Soon()),
              StatusIs(StatusCode::kNotFound, testing::HasSubstr("absent")));
}

TEST_P(StoreConformance, WaitReturnsValuesInTheOrderOfItsKeys) {
  RunMembers([&](int i, Store& store) {
    EXPECT_OK(
        store.Set("rank/" + std::to_string(i), std::to_string(i * i), Soon()));
    ASSERT_OK_AND_ASSIGN(
        std::vector<std::string> values,
        store.Wait({"rank/3", "rank/0", "rank/1", "rank/2"}, Soon()));
    EXPECT_THAT(values, testing::ElementsAre("9", "0", "1", "4"));
  });
  EXPECT_THAT(member(0).Wait({}, Briefly()).value(), testing::IsEmpty());
}

TEST_P(StoreConformance, WaitNamesTheKeysThatNeverCame) {
  EXPECT_OK(member(0).Set("rank/1", "here", Soon()));
  EXPECT_THAT(member(0).Wait({"rank/0", "rank/1", "rank/2"}, Briefly()),
              StatusIs(StatusCode::kDeadlineExceeded,
                       testing::AllOf(testing::HasSubstr("2 of 3"),
                                      testing::HasSubstr("rank/0, rank/2"))));
}

TEST_P(StoreConformance, WhatIsThereIsReturnedAfterTheDeadlineToo) {
  EXPECT_OK(member(0).Set("key", "value", Soon()));
  EXPECT_OK(member(0).Wait({"key"}, Past()));
}

TEST_P(StoreConformance, AddsFromAllMembersAreAllCounted) {
  constexpr int kTimes = 50;
  RunMembers([&](int i, Store& store) {
    for (int n = 0; n < kTimes; ++n) {
      EXPECT_OK(store.Add("count", i + 1, Soon()));
    }
  });
  EXPECT_EQ(member(0).Add("count", 0, Soon()).value(), kTimes * 10);
  EXPECT_EQ(member(0).Add("count", -1, Soon()).value(), kTimes * 10 - 1);
  EXPECT_EQ(member(1).Get("count", Soon()).value(), "499");
}

TEST_P(StoreConformance, AddRefusesTextAndOverflowAndLeavesTheValue) {
  EXPECT_OK(member(0).Set("text", "12 men", Soon()));
  EXPECT_THAT(member(0).Add("text", 1, Soon()),
              StatusIs(StatusCode::kInvalidArgument,
                       testing::AllOf(testing::HasSubstr("text"),
                                      testing::HasSubstr("12 men"))));
  EXPECT_EQ(member(0).Get("text", Soon()).value(), "12 men");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(member(0).Add("big", kMax, Soon()).value(), kMax);
  EXPECT_THAT(member(0).Add("big", 1, Soon()),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_EQ(member(0).Get("big", Soon()).value(), std::to_string(kMax));
}

TEST_P(StoreConformance, CompareAndSetChangesOnlyWhatIsExpected) {
  Store& store = member(0);
  EXPECT_EQ(store.CompareAndSet("key", "old", "new", Soon()).value(),
            std::nullopt);
  EXPECT_EQ(store.CompareAndSet("key", std::nullopt, "a", Soon()).value(), "a");
  EXPECT_EQ(store.CompareAndSet("key", std::nullopt, "b", Soon()).value(), "a");
  EXPECT_EQ(store.CompareAndSet("key", "x", "b", Soon()).value(), "a");
  EXPECT_EQ(store.CompareAndSet("key", "a", "b", Soon()).value(), "b");
  EXPECT_EQ(member(1).Get("key", Soon()).value(), "b");
}

TEST_P(StoreConformance, OneMemberWinsACompareAndSet) {
  std::vector<std::string> seen(kSize);
  RunMembers([&](int i, Store& store) {
    const auto value =
        store.CompareAndSet("leader", std::nullopt, std::to_string(i), Soon());
    ASSERT_OK(value);
    seen[i] = value->value_or("");
  });
  EXPECT_THAT(seen, testing::Each(member(0).Get("leader", Soon()).value()));
}

TEST_P(StoreConformance, WhatCameBeforeABarrierIsThereAfterIt) {
  constexpr int kRounds = 20;
  RunMembers([&](int i, Store& store) {
    for (int round = 0; round < kRounds; ++round) {
      const std::string key = "round/" + std::to_string(round);
      EXPECT_OK(store.Add(key, 1, Soon()));
      EXPECT_OK(store.Barrier("step", i, kSize, Soon()));
      EXPECT_EQ(store.Get(key, Soon()).value(), std::to_string(kSize));
    }
  });
}

TEST_P(StoreConformance, ABarrierNamesWhoIsMissing) {
  const Status status = member(1).Barrier("start", 1, kSize, Briefly());
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                               testing::AllOf(testing::HasSubstr("start"),
                                              testing::HasSubstr("member 1"),
                                              testing::HasSubstr("0, 2, 3"))));
}

TEST_P(StoreConformance, AMemberThatGaveUpCanComeAgain) {
  EXPECT_THAT(member(1).Barrier("start", 1, kSize, Briefly()),
              HasCode(StatusCode::kDeadlineExceeded));
  // Nobody counts 1 any more.
  EXPECT_THAT(
      member(0).Barrier("start", 0, kSize, Briefly()),
      StatusIs(StatusCode::kDeadlineExceeded, testing::HasSubstr("1, 2, 3")));
  RunMembers([&](int i, Store& store) {
    EXPECT_OK(store.Barrier("start", i, kSize, Soon()));
  });
}

TEST_P(StoreConformance, BarriersOfOtherNamesDoNotMix) {
  RunMembers([&](int i, Store& store) {
    const std::string name = i < 2 ? "low" : "high";
    EXPECT_OK(store.Barrier(name, i % 2, 2, Soon()));
  });
}

TEST_P(StoreConformance, ABarrierOfOneDoesNotWait) {
  EXPECT_OK(member(0).Barrier("alone", 0, 1, Briefly()));
  EXPECT_OK(member(0).Barrier("alone", 0, 1, Briefly()));
}

TEST_P(StoreConformance, AMemberOutsideOfItsBarrierIsAnError) {
  for (int index : {-1, kSize, kSize + 1}) {
    EXPECT_THAT(
        member(0).Barrier("start", index, kSize, Soon()),
        StatusIs(StatusCode::kInvalidArgument, testing::HasSubstr("start")));
  }
}

TEST_P(StoreConformance, MembersThatDisagreeOnTheSizeAreToldBoth) {
  const Status second =
      SecondToCome("start", {.index = 0, .size = 2}, {.index = 1, .size = 3});
  EXPECT_THAT(second, StatusIs(StatusCode::kInvalidArgument,
                               testing::AllOf(testing::HasSubstr("3 members"),
                                              testing::HasSubstr("for 2"))));
}

TEST_P(StoreConformance, OneMemberCannotWaitTwice) {
  const Status second = SecondToCome("start", {.index = 0, .size = kSize},
                                     {.index = 0, .size = kSize});
  EXPECT_THAT(second, StatusIs(StatusCode::kFailedPrecondition,
                               testing::HasSubstr("already waiting")));
}

TEST_P(StoreConformance, AbortEndsEveryCallWithItsReason) {
  RunMembers([&](int i, Store& store) {
    if (i == 0) {
      EXPECT_THAT(store.Wait({"never"}, Soon()),
                  StatusIs(StatusCode::kUnavailable, "rank 3 died"));
    } else if (i == 1) {
      EXPECT_THAT(store.Barrier("never", 0, 2, Soon()),
                  StatusIs(StatusCode::kUnavailable, "rank 3 died"));
    } else if (i == 2) {
      AbortAll(Unavailable("rank 3 died"));
      AbortAll(Internal("second"));
    }
  });
  const auto died = StatusIs(StatusCode::kUnavailable, "rank 3 died");
  EXPECT_THAT(member(0).Set("k", "v", Soon()), died);
  EXPECT_THAT(member(0).Get("k", Soon()), died);
  EXPECT_THAT(member(0).Wait({}, Soon()), died);
  EXPECT_THAT(member(0).Add("k", 1, Soon()), died);
  EXPECT_THAT(member(0).CompareAndSet("k", std::nullopt, "v", Soon()), died);
  EXPECT_THAT(member(0).Barrier("b", 0, 1, Soon()), died);
}

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_STORE_CONFORMANCE_H_
