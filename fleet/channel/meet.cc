// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/meet.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/log.h"
#include "fleet/channel/framed_channel.h"
#include "fleet/channel/local_peer.h"
#include "fleet/channel/tls_stream.h"
#include "fleet/channel/ucx.h"
#include "fleet/channel/waited.h"

namespace fleet::channel {
namespace {

// Peers between connect and the end of their hello. A port that is scanned or
// flooded holds no more descriptors than this.
constexpr size_t kMaxGuests = 256;
constexpr int kBacklog = 1024;

// Between attempts to connect. A peer on the same host is up within
// milliseconds, one that is started later by a person is not worth more than
// two attempts a second.
constexpr auto kFirstPause = std::chrono::milliseconds(2);
constexpr auto kLongestPause = std::chrono::milliseconds(500);

Result<SocketAddress> OwnAddress(int fd) {
  SocketAddress own;
  own.byte_size = sizeof(own.storage);
  if (getsockname(fd, own.get(), &own.byte_size) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  return own;
}

std::string OwnHost(int fd) {
  const Result<SocketAddress> own = OwnAddress(fd);
  return own.ok() ? ToAddress(*own).host : "";
}

bool Same(const SocketAddress& a, const SocketAddress& b) {
  return a.byte_size == b.byte_size &&
         std::memcmp(&a.storage, &b.storage, a.byte_size) == 0;
}

std::string PeerName(const Identity& peer, const std::string& where) {
  return peer.Name() + " at " + where;
}

bool ByUcx(const Address& address, const MeetOptions& options) {
  return !address.is_local() && options.carrier == Carrier::kUcx;
}

// Whether both ends of a TCP connection are on this host, as the caller sees
// it: nobody else is on the way.
bool InsideHost(int fd) {
  SocketAddress peer;
  peer.byte_size = sizeof(peer.storage);
  const Result<SocketAddress> own = OwnAddress(fd);
  if (!own.ok() || getpeername(fd, peer.get(), &peer.byte_size) != 0) {
    return false;
  }
  const std::string mine = ToAddress(*own).host;
  const std::string theirs = ToAddress(peer).host;
  return mine == theirs || (IsLoopback(mine) && IsLoopback(theirs));
}

Result<Hello> HelloOf(const Address& address, const MeetOptions& options) {
  ASSIGN_OR_RETURN(Hello hello,
                   MakeHello(options.self, !options.trust.secret.empty()));
  hello.by_ucx = ByUcx(address, options);
  hello.encrypts =
      hello.has_secret && options.trust.encryption != Encryption::kOff;
  return hello;
}

// The caller decides whether its connection is encrypted.
bool ByTls(int fd, const Address& address, const MeetOptions& options) {
  if (options.trust.secret.empty() || address.is_local() ||
      options.trust.encryption == Encryption::kOff) {
    return false;
  }
  const bool wanted =
      options.trust.encryption == Encryption::kAlways || !InsideHost(fd);
  if (wanted && ByUcx(address, options)) {
    static std::atomic<bool> said = false;
    if (!said.exchange(true)) {
      FLEET_LOG(WARNING) << "FLEET_CHANNEL=ucx: what goes over UCX is not "
                            "encrypted (FLEET_ENCRYPTION=off accepts that)";
    }
    return false;
  }
  return wanted;
}

// What a hello over the network agreed on.
struct Agreed {
  Side side = Side::kCaller;
  bool by_tls = false;
  HelloBytes caller;
  HelloBytes host;
};

Result<std::unique_ptr<ByteStream>> MakePlainStream(
    base::Descriptor fd, const MeetOptions& options) {
  if (options.carrier == Carrier::kUcx) return MakeUcxStream(std::move(fd));
  return MakeSocketStream(std::move(fd));
}

Result<std::unique_ptr<TlsStream>> BeginTls(base::Descriptor fd,
                                            const MeetOptions& options,
                                            const Agreed& agreed) {
  ASSIGN_OR_RETURN(
      const Digest key,
      MakeSessionKey(options.trust.secret.text(), agreed.caller, agreed.host));
  return MakeTlsStream(std::move(fd), agreed.side, key);
}

// A secret that cannot be used must not turn into none.
Status CheckSecret(const MeetOptions& options) {
  if (options.trust.secret.empty()) return OkStatus();
  return HmacSha256(options.trust.secret.text(), {}).status();
}

Result<base::Descriptor> OpenSocket(const SocketAddress& address) {
  auto fd = base::Descriptor::OfThisProcess([&] {
    return socket(address.storage.ss_family,
                  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  });
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

// One attempt to connect.
Result<base::Descriptor> Dial(const SocketAddress& to,
                              const MeetOptions& options, Deadline deadline) {
  ASSIGN_OR_RETURN(base::Descriptor fd, OpenSocket(to));
  if (connect(fd.get(), to.get(), to.byte_size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) {
      return ErrnoStatus(errno, "connect");
    }
    RETURN_IF_ERROR(WaitFor(fd.get(), POLLOUT, deadline, options.interrupt,
                            "connect: no answer"));
    int failure = 0;
    socklen_t byte_size = sizeof(failure);
    (void)getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &byte_size);
    if (failure != 0) return ErrnoStatus(failure, "connect");
  }
  // A port that nobody listens on can be given to the very socket that
  // connects to it, which is then connected to itself.
  ASSIGN_OR_RETURN(const SocketAddress own, OwnAddress(fd.get()));
  if (to.storage.ss_family != AF_UNIX && Same(own, to)) {
    return Unavailable("connect: nobody listens");
  }
  return fd;
}

struct Greeted {
  base::Descriptor fd;
  Identity peer;
  Agreed agreed;
};

// The hello of who answers. The begin is judged first: what is not Fleet may
// never send 64 bytes.
Result<Hello> ReadHello(int fd, HelloBytes& bytes, Deadline deadline,
                        const base::InterruptCheck& interrupt) {
  const std::span<std::byte> all(bytes);
  RETURN_IF_ERROR(ReadAll(fd, all.first(8), deadline, interrupt));
  RETURN_IF_ERROR(CheckBegin(all.first(8)));
  RETURN_IF_ERROR(ReadAll(fd, all.subspan(8), deadline, interrupt));
  return DecodeHello(bytes);
}

// The caller's side of the hello.
Result<Greeted> Greet(base::Descriptor fd, const Address& address,
                      const MeetOptions& options, Deadline deadline) {
  ASSIGN_OR_RETURN(Hello mine, HelloOf(address, options));
  mine.by_tls = ByTls(fd.get(), address, options);
  const HelloBytes my_bytes = Encode(mine);
  const base::InterruptCheck& interrupt = options.interrupt;
  RETURN_IF_ERROR(WriteAll(fd.get(), my_bytes, deadline, interrupt));

  HelloBytes bytes;
  ASSIGN_OR_RETURN(const Hello theirs,
                   ReadHello(fd.get(), bytes, deadline, interrupt));
  RETURN_IF_ERROR(CheckFit(mine, theirs).WithContext(theirs.sender.Name()));

  ASSIGN_OR_RETURN(
      const ProofBytes my_proof,
      MakeProof(options.trust.secret.text(), Side::kCaller, my_bytes, bytes));
  RETURN_IF_ERROR(WriteAll(fd.get(), my_proof, deadline, interrupt));
  ProofBytes proof;
  RETURN_IF_ERROR(ReadAll(fd.get(), proof, deadline, interrupt));
  RETURN_IF_ERROR(CheckProof(proof, options.trust.secret.text(), Side::kHost,
                             my_bytes, bytes)
                      .WithContext(theirs.sender.Name()));
  return Greeted{std::move(fd),
                 theirs.sender,
                 {Side::kCaller, mine.by_tls, my_bytes, bytes}};
}

// The caller's side of the handshake behind it.
Status Finish(TlsStream& tls, const MeetOptions& options, Deadline deadline) {
  while (true) {
    ASSIGN_OR_RETURN(const bool done, tls.Shake());
    if (done) return OkStatus();
    RETURN_IF_ERROR(WaitFor(tls.fd(), POLLIN, deadline, options.interrupt,
                            "no answer in the handshake"));
  }
}

// Whether a failure may be gone at the next attempt: nobody listens yet, or the
// peer went away during the hello.
bool WorthAnotherTry(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kNotFound:  // a name that is not known yet
      return true;
    default:
      return false;
  }
}

// The other side of AnswerWithSeal.
Result<std::optional<std::string>> AskAt(int fd, const MeetOptions& options,
                                         Deadline deadline) {
  ASSIGN_OR_RETURN(Hello mine, MakeHello(options.self, false));
  mine.seals = true;
  const base::InterruptCheck& interrupt = options.interrupt;
  RETURN_IF_ERROR(WriteAll(fd, Encode(mine), deadline, interrupt));
  HelloBytes bytes;
  ASSIGN_OR_RETURN(const Hello theirs,
                   ReadHello(fd, bytes, deadline, interrupt));
  if (!theirs.seals) return std::nullopt;
  std::array<std::byte, sizeof(uint32_t)> size_bytes;
  RETURN_IF_ERROR(ReadAll(fd, size_bytes, deadline, interrupt));
  const auto byte_size = base::LoadAt<uint32_t>(std::span(size_bytes), 0);
  if (byte_size > kMaxSealedByteSize) {
    return DataLoss(theirs.sender.Name(), ": a sealed secret of ", byte_size,
                    " bytes");
  }
  std::string sealed(byte_size, '\0');
  RETURN_IF_ERROR(ReadAll(fd, std::as_writable_bytes(std::span(sealed)),
                          deadline, interrupt));
  return sealed;
}

// `attempt` again and again until `deadline`, while its failure may be gone at
// the next one.
template <typename Attempt>
auto Persist(const Address& address, const MeetOptions& options,
             Deadline deadline, const Attempt& attempt) -> decltype(attempt()) {
  Waited waited;
  waited.Begin();
  base::Interrupt nobody;
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    auto result = attempt();
    if (result.ok()) return result;
    const Status failure = result.status();
    const bool again = WorthAnotherTry(failure);
    if (!again || deadline.expired()) {
      return Status(
          again ? StatusCode::kDeadlineExceeded : failure.code(),
          base::Concat(options.self.Name(), ": connect to ", address.ToString(),
                       ": ", failure.message(), ", after ", waited));
    }
    if (options.interrupt) RETURN_IF_ERROR(options.interrupt());
    RETURN_IF_ERROR(
        nobody.SleepUntil(Earlier(deadline, Deadline::After(pause))));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

Result<Carrier> ParseCarrier(std::string_view text) {
  if (text == "tcp") return Carrier::kTcp;
  if (text != "ucx") {
    return InvalidArgument("FLEET_CHANNEL is '", text,
                           "', but there are tcp and ucx");
  }
  RETURN_IF_ERROR(LoadUcx());
  return Carrier::kUcx;
}

// A peer that connected and has not finished its hello.
struct Listener::Guest {
  base::Descriptor fd;
  std::string where;
  Deadline patience = Deadline::Infinite();
  bool has_bytes = false;
  bool was_looked_at = false;

  bool hello_done = false;
  std::array<std::byte, std::max(kHelloByteSize, kProofByteSize)> bytes;
  size_t got = 0;
  Hello theirs;
  HelloBytes their_bytes;
  HelloBytes my_bytes;
  std::unique_ptr<TlsStream> tls;  // owns the socket, once its handshake began
  bool only_asked = false;         // for the sealed secret, and got its answer

  size_t wanted() const { return hello_done ? kProofByteSize : kHelloByteSize; }
  // It has had the time to say something, and has not.
  bool is_silent() const {
    return was_looked_at && !has_bytes && got == 0 && !hello_done;
  }
  std::string name() const {
    return hello_done ? PeerName(theirs.sender, where) : where;
  }
};

struct Listener::Parts {
  base::Descriptor fd;
  base::Descriptor wake;
  Address address;
  MeetOptions options;
};

Listener::Listener(Parts parts)
    : fd_(std::move(parts.fd)),
      wake_(std::move(parts.wake)),
      address_(std::move(parts.address)),
      options_(std::move(parts.options)),
      named_hosts_(options_.trust.secret.empty() && !address_.is_local()
                       ? options_.trust.named_hosts
                       : std::vector<std::string>()) {}

Listener::~Listener() = default;

Result<std::unique_ptr<Listener>> Listener::Bind(const Address& address,
                                                 MeetOptions options) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates,
                   Resolve(address));
  const SocketAddress& at = candidates.front();
  ASSIGN_OR_RETURN(base::Descriptor fd, OpenSocket(at));
  if (!address.is_local()) {
    // A restarted server gets its port back while old connections die out. Two
    // listeners on one port stay impossible.
    const int on = 1;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (bind(fd.get(), at.get(), at.byte_size) != 0) {
    return ErrnoStatus(errno, "listen at " + address.ToString());
  }
  return Make(std::move(fd), std::move(options));
}

Result<std::unique_ptr<Listener>> Listener::Adopt(int fd, MeetOptions options) {
  auto owned = base::Descriptor::OfThisProcess(fd);
  int type = 0;
  socklen_t byte_size = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &byte_size) != 0 ||
      type != SOCK_STREAM) {
    return InvalidArgument("descriptor ", fd, " is not a stream socket");
  }
  ASSIGN_OR_RETURN(const SocketAddress own, OwnAddress(fd));
  const Address address = ToAddress(own);
  if (!address.is_local() && address.port == 0) {
    return InvalidArgument("descriptor ", fd, " is not a bound socket");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return ErrnoStatus(errno, base::Concat("descriptor ", fd));
  }
  return Make(std::move(owned), std::move(options));
}

Result<std::unique_ptr<Listener>> Listener::Make(base::Descriptor fd,
                                                 MeetOptions options) {
  RETURN_IF_ERROR(CheckSecret(options));
  ASSIGN_OR_RETURN(const SocketAddress own, OwnAddress(fd.get()));
  Address address = ToAddress(own);
  if (ByUcx(address, options)) RETURN_IF_ERROR(LoadUcx());
  if (listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, "listen at " + address.ToString());
  }
  auto wake =
      base::Descriptor::OfThisProcess(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  return std::make_unique<Listener>(Parts{
      std::move(fd), std::move(wake), std::move(address), std::move(options)});
}

Status Listener::aborted() const {
  base::MutexLock lock(mutex_);
  return why_;
}

void Listener::Abort(Status why) {
  FLEET_CHECK(!why.ok());
  base::MutexLock lock(mutex_);
  if (!why_.ok()) return;
  why_ = std::move(why);
  const uint64_t one = 1;
  FLEET_CHECK_EQ(write(wake_.get(), &one, sizeof(one)),
                 static_cast<ssize_t>(sizeof(one)));
}

Result<Connection> Listener::Accept(Deadline deadline) {
  Waited waited;
  waited.Begin();
  while (true) {
    RETURN_IF_ERROR(aborted());
    WaitForGuests(deadline);
    Tell(refusals_.Summary(std::chrono::steady_clock::now()));
    RETURN_IF_ERROR(TakeNewGuests());
    for (size_t i = 0; i < guests_.size();) {
      Result<bool> done = false;
      if (guests_[i].has_bytes) {
        done = Greet(guests_[i]);
      } else if (guests_[i].patience.expired()) {
        done = DeadlineExceeded(
            "no whole hello in ", options_.hello_patience.count(), " ms (",
            guests_[i].got, " of ", guests_[i].wanted(), " bytes)");
      }
      if (done.ok() && !*done) {
        ++i;
        continue;
      }
      Guest guest = std::move(guests_[i]);
      guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
      if (!done.ok()) {
        Refuse(guest, done.status());
        continue;
      }
      if (guest.only_asked) continue;
      Result<Connection> connection = Welcome(guest);
      if (connection.ok()) return connection;
      Refuse(guest, connection.status());
    }
    if (deadline.expired()) {
      RETURN_IF_ERROR(aborted());
      return DeadlineExceeded(options_.self.Name(), " at ", address_.ToString(),
                              ": accept: nobody came in ", waited);
    }
  }
}

void Listener::WaitForGuests(Deadline deadline) {
  deadline = Earlier(deadline, refusals_.summary_due());
  std::vector<pollfd> entries;
  entries.reserve(guests_.size() + 2);
  for (const Guest& guest : guests_) {
    const int fd = guest.tls != nullptr ? guest.tls->fd() : guest.fd.get();
    entries.push_back({fd, POLLIN, 0});
    deadline = Earlier(deadline, guest.patience);
  }
  entries.push_back({wake_.get(), POLLIN, 0});
  const bool has_place = guests_.size() < kMaxGuests ||
                         std::any_of(
                             guests_.begin(), guests_.end(),
                             [](const Guest& guest) {
                               return guest.got == 0 && !guest.hello_done;
                             });
  if (has_place) entries.push_back({fd_.get(), POLLIN, 0});
  if (poll(entries.data(), entries.size(), PollTimeout(deadline)) < 0) return;
  for (size_t i = 0; i < guests_.size(); ++i) {
    guests_[i].has_bytes = entries[i].revents != 0;
    guests_[i].was_looked_at = true;
  }
}

// Those that wait in the kernel may be strangers, and behind them a member: so
// all are taken, and strangers that were silent make place. At most as many at
// a time as there are places, so that those that have said something get their
// answer. Where all have, the rest waits in the kernel.
Status Listener::TakeNewGuests() {
  for (size_t i = 0; i < kMaxGuests; ++i) {
    const bool is_full = guests_.size() == kMaxGuests;
    const auto silent =
        std::find_if(guests_.begin(), guests_.end(),
                     [](const Guest& other) { return other.is_silent(); });
    if (is_full && silent == guests_.end()) return OkStatus();
    Guest guest;
    SocketAddress from;
    from.byte_size = sizeof(from.storage);
    guest.fd = base::Descriptor::OfThisProcess([&] {
      return accept4(fd_.get(), from.get(), &from.byte_size,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    });
    if (!guest.fd.valid()) {
      const bool exhausted = errno == EMFILE || errno == ENFILE ||
                             errno == ENOBUFS || errno == ENOMEM;
      if (!exhausted) return OkStatus();  // nobody there, or gone again
      return ErrnoStatus(errno, "accept at " + address_.ToString());
    }
    guest.patience = Deadline::After(options_.hello_patience);
    const Status origin = CheckOrigin(guest, from);
    if (!origin.ok()) {
      Refuse(guest, origin);
      continue;
    }
    if (is_full) {
      Refuse(*silent,
             DeadlineExceeded("it was silent, and made place for one of ",
                              kMaxGuests, " others"));
      guests_.erase(silent);
    }
    guests_.push_back(std::move(guest));
  }
  return OkStatus();
}

Status Listener::CheckOrigin(Guest& guest, const SocketAddress& from) {
  if (address_.is_local()) {
    ASSIGN_OR_RETURN(const LocalPeer peer, PeerOf(guest.fd.get()));
    guest.where = peer.Name();
    return peer.CheckUser();
  }
  const Address peer = ToAddress(from);
  guest.where = peer.ToString();
  if (named_hosts_.Contain(peer.host) || peer.host == OwnHost(guest.fd.get())) {
    return OkStatus();
  }
  return FailedPrecondition(
      "this job has no secret, and its hosts are ", named_hosts_.ToString(),
      ": give all of them the same secret, or name this one too");
}

Result<bool> Listener::Greet(Guest& guest) {
  if (guest.tls != nullptr) return guest.tls->Shake();
  while (true) {
    const ssize_t count = recv(guest.fd.get(), guest.bytes.data() + guest.got,
                               guest.wanted() - guest.got, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0) return ErrnoStatus(errno, "lost during the hello");
    if (count == 0) {
      return Unavailable("left during the hello (", guest.got, " of ",
                         guest.wanted(), " bytes)");
    }
    guest.got += static_cast<size_t>(count);
    if (!guest.hello_done) {
      RETURN_IF_ERROR(CheckBegin(std::span(guest.bytes).first(guest.got)));
    }
    if (guest.got < guest.wanted()) continue;
    if (guest.hello_done) {
      RETURN_IF_ERROR(AnswerProof(guest));
      if (!guest.theirs.by_tls) return true;
      ASSIGN_OR_RETURN(
          guest.tls,
          BeginTls(std::move(guest.fd), options_,
                   {Side::kHost, true, guest.their_bytes, guest.my_bytes}));
      return guest.tls->Shake();
    }
    RETURN_IF_ERROR(AnswerHello(guest));
    if (guest.only_asked) return true;
  }
}

Status Listener::AnswerHello(Guest& guest) {
  std::copy_n(guest.bytes.begin(), kHelloByteSize, guest.their_bytes.begin());
  ASSIGN_OR_RETURN(guest.theirs, DecodeHello(guest.their_bytes));
  ASSIGN_OR_RETURN(const Hello mine, HelloOf(address_, options_));
  if (guest.theirs.seals) return AnswerWithSeal(guest, mine);
  guest.my_bytes = Encode(mine);
  guest.hello_done = true;
  guest.got = 0;
  // Sent also when the two do not fit, so that the peer learns why. A new
  // socket takes so few bytes at once.
  RETURN_IF_ERROR(
      WriteAll(guest.fd.get(), guest.my_bytes, Deadline::After({})));
  return CheckFit(mine, guest.theirs);
}

Status Listener::AnswerWithSeal(Guest& guest, Hello mine) {
  guest.only_asked = true;
  std::string sealed;
  mine.seals = options_.sealed_secret != nullptr;
  if (mine.seals) {
    ASSIGN_OR_RETURN(sealed, options_.sealed_secret());
    FLEET_CHECK(sealed.size() <= kMaxSealedByteSize);
  }
  const HelloBytes hello = Encode(mine);
  std::vector<std::byte> answer(hello.begin(), hello.end());
  if (mine.seals) {
    answer.resize(kHelloByteSize + sizeof(uint32_t));
    base::StoreAt(std::span(answer), kHelloByteSize,
                  static_cast<uint32_t>(sealed.size()));
    const auto bytes = std::as_bytes(std::span(sealed));
    answer.insert(answer.end(), bytes.begin(), bytes.end());
  }
  return WriteAll(guest.fd.get(), answer, Deadline::After({}));
}

Status Listener::AnswerProof(Guest& guest) {
  ProofBytes proof;
  std::copy_n(guest.bytes.begin(), kProofByteSize, proof.begin());
  Status proven = CheckProof(proof, options_.trust.secret.text(), Side::kCaller,
                             guest.their_bytes, guest.my_bytes);
  ProofBytes answer = MakeRefusal(Verdict::kWrongSecret);
  if (proven.ok()) {
    ASSIGN_OR_RETURN(answer,
                     MakeProof(options_.trust.secret.text(), Side::kHost,
                               guest.their_bytes, guest.my_bytes));
  }
  RETURN_IF_ERROR(WriteAll(guest.fd.get(), answer, Deadline::After({})));
  return proven;
}

Result<Connection> Listener::Welcome(Guest& guest) {
  std::string own_host =
      OwnHost(guest.tls != nullptr ? guest.tls->fd() : guest.fd.get());
  std::unique_ptr<ByteStream> stream;
  if (address_.is_local()) {
    ASSIGN_OR_RETURN(
        stream, OfferSharedMemory(std::move(guest.fd), options_.shared_memory));
  } else if (guest.tls != nullptr) {
    stream = std::move(guest.tls);
  } else {
    ASSIGN_OR_RETURN(stream, MakePlainStream(std::move(guest.fd), options_));
  }
  return Connection{
      guest.theirs.sender,
      std::make_unique<FramedChannel>(guest.name(), std::move(stream)),
      std::move(own_host)};
}

void Listener::Refuse(const Guest& guest, const Status& why) {
  const Status refusal =
      why.WithContext(options_.self.Name() + " at " + address_.ToString() +
                      ": refused " + guest.name());
  if (options_.on_refused) {
    options_.on_refused(refusal);
  } else {
    const auto now = std::chrono::steady_clock::now();
    Tell(refusals_.Summary(now));
    Tell(refusals_.Line(refusal.message(), now));
  }
}

void Listener::Tell(const std::optional<std::string>& line) {
  if (!line.has_value()) return;
  FLEET_LOG(WARNING) << *line;
}

Result<Connection> TryToConnect(const Address& address,
                                const MeetOptions& options, Deadline deadline) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates,
                   Resolve(address));
  RETURN_IF_ERROR(CheckSecret(options));
  if (ByUcx(address, options)) RETURN_IF_ERROR(LoadUcx());
  Status failure = NotFound("no address");
  for (const SocketAddress& to : candidates) {
    Result<base::Descriptor> fd = Dial(to, options, deadline);
    if (!fd.ok()) {
      failure = fd.status();
      continue;
    }
    // Before the first byte: whoever took the name learns nothing of the job.
    if (address.is_local()) {
      RETURN_IF_ERROR(CheckPeerUser(fd->get()));
    }
    ASSIGN_OR_RETURN(Greeted greeted,
                     Greet(std::move(*fd), address, options, deadline));
    std::string own_host = OwnHost(greeted.fd.get());
    std::unique_ptr<ByteStream> stream;
    if (address.is_local()) {
      ASSIGN_OR_RETURN(stream,
                       TakeSharedMemory(std::move(greeted.fd), deadline));
    } else if (greeted.agreed.by_tls) {
      ASSIGN_OR_RETURN(
          auto tls, BeginTls(std::move(greeted.fd), options, greeted.agreed));
      RETURN_IF_ERROR(Finish(*tls, options, deadline));
      stream = std::move(tls);
    } else {
      ASSIGN_OR_RETURN(stream, MakePlainStream(std::move(greeted.fd), options));
    }
    return Connection{
        greeted.peer,
        std::make_unique<FramedChannel>(
            PeerName(greeted.peer, address.ToString()), std::move(stream)),
        std::move(own_host)};
  }
  return failure;
}

Result<std::optional<std::string>> TryToAskForSealedSecret(
    const Address& address, const MeetOptions& options, Deadline deadline) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates,
                   Resolve(address));
  Status failure = NotFound("no address");
  for (const SocketAddress& to : candidates) {
    Result<base::Descriptor> fd = Dial(to, options, deadline);
    if (fd.ok()) return AskAt(fd->get(), options, deadline);
    failure = fd.status();
  }
  return failure;
}

Result<std::optional<std::string>> AskForSealedSecret(
    const Address& address, const MeetOptions& options, Deadline deadline) {
  return Persist(address, options, deadline, [&] {
    return TryToAskForSealedSecret(address, options, deadline);
  });
}

Result<Connection> Connect(const Address& address, const MeetOptions& options,
                           Deadline deadline) {
  return Persist(address, options, deadline,
                 [&] { return TryToConnect(address, options, deadline); });
}

}  // namespace fleet::channel
