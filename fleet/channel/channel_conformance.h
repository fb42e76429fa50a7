// SPDX-License-Identifier: Apache-2.0

// What every channel must do. A transport's test file says how a pair of its
// ends is made, and inherits all cases:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, ChannelConformance,
//                            testing::Values(OverAddress("127.0.0.1:0")));
//   INSTANTIATE_TEST_SUITE_P(Tcp, ProcessConformance,
//                            testing::Values(OverAddress("127.0.0.1:0")));

#ifndef FLEET_CHANNEL_CHANNEL_CONFORMANCE_H_
#define FLEET_CHANNEL_CHANNEL_CONFORMANCE_H_

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/testing/channel_fixtures.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::channel {

struct Ends {
  std::unique_ptr<Channel> a;
  std::unique_ptr<Channel> b;
};

// How a transport makes ends.
struct ChannelKind {
  std::function<Ends()> make_ends;
  // How messages of end `a` call its peer.
  std::string peer_of_a;
  // Where a listener for another process is bound; empty when there is none.
  std::string address;
  MeetOptions options;

  friend void PrintTo(const ChannelKind& kind, std::ostream* out) {
    *out << (kind.address.empty() ? "in-process" : kind.address);
  }
};

// Ends that meet over `address`: `a` accepted, `b` connected as worker 1.
inline Ends MeetAt(const std::string& address, MeetOptions options = {}) {
  Ends ends;
  Result<Address> parsed = Address::Parse(address);
  auto listener = Listener::Bind(parsed.value(), options);
  const Address bound = listener.value()->address();
  std::thread caller([&ends, bound, options]() mutable {
    options.self.rank = 1;
    ends.b = std::move(Connect(bound, options, Soon()).value().channel);
  });
  ends.a = std::move((*listener)->Accept(Soon()).value().channel);
  caller.join();
  return ends;
}

inline ChannelKind OverAddress(const std::string& address,
                               MeetOptions options = {}) {
  return {.make_ends = [=] { return MeetAt(address, options); },
          .peer_of_a = "worker 1",
          .address = address,
          .options = options};
}

class ChannelConformance : public testing::TestWithParam<ChannelKind> {
 protected:
  ChannelConformance() : ends_(GetParam().make_ends()) {}
  Channel& a() { return *ends_.a; }
  Channel& b() { return *ends_.b; }

  Ends ends_;
};

TEST_P(ChannelConformance, MessagesArriveInOrder) {
  std::thread sender([&] {
    for (uint32_t i = 0; i < 2000; ++i) {
      ASSERT_OK(a().Send(Pattern(i % 97, i), Soon()));
    }
  });
  for (uint32_t i = 0; i < 2000; ++i) {
    ASSERT_OK_AND_ASSIGN(Message got, b().RecvMessage(kAnySize, Soon()));
    ASSERT_EQ(got, Pattern(i % 97, i)) << "message " << i;
  }
  sender.join();
}

TEST_P(ChannelConformance, SizesFromNothingTo64MegabytesArriveWhole) {
  const std::vector<size_t> sizes = {0,
                                     1,
                                     7,
                                     8,
                                     9,
                                     4095,
                                     4096,
                                     65536,
                                     (1 << 20) - 8,
                                     (1 << 20),
                                     (1 << 20) + 1,
                                     64 << 20};
  std::thread sender([&] {
    for (size_t size : sizes) {
      ASSERT_OK(a().Send(Pattern(size, 7), Soon()));
    }
  });
  for (size_t size : sizes) {
    ASSERT_OK_AND_ASSIGN(const uint64_t next, b().NextSize(Soon()));
    ASSERT_EQ(next, size);
    Message got(size);
    ASSERT_OK(b().Recv(got, Soon()));
    ASSERT_TRUE(got == Pattern(size, 7)) << size << " bytes";
  }
  sender.join();
}

TEST_P(ChannelConformance, PartsArriveAsOneMessage) {
  const Message whole = Pattern(100'000);
  std::vector<ConstBytes> parts;
  size_t at = 0;
  for (size_t i = 0; at < whole.size(); ++i) {
    const size_t count = std::min(whole.size() - at, (i % 5) * 700);
    parts.push_back(ConstBytes(whole).subspan(at, count));
    at += count;
  }
  ASSERT_GT(parts.size(), 64u);
  std::thread sender([&] { ASSERT_OK(a().SendParts(parts, Soon())); });
  ASSERT_OK_AND_ASSIGN(Message got, b().RecvMessage(kAnySize, Soon()));
  sender.join();
  EXPECT_EQ(got, whole);
}

TEST_P(ChannelConformance, BothDirectionsRunAtOnce) {
  // More than any channel holds: a channel whose directions waited for each
  // other would stand still.
  constexpr size_t kSize = 16 << 20;
  auto send = [](Channel& channel, const Message& message) {
    for (int i = 0; i < 3; ++i) ASSERT_OK(channel.Send(message, Soon()));
  };
  auto receive = [](Channel& channel, const Message& message) {
    for (int i = 0; i < 3; ++i) {
      Message got(kSize);
      ASSERT_OK(channel.Recv(got, Soon()));
      ASSERT_TRUE(got == message);
    }
  };
  const Message from_a = Pattern(kSize, 1), from_b = Pattern(kSize, 2);
  std::thread a_sends([&] { send(a(), from_a); });
  std::thread b_sends([&] { send(b(), from_b); });
  std::thread a_receives([&] { receive(a(), from_b); });
  receive(b(), from_a);
  a_sends.join();
  b_sends.join();
  a_receives.join();
}

TEST_P(ChannelConformance, ManySmallMessagesGoBackAndForth) {
  constexpr uint64_t kRounds = 5000;
  std::thread echo([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t value = 0;
      ASSERT_OK(b().Recv(std::as_writable_bytes(std::span(&value, 1)), Soon()));
      ++value;
      ASSERT_OK(b().Send(std::as_bytes(std::span(&value, 1)), Soon()));
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    uint64_t value = 3 * i;
    ASSERT_OK(a().Send(std::as_bytes(std::span(&value, 1)), Soon()));
    ASSERT_OK(a().Recv(std::as_writable_bytes(std::span(&value, 1)), Soon()));
    ASSERT_EQ(value, 3 * i + 1);
  }
  echo.join();
}

TEST_P(ChannelConformance, AskingForTheSizeDoesNotTakeTheMessage) {
  ASSERT_OK(a().Send(Text("four"), Soon()));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const uint64_t size, b().NextSize(Soon()));
    EXPECT_EQ(size, 4u);
  }
  ASSERT_OK_AND_ASSIGN(Message got, b().RecvMessage(4, Soon()));
  EXPECT_EQ(got, Text("four"));
}

TEST_P(ChannelConformance, AMessageOfAnotherSizeStays) {
  ASSERT_OK(a().Send(Text("four"), Soon()));
  Message five(5);
  EXPECT_THAT(b().Recv(five, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("4 bytes")));
  EXPECT_THAT(b().RecvMessage(3, Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 3")));
  ASSERT_OK_AND_ASSIGN(Message got, b().RecvMessage(4, Soon()));
  EXPECT_EQ(got, Text("four"));
}

TEST_P(ChannelConformance, WhatWasSentBeforeTheEndStillArrives) {
  ASSERT_OK(b().Send(Text("one"), Soon()));
  ASSERT_OK(b().Send(Text("two"), Soon()));
  ends_.b.reset();
  ASSERT_OK_AND_ASSIGN(Message one, a().RecvMessage(kAnySize, Soon()));
  ASSERT_OK_AND_ASSIGN(Message two, a().RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(one, Text("one"));
  EXPECT_EQ(two, Text("two"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(a().NextSize(Soon()),
                StatusIs(StatusCode::kUnavailable,
                         AllOf(HasSubstr(GetParam().peer_of_a),
                               HasSubstr("recv"), HasSubstr(" s"))));
  }
}

TEST_P(ChannelConformance, SendingToAPeerThatClosedIsUnavailable) {
  b().Close();
  Status status;
  // A network learns of it with the second message.
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = a().Send(Pattern(100'000), Soon());
  }
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable,
                               AllOf(HasSubstr(GetParam().peer_of_a),
                                     HasSubstr("send 100000 bytes"))));
}

TEST_P(ChannelConformance, APeerThatClosesWakesTheReceiver) {
  std::thread closer([&] { b().Close(); });
  EXPECT_THAT(a().NextSize(Soon()), HasCode(StatusCode::kUnavailable));
  closer.join();
}

TEST_P(ChannelConformance, ALateMessageIsDeadlineExceededAndArrivesLater) {
  EXPECT_THAT(a().NextSize(Now()),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(GetParam().peer_of_a),
                             HasSubstr("no message in 0."))));
  EXPECT_THAT(a().NextSize(Deadline::After(20ms)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("recv")));
  ASSERT_OK(b().Send(Text("late"), Soon()));
  ASSERT_OK_AND_ASSIGN(Message got, a().RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(got, Text("late"));
}

TEST_P(ChannelConformance, APeerThatTakesNothingIsDeadlineExceeded) {
  const Message message = Pattern(1 << 20);
  size_t sent = 0;
  Status status;
  while (true) {
    status = a().Send(message, Deadline::After(10ms));
    if (!status.ok()) break;
    ++sent;
    ASSERT_LT(sent, 1000u) << "a channel must not hold a gigabyte";
  }
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr(GetParam().peer_of_a),
                                     HasSubstr("takes nothing"))));
  // Once more with the same message, and nothing is lost or doubled.
  std::thread again([&] {
    ASSERT_OK(a().Send(message, Soon()));
    ASSERT_OK(a().Send(Text("end"), Soon()));
  });
  for (size_t i = 0; i < sent + 1; ++i) {
    ASSERT_OK_AND_ASSIGN(Message got, b().RecvMessage(kAnySize, Soon()));
    ASSERT_TRUE(got == message) << "message " << i;
  }
  ASSERT_OK_AND_ASSIGN(Message end, b().RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(end, Text("end"));
  again.join();
}

TEST_P(ChannelConformance, CallsCutShortGoOnWhereTheyStopped) {
  // As waits do that look for ^C: again and again with no patience.
  constexpr size_t kSize = 24 << 20;
  const Message message = Pattern(kSize, 3);
  auto insist = [](auto call) {
    Status status;
    do {
      status = call(Deadline::After(100us));
    } while (status.code() == StatusCode::kDeadlineExceeded);
    return status;
  };
  std::thread sender([&] {
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(insist([&](Deadline d) { return a().Send(message, d); }));
    }
  });
  Message got(kSize);
  ASSERT_OK(insist([&](Deadline d) { return b().Recv(got, d); }));
  EXPECT_TRUE(got == message);
  got.clear();
  ASSERT_OK(insist([&](Deadline d) {
    Result<Message> result = b().RecvMessage(kAnySize, d);
    if (result.ok()) got = std::move(*result);
    return result.status();
  }));
  EXPECT_TRUE(got == message);
  sender.join();
}

