// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/meet.h"

#include <algorithm>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/local_peer.h"
#include "fleet/testing/channel_fixtures.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::channel {
namespace {

using testing::AllOf;
using testing::ElementsAre;

Address Parsed(const std::string& text) {
  Result<Address> address = Address::Parse(text);
  return address.value();
}

TEST(Address, ReadsWhatItPrints) {
  for (const char* text :
       {"10.0.0.7:9000", "[::1]:0", "host-3:65535", "@fleet-1"}) {
    ASSERT_OK_AND_ASSIGN(const Address address, Address::Parse(text));
    EXPECT_EQ(address.ToString(), text);
  }
}

TEST(Address, RefusesOtherForms) {
  for (const char* text : {"", "10.0.0.7", ":9000", "h:", "h:65536", "h:-1",
                           "h:9x", "::1:9000", "@"}) {
    EXPECT_THAT(Address::Parse(text),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr(std::string("\"") + text + "\"")));
  }
}

// A listener as server 0 on a free port, and what it refused.
class Host {
 public:
  explicit Host(std::string secret = "",
                std::chrono::milliseconds patience = 60s,
                const std::string& address = "127.0.0.1:0") {
    MeetOptions options;
    options.self = {ProcessKind::kServer, 0};
    options.trust.secret = std::move(secret);
    options.hello_patience = patience;
    options.on_refused = [this](const Status& why) {
      refusals_.push_back(why);
    };
    listener_ = std::move(Listener::Bind(Parsed(address), options).value());
  }

  Listener& listener() { return *listener_; }
  const Address& address() { return listener_->address(); }
  const std::vector<Status>& refusals() { return refusals_; }

 private:
  std::vector<Status> refusals_;
  std::unique_ptr<Listener> listener_;
};

MeetOptions Worker(int rank, std::string secret = "") {
  MeetOptions options;
  options.self = {ProcessKind::kWorker, rank};
  options.trust.secret = std::move(secret);
  return options;
}

// Connects on a thread of its own.
class Caller {
 public:
  Caller(Address address, MeetOptions options)
      : thread_([this, address, options] {
          waits_.Enter();
          Result<Connection> connection = Connect(address, options, Soon());
          status_ = connection.status();
          if (connection.ok()) connection_ = std::move(*connection);
        }) {}
  ~Caller() {
    if (thread_.joinable()) thread_.join();
  }
  // Returns when the call waits for the other side.
  void AwaitWaiting() { waits_.Await(1); }
  const Status& Wait() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  Connection& connection() { return connection_; }

 private:
  testing::SleepingThreads waits_;
  Status status_;
  Connection connection_;
  std::thread thread_;
};

// A connected socket that says what the test wants.
base::Descriptor Stranger(const Address& address) {
  const SocketAddress to = Resolve(address).value().front();
  auto fd = base::Descriptor::OfThisProcess(
      socket(to.storage.ss_family, SOCK_STREAM, 0));
  EXPECT_EQ(connect(fd.get(), to.get(), to.byte_size), 0);
  return fd;
}

// What a caller with `options` is told, when the host serves a worker 2 with
// `secret` right after it.
Status RefusedByHost(Host& host, const MeetOptions& options,
                     const std::string& secret) {
  Status status;
  std::thread callers([&] {
    status = Connect(host.address(), options, Soon()).status();
    EXPECT_OK(Connect(host.address(), Worker(2, secret), Soon()));
  });
  Result<Connection> served = host.listener().Accept(Soon());
  callers.join();
  EXPECT_OK(served);
  if (served.ok()) {
    EXPECT_EQ(served->peer.Name(), "worker 2");
  }
  return status;
}

// The host still serves who comes now.
void ExpectServes(Host& host, const std::string& secret = "") {
  Caller good(host.address(), Worker(2, secret));
  ASSERT_OK_AND_ASSIGN(Connection connection, host.listener().Accept(Soon()));
  EXPECT_EQ(connection.peer.Name(), "worker 2");
  ASSERT_OK(good.Wait());
}

TEST(Meet, BothEndsKnowEachOther) {
  Host host("secret");
  Caller caller(host.address(), Worker(3, "secret"));
  ASSERT_OK_AND_ASSIGN(Connection at_host, host.listener().Accept(Soon()));
  ASSERT_OK(caller.Wait());
  EXPECT_EQ(at_host.peer, (Identity{ProcessKind::kWorker, 3}));
  EXPECT_THAT(at_host.channel->peer(), HasSubstr("worker 3 at 127.0.0.1:"));
  EXPECT_EQ(caller.connection().peer, (Identity{ProcessKind::kServer, 0}));
  EXPECT_EQ(caller.connection().channel->peer(),
            "server 0 at " + host.address().ToString());
}

