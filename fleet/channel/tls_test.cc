// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "fleet/channel/channel_conformance.h"
#include "fleet/channel/framed_channel.h"
#include "fleet/channel/socket.h"
#include "fleet/channel/tls_stream.h"

namespace fleet::channel {
namespace {

MeetOptions Encrypted() {
  return {.trust = {"a secret of tests", Encryption::kAlways}};
}

INSTANTIATE_TEST_SUITE_P(Tls, ChannelConformance,
                         testing::Values(OverAddress("127.0.0.1:0",
                                                     Encrypted())));
INSTANTIATE_TEST_SUITE_P(Tls, ProcessConformance,
                         testing::Values(OverAddress("127.0.0.1:0",
                                                     Encrypted())));

Digest Key(uint8_t of) {
  Digest key;
  key.fill(std::byte{of});
  return key;
}

// Two ends, and what goes over the wire between them.
class Pair {
 public:
  Pair(const Digest& caller_key, const Digest& host_key) {
    int caller[2];
    int host[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, caller) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, host) != 0) {
      ADD_FAILURE() << "socketpair";
      return;
    }
    caller_end_ = base::Descriptor::OfThisProcess(caller[1]);
    host_end_ = base::Descriptor::OfThisProcess(host[1]);
    relay_ = std::jthread([this](const std::stop_token& stop) { Relay(stop); });
    std::jthread other(
        [&] { caller_ = Open(caller[0], Side::kCaller, caller_key); });
    host_ = Open(host[0], Side::kHost, host_key);
  }

  bool met() const { return caller_ != nullptr && host_ != nullptr; }
  Channel& caller() { return *caller_; }
  Channel& host() { return *host_; }
  // All bytes so far, both directions.
  std::string Seen() {
    base::MutexLock lock(mutex_);
    return seen_;
  }
  // The `n`th byte of the wire that comes from now on is changed.
  void DamageSoon(int n) { damage_in_ = n; }

 private:
  // Null when the handshake failed.
  static std::unique_ptr<Channel> Open(int fd, Side side, const Digest& key) {
    auto stream = MakeTlsStream(base::Descriptor::OfThisProcess(fd), side, key);
    EXPECT_OK(stream);
    while (true) {
      const Result<bool> done = (*stream)->Shake();
      if (!done.ok()) {
        EXPECT_THAT(done, StatusIs(StatusCode::kDataLoss, HasSubstr("TLS")));
        return nullptr;
      }
      if (*done) break;
      EXPECT_TRUE(WaitFor(fd, POLLIN, Soon()));
    }
    return std::make_unique<FramedChannel>("peer", *std::move(stream));
  }

  void Relay(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const bool moved = Move(caller_end_.get(), host_end_.get()) |
                         Move(host_end_.get(), caller_end_.get());
      if (!moved) std::this_thread::yield();
    }
  }

  bool Move(int from, int to) {
    std::array<char, 4096> bytes;
    const ssize_t count = recv(from, bytes.data(), bytes.size(), 0);
    if (count <= 0) return false;
    for (ssize_t i = 0; i < count; ++i) {
      if (damage_in_ >= 0 && damage_in_-- == 0) bytes[i] ^= 1;
    }
    base::MutexLock lock(mutex_);
    seen_.append(bytes.data(), static_cast<size_t>(count));
    return WriteAll(to, std::as_bytes(std::span(bytes).first(count)), Soon())
        .ok();
  }

  base::Descriptor caller_end_;
  base::Descriptor host_end_;
  std::unique_ptr<Channel> caller_;
  std::unique_ptr<Channel> host_;
  std::atomic<int> damage_in_ = -1;
  base::Mutex mutex_;
  std::string seen_ GUARDED_BY(mutex_);
  std::jthread relay_;
};

TEST(Tls, NothingIsReadableOnTheWire) {
  Pair pair(Key(1), Key(1));
  const std::string plain(1000, 'x');
  ASSERT_OK(pair.caller().Send(Text(plain), Soon()));
  ASSERT_OK_AND_ASSIGN(const Message got,
                       pair.host().RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(got, Text(plain));
  EXPECT_GT(pair.Seen().size(), plain.size());
  EXPECT_EQ(pair.Seen().find("xxxxxxxx"), std::string::npos);
}

TEST(Tls, AnotherKeyEndsTheHandshake) {
  Pair pair(Key(1), Key(2));
  EXPECT_FALSE(pair.met());
}

TEST(Tls, AChangedByteIsDataLossForGood) {
  Pair pair(Key(1), Key(1));
  ASSERT_OK(pair.caller().Send(Text("one"), Soon()));
  ASSERT_OK(pair.host().RecvMessage(kAnySize, Soon()));
  pair.DamageSoon(12);
  ASSERT_OK(pair.caller().Send(Text("two"), Soon()));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(pair.host().RecvMessage(kAnySize, Soon()),
                StatusIs(StatusCode::kDataLoss, HasSubstr("TLS")));
  }
}

TEST(Tls, BothSidesMustEncrypt) {
  MeetOptions off = Encrypted();
  off.trust.encryption = Encryption::kOff;
  std::string refused;
  off.on_refused = [&](const Status& why) { refused = why.message(); };
  ASSERT_OK_AND_ASSIGN(const Address any, Address::Parse("127.0.0.1:0"));
  ASSERT_OK_AND_ASSIGN(auto listener, Listener::Bind(any, off));
  Status answer;
  std::jthread caller([&] {
    answer = Connect(listener->address(), Encrypted(), Soon()).status();
    listener->Abort(Internal("enough"));
  });
  EXPECT_FALSE(listener->Accept(Soon()).ok());
  caller.join();
  EXPECT_THAT(answer, StatusIs(StatusCode::kFailedPrecondition,
                               HasSubstr("does not encrypt")));
  EXPECT_THAT(refused, HasSubstr("FLEET_ENCRYPTION"));
}

TEST(Tls, IsNotUsedInsideAHost) {
  ASSERT_OK_AND_ASSIGN(const Encryption hosts, ParseEncryption("hosts"));
  EXPECT_EQ(hosts, MeetOptions().trust.encryption);
  EXPECT_THAT(ParseEncryption("on"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("'on'")));
}

}  // namespace
}  // namespace fleet::channel
