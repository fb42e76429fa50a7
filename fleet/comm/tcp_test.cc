// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/tcp.h"

#include <memory>
#include <thread>
#include <vector>

#include "fleet/cluster/store.h"
#include "fleet/testing/tcp_fixtures.h"

namespace fleet::comm {
namespace {

CommunicatorKind TcpKind() {
  return LoopbackKind("tcp", channel::Carrier::kTcp);
}

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformance,
                         testing::Values(TcpKind()));
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorFailures, testing::Values(TcpKind()));

TEST(Tcp, ARankThatNeverComesIsNamed) {
  cluster::InProcessStore store;
  auto connect = [&](int rank) {
    return ConnectTcp({.store = &store, .prefix = "g", .rank = rank, .size = 3},
                      {.name = "group 5"}, Deadline::After(2s))
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

TEST(Tcp, AFailureInALaterCallDoesNotEndAnEarlierOne) {
  const CommunicatorKind kind = TcpKind();  // holds the store
  const Ranks ranks = kind.make(3, [](int) { return CommunicatorOptions(); });
  auto first_call = [&](int rank) {
    Elements all = Elements::Of(DataType::kFloat32, 0, 12);
    Elements mine(DataType::kFloat32, 4);
    EXPECT_OK(ranks[rank]->Scatter(all.span(), mine.span(), 0, Soon()));
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
    EXPECT_THAT(ranks[rank]->Barrier(Soon()),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1: ")));
  }
}

TEST(Tcp, RanksThatSendMuchToEachOtherDoNotWaitForEachOther) {
  const CommunicatorKind kind = TcpKind();
  RankGroup group(kind, 3);
  group.Run([](Communicator& comm) {
    constexpr size_t kCount = 3'000'000;
    for (int to = 0; to < comm.size(); ++to) {
      if (to == comm.rank()) continue;
      Elements data = Elements::Of(DataType::kFloat32, comm.rank(), kCount);
      ASSERT_OK(comm.Send(data.span(), to, Soon()));
    }
    // Letters under way do not keep a collective from going on.
    ASSERT_OK(comm.Barrier(Soon()));
    for (int from = comm.size() - 1; from >= 0; --from) {
      if (from == comm.rank()) continue;
      Elements data(DataType::kFloat32, kCount);
      ASSERT_OK(comm.Recv(data.span(), from, Soon()));
      EXPECT_TRUE(data == Elements::Of(DataType::kFloat32, from, kCount));
    }
  });
}

}  // namespace
}  // namespace fleet::comm