TEST_P(ChannelConformance, AbortWakesEveryWaiterWithItsReason) {
  testing::SleepingThreads waiters;
  std::thread receiver([&] {
    waiters.Enter();
    EXPECT_THAT(a().NextSize(Soon()),
                StatusIs(StatusCode::kInternal, "worker 7 failed"));
  });
  std::thread sender([&] {
    waiters.Enter();
    Status status;
    while (status.ok()) status = a().Send(Pattern(1 << 20), Soon());
    EXPECT_THAT(status, StatusIs(StatusCode::kInternal, "worker 7 failed"));
  });
  waiters.Await(2);
  a().Abort(Internal("worker 7 failed"));
  receiver.join();
  sender.join();
  a().Abort(Internal("another"));
  a().Close();
  EXPECT_THAT(a().Send(Text("x"), Soon()),
              StatusIs(StatusCode::kInternal, "worker 7 failed"));
  EXPECT_THAT(a().NextSize(Soon()), HasCode(StatusCode::kInternal));
}

TEST_P(ChannelConformance, CloseWakesTheReceiverOfThisSide) {
  std::thread receiver([&] {
    EXPECT_THAT(a().NextSize(Soon()),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(GetParam().peer_of_a),
                               HasSubstr("closed on this side"))));
  });
  a().Close();
  receiver.join();
}

