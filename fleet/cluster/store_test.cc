// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/store.h"

#include <limits>
#include <string>
#include <vector>

#include "fleet/cluster/store_conformance.h"

namespace fleet::cluster {
namespace {

class InProcessGroup final : public StoreGroup {
 public:
  Store& member(int) override { return store_; }

 private:
  InProcessStore store_;
};

std::unique_ptr<StoreGroup> MakeInProcess(int) {
  return std::make_unique<InProcessGroup>();
}

using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance,
                         testing::Values(MakeInProcess));

TEST(InProcessStore, NamesNoMoreThanEightThatAreMissing) {
  InProcessStore store;
  EXPECT_THAT(
      store.Barrier("start", 0, 100, base::Deadline::After({})),
      StatusIs(StatusCode::kDeadlineExceeded,
               "barrier start: member 0 waits for 99 of 100 members: 1, 2, 3, "
               "4, 5, 6, 7, 8 and 91 more"));
}

TEST(InProcessStore, ABarrierHasASize) {
  InProcessStore store;
  const int most = Store::kMaxBarrierSize;
  EXPECT_THAT(
      store.Barrier("start", 0, most, base::Deadline::After({})),
      StatusIs(StatusCode::kDeadlineExceeded,
               "barrier start: member 0 waits for 1048575 of 1048576 members: "
               "1, 2, 3, 4, 5, 6, 7, 8 and 1048567 more"));
  for (int size : {most + 1, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(store.Barrier("start", 0, size, base::Deadline::After({})),
                HasCode(StatusCode::kInvalidArgument));
  }
}

TEST(InProcessStore, TwoCallsOfOneIdDoNotWait) {
  InProcessStore store;
  const InProcessStore::CallId id{1, 7};
  int num_done = 0;
  auto wait_done = [&](const Result<std::vector<std::string>>& values) {
    EXPECT_OK(values);
    ++num_done;
  };
  auto barrier_done = [&](const Status& status) {
    EXPECT_OK(status);
    ++num_done;
  };
  EXPECT_TRUE(store.StartWait(id, {"key"}, wait_done));
  EXPECT_FALSE(store.StartWait(id, {"other"}, wait_done));
  EXPECT_FALSE(store.StartBarrier(id, "all", 0, 2, barrier_done));
  EXPECT_TRUE(store.StartWait({2, 7}, {"key"}, wait_done));
  EXPECT_OK(store.Set("key", "value", base::Deadline::After({})));
  EXPECT_EQ(num_done, 2);
  EXPECT_TRUE(store.StartBarrier(id, "all", 0, 2, barrier_done));
  EXPECT_FALSE(store.StartBarrier(id, "all", 1, 2, barrier_done));
  EXPECT_TRUE(store.StartBarrier({2, 7}, "all", 1, 2, barrier_done));
  EXPECT_EQ(num_done, 4);
}

TEST(InProcessStore, RefusesWhatIsMoreThanItHasRoomFor) {
  InProcessStore store(10'000);
  const std::string half(5'000, 'x');
  ASSERT_OK(store.Set("a", half, Soon()));
  EXPECT_THAT(store.Set("b", half, Soon()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("full")));
  EXPECT_THAT(store.CompareAndSet("b", std::nullopt, half, Soon()),
              HasCode(StatusCode::kFailedPrecondition));
  // What takes the place of another counts once.
  for (int i = 0; i < 10; ++i) ASSERT_OK(store.Set("a", half, Soon()));
  ASSERT_OK(store.Set("a", "", Soon()));
  ASSERT_OK(store.Set("b", half, Soon()));
  EXPECT_OK(store.Add("count", 1, Soon()));
}

TEST(InProcessStore, CallsThatWaitTakeRoomUntilTheyEnd) {
  InProcessStore store(10'000);
  const std::vector<std::string> keys = {std::string(3'000, 'k')};
  std::vector<Status> ended;
  auto done = [&](const Result<std::vector<std::string>>& values) {
    ended.push_back(values.status());
  };
  ASSERT_TRUE(store.StartWait({1, 1}, keys, done));
  ASSERT_TRUE(store.StartWait({1, 2}, keys, done));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0], HasCode(StatusCode::kFailedPrecondition));
  const std::string name(4'000, 'n');
  auto met = [&](const Status& status) { ended.push_back(status); };
  ASSERT_TRUE(store.StartBarrier({1, 3}, name, 0, 2, met));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_THAT(ended[1], HasCode(StatusCode::kFailedPrecondition));
  store.ExpireCaller(1);
  EXPECT_EQ(ended.size(), 3u);
  ASSERT_TRUE(store.StartBarrier({1, 3}, name, 0, 2, met));
  EXPECT_EQ(ended.size(), 3u);  // it waits
  store.ExpireCaller(1);
  EXPECT_EQ(ended.size(), 4u);
}

}  // namespace
}  // namespace fleet::cluster
