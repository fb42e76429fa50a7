// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/tcp_link.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/in_process.h"
#include "fleet/cluster/store.h"
#include "fleet/comm/tcp_exchange.h"
#include "fleet/comm/tcp_links.h"
#include "fleet/testing/deadlines.h"

namespace fleet::comm {
namespace {

using testing::Soon;
using Bytes = std::vector<std::byte>;

Bytes Pattern(size_t byte_size) {
  Bytes bytes(byte_size);
  for (size_t i = 0; i < byte_size; ++i) bytes[i] = std::byte(i * 7 + 1);
  return bytes;
}

// A link, and the bare channel at its other end.
struct HalfLinked {
  HalfLinked() {
    auto [mine, theirs] = channel::MakeInProcessPair();
    link = std::make_unique<Link>(1, std::move(mine));
    raw = std::move(theirs);
  }
  std::unique_ptr<Link> link;
  std::unique_ptr<channel::Channel> raw;
};

// The one frame of a letter of twelve bytes.
Bytes LetterFrame() {
  HalfLinked pair;
  const Bytes data = Pattern(12);
  EXPECT_OK(pair.link->PostLetter({data.data(), 3, DataType::kFloat32}));
  return pair.raw->RecvMessage(1 << 20, Soon()).value();
}

// What a link makes of a frame.
Result<LinkHeader> Read(std::span<const std::byte> frame) {
  HalfLinked pair;
  EXPECT_OK(pair.raw->Send(frame, Soon()));
  pair.raw.reset();  // a frame about other frames is followed by the end
  ASSIGN_OR_RETURN(const LinkHeader header, pair.link->Next(Soon()));
  if (header.byte_size <= Link::kInlineByteSize) {
    Bytes data(header.byte_size);
    RETURN_IF_ERROR(pair.link->Take(data, Soon()));
  }
  return header;
}

TEST(Link, ALetterArrivesAsItWasSent) {
  ASSERT_OK_AND_ASSIGN(const LinkHeader header, Read(LetterFrame()));
  EXPECT_EQ(header.kind, LinkHeader::Kind::kLetter);
  EXPECT_EQ(header.call.type, DataType::kFloat32);
  EXPECT_EQ(header.call.count, 3u);
  EXPECT_EQ(header.byte_size, 12u);
}

// The wire: docs/wire.md has these places.
TEST(Link, AHeaderIsLittleEndianAtItsPlaces) {
  HalfLinked pair;
  pair.link->Post({.kind = LinkHeader::Kind::kCall,
                   .call = {.kind = CallKind::kReduce,
                            .op = ReduceOp::kMax,
                            .type = DataType::kInt64,
                            .root = -2,
                            .count = 0x0102030405060708,
                            .number = 9},
                   .byte_size = 0},
                  Bytes());
  ASSERT_OK_AND_ASSIGN(const Bytes frame,
                       pair.raw->RecvMessage(1 << 20, Soon()));
  Bytes expected(32);
  expected[1] = std::byte(CallKind::kReduce);
  expected[2] = std::byte(ReduceOp::kMax);
  expected[3] = std::byte(DataType::kInt64);
  expected[4] = std::byte{0xfe};
  for (int i = 5; i < 8; ++i) expected[i] = std::byte{0xff};
  for (int i = 0; i < 8; ++i) expected[8 + i] = std::byte(8 - i);
  expected[16] = std::byte{9};
  EXPECT_EQ(frame, expected);
}

TEST(Link, EveryPrefixOfAFrameIsDamage) {
  const Bytes frame = LetterFrame();
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_THAT(Read(std::span(frame).first(size)),
                HasCode(StatusCode::kDataLoss))
        << size;
  }
  Bytes longer = frame;
  longer.push_back({});
  EXPECT_THAT(Read(longer), HasCode(StatusCode::kDataLoss));
}

TEST(Link, NoFrameIsReadBeyondItsEnd) {
  std::mt19937_64 random(1);
  const Bytes frame = LetterFrame();
  for (int i = 0; i < 2000; ++i) {
    Bytes changed = frame;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      changed[random() % changed.size()] = std::byte(random());
    }
    const Result<LinkHeader> header = Read(changed);
    if (header.ok() && header->byte_size <= Link::kInlineByteSize) {
      EXPECT_EQ(header->byte_size, 12u);
    }
  }
}

// A rank that waits for a part of a call takes letters that come before it.
TEST(Exchange, ARankThatSendsFartherAheadThanItMayIsAnError) {
  HalfLinked pair;
  cluster::InProcessStore store;
  std::vector<std::unique_ptr<Link>> to(2);
  to[1] = std::move(pair.link);
  Links links(std::move(to), Whereabouts(store, "test", 0, 2));
  const Bytes letter = Pattern(1 << 20);
  Link peer(0, std::move(pair.raw));
  for (uint64_t sent = 0; sent < kSendAhead + 8 * letter.size();
       sent += letter.size()) {
    peer.Post({.kind = LinkHeader::Kind::kLetter,
               .call = {.type = DataType::kFloat32, .count = letter.size() / 4},
               .byte_size = letter.size()},
              std::span<const std::byte>(letter));
  }
  const std::vector<int> members = {0, 1};
  const CommunicatorOptions options;
  Exchange exchange(links, 0, members, options,
                    {.kind = CallKind::kBarrier, .number = 1}, Soon());
  EXPECT_THAT(exchange.RecvGreeting(1),
              StatusIs(StatusCode::kDataLoss,
                       testing::HasSubstr("rank 1 sent more than 64 MB")));
}

}  // namespace
}  // namespace fleet::comm