// What a channel between two processes must do: a child connects, and dies.
class ProcessConformance : public testing::TestWithParam<ChannelKind> {
 protected:
  // Starts a child that connects and runs `body`, and accepts it.
  void StartPeer(const std::function<void(Channel&)>& body) {
    Result<Address> address = Address::Parse(GetParam().address);
    MeetOptions options = GetParam().options;
    auto listener = Listener::Bind(address.value(), options);
    ASSERT_OK(listener);
    options.self = {ProcessKind::kWorker, 1};
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      Result<Connection> connection =
          Connect((*listener)->address(), options, Soon());
      if (!connection.ok()) _exit(1);
      body(*connection->channel);
      _exit(0);
    }
    ASSERT_OK_AND_ASSIGN(Connection connection, (*listener)->Accept(Soon()));
    EXPECT_EQ(connection.peer, (Identity{ProcessKind::kWorker, 1}));
    channel_ = std::move(connection.channel);
  }

  void KillPeer() { ASSERT_EQ(kill(child_, SIGKILL), 0); }

  void TearDown() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  std::unique_ptr<Channel> channel_;
  pid_t child_ = -1;
};

// Does nothing until the process is killed.
inline void SleepForever(Channel& channel) {
  (void)channel.NextSize(Deadline::Infinite());
  while (true) pause();
}

