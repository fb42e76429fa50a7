// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <cstring>
#include <memory>
#include <sys/socket.h>
#include <utility>

#include "fleet/channel/channel_conformance.h"
#include "fleet/channel/framed_channel.h"
#include "fleet/channel/socket.h"

namespace fleet::channel {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, ChannelConformance,
                         testing::Values(OverAddress("127.0.0.1:0")));
INSTANTIATE_TEST_SUITE_P(Tcp, ProcessConformance,
                         testing::Values(OverAddress("127.0.0.1:0")));

// An end over a socket whose other side the test writes by hand.
struct ByHand {
  ByHand() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) return;
    raw = base::Descriptor::OfThisProcess(fds[0]);
    channel = std::make_unique<FramedChannel>(
        "peer", MakeSocketStream(base::Descriptor::OfThisProcess(fds[1])));
  }
  base::Descriptor raw;
  std::unique_ptr<FramedChannel> channel;
};

TEST(Frame, IsEightBytesOfSizeAndTheMessage) {
  ByHand hand;
  ASSERT_OK(hand.channel->Send(Text("abc"), Soon()));
  Message wire(11);
  ASSERT_OK(ReadAll(hand.raw.get(), wire, Soon()));
  EXPECT_EQ(wire, Text(std::string_view("\3\0\0\0\0\0\0\0abc", 11)));
}

TEST(Frame, ComesTogetherFromSingleBytes) {
  ByHand hand;
  const Message wire = Text(std::string_view("\3\0\0\0\0\0\0\0abc", 11));
  for (std::byte b : wire) {
    EXPECT_THAT(hand.channel->RecvMessage(kAnySize, Now()),
                HasCode(StatusCode::kDeadlineExceeded));
    ASSERT_OK(WriteAll(hand.raw.get(), std::span(&b, 1), Soon()));
  }
  ASSERT_OK_AND_ASSIGN(Message got,
                       hand.channel->RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(got, Text("abc"));
}

TEST(Frame, OfImpossibleSizeIsDataLossForGood) {
  ByHand hand;
  ASSERT_OK(WriteAll(hand.raw.get(), Text("GET / HTTP/1.1\r\n"), Soon()));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(hand.channel->NextSize(Soon()),
                StatusIs(StatusCode::kDataLoss, HasSubstr("peer: recv")));
  }
}

TEST(Frame, ABegunMessageMustBeFinishedBeforeAnother) {
  ByHand hand;
  EXPECT_THAT(hand.channel->Send(Pattern(16 << 20), Now()),
              HasCode(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(hand.channel->Send(Text("other"), Now()),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("16777216 bytes was begun")));
}

}  // namespace
}  // namespace fleet::channel