TEST(Meet, PortZeroBecomesARealPort) {
  Host host;
  EXPECT_NE(host.address().port, 0);
}

TEST(Meet, ATakenPortIsUnavailable) {
  Host host;
  EXPECT_THAT(
      Listener::Bind(host.address(), {}),
      StatusIs(StatusCode::kUnavailable, HasSubstr(host.address().ToString())));
}

TEST(Meet, AWrongSecretIsSaidOnBothSides) {
  Host host("secret");
  EXPECT_THAT(RefusedByHost(host, Worker(1, "guess"), "secret"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker 1: connect to " +
                                       host.address().ToString()),
                             HasSubstr("server 0: refused this process"))));
  EXPECT_THAT(host.refusals(),
              ElementsAre(StatusIs(
                  StatusCode::kFailedPrecondition,
                  AllOf(HasSubstr("refused worker 1 at 127.0.0.1:"),
                        HasSubstr("does not know this job's secret")))));
}

TEST(Meet, AMissingSecretIsSaidOnBothSides) {
  Host host("secret");
  EXPECT_THAT(
      RefusedByHost(host, Worker(1), "secret"),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has a job secret")));
  EXPECT_THAT(host.refusals(),
              ElementsAre(StatusIs(StatusCode::kFailedPrecondition,
                                   HasSubstr("has no job secret"))));
}

TEST(Meet, AnotherVersionIsSaidOnBothSides) {
  Host host;
  base::Descriptor stranger = Stranger(host.address());
  Hello hello;
  hello.version = 1;
  hello.sender.rank = 5;
  ASSERT_OK(WriteAll(stranger.get(), Encode(hello), Soon()));
  ExpectServes(host);
  EXPECT_THAT(host.refusals(),
              ElementsAre(StatusIs(StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("refused worker 5"),
                                         HasSubstr("protocol version 1")))));
  // The host's own hello came back, from which the other side knows.
  HelloBytes answer;
  ASSERT_OK(ReadAll(stranger.get(), answer, Soon()));
  ASSERT_OK_AND_ASSIGN(const Hello theirs, DecodeHello(answer));
  EXPECT_EQ(theirs.version, kProtocolVersion);
  std::byte more;
  EXPECT_THAT(ReadAll(stranger.get(), std::span(&more, 1), Soon()),
              HasCode(StatusCode::kUnavailable));
}

TEST(Meet, GarbageIsRefusedAndShown) {
  Host host;
  base::Descriptor stranger = Stranger(host.address());
  ASSERT_OK(WriteAll(stranger.get(), Text("GET / HTTP/1.1\r\n\r\n"), Soon()));
  ExpectServes(host);
  EXPECT_THAT(host.refusals(),
              ElementsAre(StatusIs(StatusCode::kDataLoss,
                                   HasSubstr("began with \"GET / HTTP"))));
}

TEST(Meet, ASilentPeerDelaysNobodyAndIsRefusedWhenItsTimeIsOver) {
  Host host("", 2s);
  base::Descriptor silent = Stranger(host.address());
  base::Descriptor short_of_words = Stranger(host.address());
  ASSERT_OK(WriteAll(short_of_words.get(), Text("FLEETHI\n"), Soon()));
  ExpectServes(host);
  while (host.refusals().size() < 2) {
    EXPECT_THAT(host.listener().Accept(Deadline::After(100ms)),
                StatusIs(StatusCode::kDeadlineExceeded,
                         HasSubstr("server 0 at 127.0.0.1:")));
  }
  EXPECT_THAT(
      host.refusals(),
      testing::UnorderedElementsAre(
          StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("0 of 64 bytes")),
          StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("8 of 64 bytes"))));
  ExpectServes(host);
}

// Room for so many sockets in this process.
void AllowDescriptors(rlim_t count) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(std::max(limit.rlim_cur, count), limit.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, count);
}

TEST(Meet, AThousandSilentStrangersAreNotWaitedFor) {
  AllowDescriptors(2000);
  Host host;  // whose patience is longer than this test may take
  std::vector<base::Descriptor> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(Stranger(host.address()));
  ExpectServes(host);
  EXPECT_THAT(host.refusals(),
              testing::Each(StatusIs(StatusCode::kDeadlineExceeded,
                                     HasSubstr("made place"))));
  // And no more of them hold a descriptor than there are places.
  EXPECT_GE(host.refusals().size(), 700u);
}

