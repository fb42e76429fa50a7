// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/ucx.h"

#include <thread>
#include <utility>

#include "fleet/channel/channel_conformance.h"

namespace fleet::channel {
namespace {

MeetOptions ByUcx() { return {.carrier = Carrier::kUcx}; }

INSTANTIATE_TEST_SUITE_P(Ucx, ChannelConformance,
                         testing::Values(OverAddress("127.0.0.1:0", ByUcx())));
INSTANTIATE_TEST_SUITE_P(Ucx, ProcessConformance,
                         testing::Values(OverAddress("127.0.0.1:0", ByUcx())));

TEST(Ucx, IsAWordOfFleetChannel) {
  ASSERT_OK_AND_ASSIGN(const Carrier ucx, ParseCarrier("ucx"));
  EXPECT_EQ(ucx, Carrier::kUcx);
  ASSERT_OK_AND_ASSIGN(const Carrier tcp, ParseCarrier("tcp"));
  EXPECT_EQ(tcp, Carrier::kTcp);
  EXPECT_THAT(ParseCarrier("rdma"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("'rdma'")));
}

TEST(Ucx, BothSidesMustWishIt) {
  MeetOptions refusing;
  std::string refused;
  refusing.on_refused = [&](const Status& why) { refused = why.message(); };
  ASSERT_OK_AND_ASSIGN(const Address any, Address::Parse("127.0.0.1:0"));
  ASSERT_OK_AND_ASSIGN(auto listener, Listener::Bind(any, refusing));
  Status answer;
  std::thread caller([&] {
    answer = Connect(listener->address(), ByUcx(), Soon()).status();
    listener->Abort(Internal("enough"));
  });
  EXPECT_FALSE(listener->Accept(Soon()).ok());
  caller.join();
  EXPECT_THAT(answer, StatusIs(StatusCode::kFailedPrecondition,
                               HasSubstr("goes on by TCP, and this process by "
                                         "UCX")));
  EXPECT_THAT(refused, HasSubstr("the same FLEET_CHANNEL"));
}

// A peer that stops between hello and the first byte holds up nobody: only
// what is said to it waits.
TEST(Ucx, AConnectionThatEndsBeforeItIsUsedIsUnavailable) {
  Ends ends = MeetAt("127.0.0.1:0", ByUcx());
  ends.b.reset();
  EXPECT_THAT(ends.a->NextSize(Soon()), HasCode(StatusCode::kUnavailable));
  Status status;
  while (status.ok()) status = ends.a->Send(Text("x"), Soon());
  EXPECT_THAT(status, HasCode(StatusCode::kUnavailable));
}

TEST(Ucx, ManyChannelsOfOneProcess) {
  std::vector<Ends> all;
  for (int i = 0; i < 8; ++i) all.push_back(MeetAt("127.0.0.1:0", ByUcx()));
  for (Ends& ends : all) ASSERT_OK(ends.a->Send(Pattern(70'000), Soon()));
  for (Ends& ends : all) {
    ASSERT_OK_AND_ASSIGN(Message got, ends.b->RecvMessage(kAnySize, Soon()));
    EXPECT_TRUE(got == Pattern(70'000));
  }
}

}  // namespace
}  // namespace fleet::channel