TEST_P(ProcessConformance, MessagesCrossBetweenProcesses) {
  StartPeer([](Channel& channel) {
    Result<Message> got = channel.RecvMessage(kAnySize, Soon());
    if (got.ok()) (void)channel.Send(*got, Soon());
    (void)channel.NextSize(Soon());
  });
  const Message message = Pattern(3'000'000);
  ASSERT_OK(channel_->Send(message, Soon()));
  ASSERT_OK_AND_ASSIGN(Message got, channel_->RecvMessage(kAnySize, Soon()));
  EXPECT_TRUE(got == message);
}

TEST_P(ProcessConformance, AKilledPeerWakesTheReceiver) {
  StartPeer(SleepForever);
  testing::SleepingThreads waiters;
  waiters.Enter();
  std::thread killer([&] {
    waiters.Await(1);
    KillPeer();
  });
  EXPECT_THAT(channel_->NextSize(Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1 at ")));
  killer.join();
}

TEST_P(ProcessConformance, AKilledPeerWakesTheSender) {
  StartPeer([](Channel&) {
    while (true) pause();
  });
  testing::SleepingThreads waiters;
  waiters.Enter();
  std::thread killer([&] {
    waiters.Await(1);
    KillPeer();
  });
  Status status;
  while (status.ok()) status = channel_->Send(Pattern(1 << 20), Soon());
  EXPECT_THAT(status,
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1 at ")));
  killer.join();
}

TEST_P(ProcessConformance, WhatAPeerSentBeforeItDiedStillArrives) {
  StartPeer([](Channel& channel) {
    (void)channel.Send(Text("last words"), Soon());
    kill(getpid(), SIGKILL);
  });
  ASSERT_OK_AND_ASSIGN(Message got, channel_->RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(got, Text("last words"));
  EXPECT_THAT(channel_->NextSize(Soon()), HasCode(StatusCode::kUnavailable));
}

TEST_P(ProcessConformance, APeerThatDiesWithinAMessageIsSaidToHave) {
  StartPeer([](Channel& channel) {
    // More than the channel holds, so that it cannot be sent whole.
    (void)channel.Send(Pattern(64 << 20), Deadline::After(10ms));
    kill(getpid(), SIGKILL);
  });
  // Not read before, or the whole of it might pass.
  ASSERT_EQ(waitpid(child_, nullptr, 0), child_);
  child_ = -1;
  Message got(64 << 20);
  EXPECT_THAT(channel_->Recv(got, Soon()),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("in the middle of a message")));
}

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_CHANNEL_CONFORMANCE_H_