TEST(Meet, StrangersMakePlaceBeforeThoseThatHaveSaidSomething) {
  AllowDescriptors(2000);
  Host host;
  base::Descriptor slow = Stranger(host.address());
  Hello hello;
  hello.sender.rank = 5;
  ASSERT_OK(WriteAll(slow.get(), Encode(hello), Soon()));
  // It is taken in, and then heard.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(host.listener().Accept(Deadline::After(0ms)),
                HasCode(StatusCode::kDeadlineExceeded));
  }
  HelloBytes answer;
  ASSERT_OK(ReadAll(slow.get(), answer, Soon()));
  std::vector<base::Descriptor> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(Stranger(host.address()));
  ExpectServes(host);
  EXPECT_GE(host.refusals().size(), 40u);
  ASSERT_OK(WriteAll(slow.get(), MakeRefusal(Verdict::kAccepted), Soon()));
  ASSERT_OK_AND_ASSIGN(Connection connection, host.listener().Accept(Soon()));
  EXPECT_EQ(connection.peer.Name(), "worker 5");
}

// A listener without a secret that was told of other hosts than this one. All
// of 127.0.0.0/8 counts as this one, so that an address of its own is needed.
TEST(Meet, HostsThatWereNotNamedAreTurnedAwayBeforeTheirHello) {
  Address any;
  any.host = "0.0.0.0";
  MeetOptions options;
  options.trust.named_hosts = {"192.0.2.77"};
  std::vector<Status> refusals;
  options.on_refused = [&](const Status& why) { refusals.push_back(why); };
  ASSERT_OK_AND_ASSIGN(auto listener, Listener::Bind(any, options));
  // This host itself is never a stranger.
  Address here;
  here.host = "127.0.0.1";
  here.port = listener->address().port;
  Caller own(here, Worker(1));
  EXPECT_OK(listener->Accept(Soon()));
  EXPECT_OK(own.Wait());
  EXPECT_TRUE(refusals.empty());
}

TEST(Meet, AListenerThatSealsGivesItsSecretInThatForm) {
  MeetOptions options;
  options.trust.secret = "secret";
  options.sealed_secret = [] { return std::string("sealed"); };
  ASSERT_OK_AND_ASSIGN(auto listener,
                       Listener::Bind(Parsed("127.0.0.1:0"), options));
  Result<std::optional<std::string>> sealed = std::nullopt;
  std::thread asks([&] {
    sealed = AskForSealedSecret(listener->address(), Worker(1), Soon());
    EXPECT_OK(Connect(listener->address(), Worker(2, "secret"), Soon()));
  });
  const Result<Connection> served = listener->Accept(Soon());
  asks.join();
  ASSERT_OK(served);
  EXPECT_EQ(served->peer.Name(), "worker 2");
  ASSERT_OK(sealed);
  EXPECT_EQ(*sealed, "sealed");
}

TEST(Meet, AListenerThatSealsNothingSaysSo) {
  Host host("secret");
  Result<std::optional<std::string>> sealed = "something";
  std::thread asks([&] {
    sealed = AskForSealedSecret(host.address(), Worker(1), Soon());
    EXPECT_OK(Connect(host.address(), Worker(2, "secret"), Soon()));
  });
  EXPECT_OK(host.listener().Accept(Soon()));
  asks.join();
  ASSERT_OK(sealed);
  EXPECT_EQ(*sealed, std::nullopt);
  EXPECT_TRUE(host.refusals().empty());
}

TEST(Meet, APeerThatLeavesDuringItsHelloIsRefused) {
  Host host;
  {
    base::Descriptor stranger = Stranger(host.address());
  }
  ExpectServes(host);
  EXPECT_THAT(host.refusals(),
              ElementsAre(StatusIs(StatusCode::kUnavailable,
                                   HasSubstr("left during the hello"))));
}

TEST(Meet, ConnectWaitsForAListenerThatComesLater) {
  Address address;
  {
    Host host;
    address = host.address();
  }
  Caller caller(address, Worker(1));
  caller.AwaitWaiting();
  Host host("", 60s, address.ToString());
  ASSERT_OK(host.listener().Accept(Soon()));
  EXPECT_OK(caller.Wait());
}

TEST(Meet, ConnectToNobodyIsDeadlineExceededAndNamesTheAddress) {
  Address address;
  {
    Host host;
    address = host.address();
  }
  EXPECT_THAT(
      Connect(address, Worker(1), Deadline::After(300ms)),
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("worker 1: connect to " + address.ToString()),
                     HasSubstr("refused"), HasSubstr(" s"))));
}

