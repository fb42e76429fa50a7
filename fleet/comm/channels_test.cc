// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/channels.h"

#include <memory>
#include <thread>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/comm/communicator_conformance.h"

namespace fleet::comm {
namespace {

// Ranks that meet over loopback. The store is that of all groups of a test.
CommunicatorKind ChannelsKind() {
  auto store = std::make_shared<cluster::InProcessStore>();
  auto groups = std::make_shared<std::atomic<int>>(0);
  return {.name = "tcp",
          .make = [store, groups](
                      int size,
                      const std::function<CommunicatorOptions(int)>& options) {
            Ranks ranks(size);
            const std::string prefix = base::Concat("group/", ++*groups);
            std::vector<std::thread> threads;
            for (int i = 0; i < size; ++i) {
              threads.emplace_back([&, i] {
                ranks[i] = ConnectChannels({.store = store.get(),
                                            .prefix = prefix,
                                            .rank = i,
                                            .size = size,
                                            .secret = "s"},
                                           options(i), Patient())
                               .value();
              });
            }
            for (std::thread& thread : threads) thread.join();
            return ranks;
          }};
}

INSTANTIATE_TEST_SUITE_P(Channels, CommunicatorConformance,
                         testing::Values(ChannelsKind()));
INSTANTIATE_TEST_SUITE_P(Channels, CommunicatorFailures,
                         testing::Values(ChannelsKind()));

TEST(Channels, ARankThatNeverComesIsNamed) {
  cluster::InProcessStore store;
  auto connect = [&](int rank) {
    return ConnectChannels(
               {.store = &store, .prefix = "g", .rank = rank, .size = 3},
               {.name = "group 5"}, Deadline::After(200ms))
        .status();
  };
  std::thread first([&] {
    EXPECT_THAT(connect(0),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("group 5"), HasSubstr("rank 1"))));
  });
  EXPECT_THAT(connect(2), StatusIs(StatusCode::kDeadlineExceeded,
                                   HasSubstr("to ranks 0, 1")));
  first.join();
}

TEST(Channels, AFailureInALaterCallDoesNotEndAnEarlierOne) {
  const CommunicatorKind kind = ChannelsKind();  // holds the store
  const Ranks ranks = kind.make(3, [](int) { return CommunicatorOptions(); });
  auto first_call = [&](int rank) {
    Elements all = Elements::Of(DataType::kFloat32, 0, 12);
    Elements mine(DataType::kFloat32, 4);
    EXPECT_OK(ranks[rank]->Scatter(all.span(), mine.span(), 0, Patient()));
    EXPECT_EQ(mine.at(0), all.at(static_cast<size_t>(rank) * 4));
  };
  std::thread zero([&] { first_call(0); });  // until rank 2 has come
  std::thread one([&] {
    first_call(1);
    EXPECT_THAT(ranks[1]->Barrier(Deadline::After(50ms)),
                HasCode(StatusCode::kDeadlineExceeded));
  });
  one.join();
  first_call(2);
  zero.join();
  for (int rank : {0, 2}) {
    EXPECT_THAT(ranks[rank]->Barrier(Patient()),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1: ")));
  }
}

TEST(Channels, RanksThatSendMuchToEachOtherDoNotWaitForEachOther) {
  const CommunicatorKind kind = ChannelsKind();
  RankGroup group(kind, 3);
  group.Run([](Communicator& comm) {
    constexpr size_t kCount = 3'000'000;
    for (int to = 0; to < comm.size(); ++to) {
      if (to == comm.rank()) continue;
      Elements data = Elements::Of(DataType::kFloat32, comm.rank(), kCount);
      ASSERT_OK(comm.Send(data.span(), to, Patient()));
    }
    // Letters under way do not keep a collective from going on.
    ASSERT_OK(comm.Barrier(Patient()));
    for (int from = comm.size() - 1; from >= 0; --from) {
      if (from == comm.rank()) continue;
      Elements data(DataType::kFloat32, kCount);
      ASSERT_OK(comm.Recv(data.span(), from, Patient()));
      EXPECT_TRUE(data == Elements::Of(DataType::kFloat32, from, kCount));
    }
  });
}

}  // namespace
}  // namespace fleet::comm