TEST(Meet, ConnectToSomethingElseThanFleetIsDataLoss) {
  auto fd = base::Descriptor::OfThisProcess(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  SocketAddress own;
  own.byte_size = sizeof(own.storage);
  ASSERT_EQ(getsockname(fd.get(), own.get(), &own.byte_size), 0);
  Caller caller(ToAddress(own), Worker(1));
  auto guest =
      base::Descriptor::OfThisProcess(accept(fd.get(), nullptr, nullptr));
  ASSERT_OK(WriteAll(guest.get(), Text("SSH-2.0-OpenSSH\r\n"), Soon()));
  EXPECT_THAT(caller.Wait(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("SSH-2.0-")));
}

TEST(Meet, ASocketBoundBySomebodyElseIsAdopted) {
  auto bound = base::Descriptor::OfThisProcess(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(bound.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)),
            0);
  ASSERT_OK_AND_ASSIGN(auto listener, Listener::Adopt(dup(bound.get()), {}));
  Caller caller(listener->address(), Worker(1));
  ASSERT_OK(listener->Accept(Soon()));
  EXPECT_OK(caller.Wait());
}

TEST(Meet, OtherDescriptorsAreNotAdopted) {
  EXPECT_THAT(Listener::Adopt(dup(0), {}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(Listener::Adopt(socket(AF_INET, SOCK_STREAM, 0), {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a bound")));
}

TEST(Meet, AbortWakesAccept) {
  Host host;
  std::thread waiter([&] {
    EXPECT_THAT(host.listener().Accept(Soon()),
                StatusIs(StatusCode::kInternal, "the job ends"));
  });
  host.listener().Abort(Internal("the job ends"));
  waiter.join();
  EXPECT_THAT(host.listener().Accept(Soon()), HasCode(StatusCode::kInternal));
}

TEST(Meet, ManyPeersComeAtOnce) {
  Host host("secret");
  std::vector<std::unique_ptr<Caller>> callers;
  for (int rank = 0; rank < 32; ++rank) {
    callers.push_back(
        std::make_unique<Caller>(host.address(), Worker(rank, "secret")));
  }
  std::vector<Connection> connections;
  std::vector<bool> seen(32, false);
  for (int i = 0; i < 32; ++i) {
    ASSERT_OK_AND_ASSIGN(Connection connection, host.listener().Accept(Soon()));
    seen[static_cast<size_t>(connection.peer.rank)] = true;
    connections.push_back(std::move(connection));
  }
  EXPECT_THAT(seen, testing::Each(true));
  for (auto& caller : callers) EXPECT_OK(caller->Wait());
}

TEST(LocalPeer, IsOfTheSameUserOrRoot) {
  EXPECT_OK((LocalPeer{7, 1000}.CheckUser(1000)));
  EXPECT_OK((LocalPeer{7, 0}.CheckUser(1000)));
  EXPECT_THAT((LocalPeer{7, 1001}.CheckUser(1000)),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("process 7 belongs to user 1001"),
                             HasSubstr("user 1000"))));
  // Root lets nobody in either.
  EXPECT_FALSE((LocalPeer{7, 1000}.CheckUser(0).ok()));
}

// Makes the calling thread, and no other, one of another user.
bool BecomeSomebodyElse() {
  return syscall(SYS_setresuid, 65534, 65534, 65534) == 0;
}

TEST(Meet, ACallerOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Host host("", 60s, base::Concat("@fleet-meet-test-a-", getpid()));
  Status called;
  std::thread other([&] {
    ASSERT_TRUE(BecomeSomebodyElse());
    called = TryToConnect(host.address(), Worker(1), Soon()).status();
    host.listener().Abort(Unavailable("enough"));
  });
  EXPECT_FALSE(host.listener().Accept(Soon()).ok());
  other.join();
  EXPECT_FALSE(called.ok());
  ASSERT_FALSE(host.refusals().empty());
  EXPECT_THAT(host.refusals().front(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("belongs to user 65534")));
}

TEST(Meet, AHostOfAnotherUserIsRefusedAndLearnsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::unique_ptr<Host> host;
  std::thread other([&] {
    ASSERT_TRUE(BecomeSomebodyElse());
    host = std::make_unique<Host>(
        "", 60s, base::Concat("@fleet-meet-test-b-", getpid()));
  });
  other.join();
  EXPECT_THAT(Connect(host->address(), Worker(1), Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("belongs to user 65534")));
  // The caller left without a word.
  EXPECT_FALSE(host->listener().Accept(Deadline::After(1ms)).ok());
  for (const Status& refusal : host->refusals()) {
    EXPECT_THAT(refusal.message(), HasSubstr("0 of 64 bytes"));
  }
}

TEST(Meet, SharedMemoryAsksForTheSecretToo) {
  Host host("secret", 60s,
            "@fleet-test-" + std::to_string(getpid()) + "-secret");
  EXPECT_THAT(RefusedByHost(host, Worker(1, "guess"), "secret"),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("refused this process")));
}

}  // namespace
}  // namespace fleet::channel
