// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>

#include "fleet/base/check.h"

namespace fleet::channel {
namespace {

using base::Deadline;

// Enough for the headers and bodies of a few hundred small messages in one
// call; larger ones go straight to the caller's memory.
constexpr size_t kReadAhead = 16 << 10;

// Half a minute until a silent host is given up: routers that restart take
// less.
constexpr int kKeepIdleSeconds = 10;
constexpr int kKeepSeconds = 5;
constexpr int kKeepCount = 4;

bool MustWait(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

Status PeerGone(int error_number) {
  return ErrnoStatus(error_number, "the connection is lost");
}

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(base::Descriptor fd) : fd_(std::move(fd)) {
    TuneSocket(fd_.get());
  }

  Result<size_t> TryWrite(std::span<const iovec> pieces) override {
    msghdr message = Message(pieces);
    const ssize_t count =
        Retry([&] { return sendmsg(fd_.get(), &message, MSG_NOSIGNAL); });
    if (count >= 0) return static_cast<size_t>(count);
    if (MustWait(errno)) return size_t{0};
    return Unavailable(PeerGone(errno).message());
  }

  Result<size_t> TryRead(std::span<const iovec> pieces) override {
    msghdr message = Message(pieces);
    const ssize_t count =
        Retry([&] { return recvmsg(fd_.get(), &message, 0); });
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return Unavailable("the peer closed the connection");
    if (MustWait(errno)) return size_t{0};
    return Unavailable(PeerGone(errno).message());
  }

  void WaitWritable(Deadline deadline) override {
    WaitFor(fd_.get(), POLLOUT, deadline);
  }
  void WaitReadable(Deadline deadline) override {
    WaitFor(fd_.get(), POLLIN, deadline);
  }
  // The kernel still delivers what was written, and wakes poll().
  void Shut() override { (void)shutdown(fd_.get(), SHUT_RDWR); }
  size_t read_ahead() const override { return kReadAhead; }

 private:
  static msghdr Message(std::span<const iovec> pieces) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return message;
  }
  template <typename Call>
  static ssize_t Retry(Call call) {
    ssize_t count;
    do {
      count = call();
    } while (count < 0 && errno == EINTR);
    return count;
  }

  const base::Descriptor fd_;
};

}  // namespace

std::string Address::ToString() const {
  if (is_local()) return "@" + local_name;
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> Address::Parse(std::string_view text) {
  Address address;
  if (text.starts_with('@')) {
    address.local_name = text.substr(1);
    if (address.local_name.empty() ||
        address.local_name.size() >= sizeof(sockaddr_un::sun_path) - 1) {
      return InvalidArgument("address \"", text, "\": a name of 1 to ",
                             sizeof(sockaddr_un::sun_path) - 2,
                             " bytes must follow @");
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = {};  // an IPv6 address without brackets: where does it end?
  }
  if (colon == std::string_view::npos || host.empty()) {
    return InvalidArgument("address \"", text,
                           "\": must be host:port, [ipv6]:port or @name");
  }
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return InvalidArgument("address \"", text, "\": \"", port,
                           "\" is not a port (0 to 65535)");
  }
  address.host = host;
  return address;
}

Result<std::vector<SocketAddress>> Resolve(const Address& address) {
  std::vector<SocketAddress> resolved;
  if (address.is_local()) {
    // Abstract: the name begins with a zero byte and ends by its length.
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path + 1, address.local_name.data(),
                address.local_name.size());
    SocketAddress& out = resolved.emplace_back();
    out.byte_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           address.local_name.size());
    std::memcpy(&out.storage, &local, out.byte_size);
    return resolved;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                  &hints, &list);
  if (failure != 0) {
    return NotFound(address.ToString(), ": ", gai_strerror(failure));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list,
                                                             freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress& out = resolved.emplace_back();
    out.byte_size = at->ai_addrlen;
    std::memcpy(&out.storage, at->ai_addr, at->ai_addrlen);
  }
  return resolved;
}

Address ToAddress(const SocketAddress& from) {
  Address address;
  char host[INET6_ADDRSTRLEN] = "";
  if (from.storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &from.storage, sizeof(in));
    address.host = inet_ntop(AF_INET, &in.sin_addr, host, sizeof(host));
    address.port = ntohs(in.sin_port);
  } else if (from.storage.ss_family == AF_INET6) {
    sockaddr_in6 in6;
    std::memcpy(&in6, &from.storage, sizeof(in6));
    address.host = inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host));
    // IPv4 at a socket for both: others know it by its plain form.
    constexpr std::string_view kMapped = "::ffff:";
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
      address.host.erase(0, kMapped.size());
    }
    address.port = ntohs(in6.sin6_port);
  } else if (from.byte_size > offsetof(sockaddr_un, sun_path) + 1) {
    sockaddr_un local;
    std::memcpy(&local, &from.storage, sizeof(local));
    address.local_name.assign(
        local.sun_path + 1,
        from.byte_size - offsetof(sockaddr_un, sun_path) - 1);
  }
  return address;
}

int PollTimeout(Deadline deadline) {
  if (deadline.is_infinite()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  return static_cast<int>(std::min<int64_t>(left.count(), INT_MAX));
}

bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1";
}

bool WaitFor(int fd, short events, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) return true;
    if (ready == 0 && deadline.expired()) return false;
    FLEET_CHECK(ready == 0 || errno == EINTR || errno == ENOMEM,
                "poll: ", std::strerror(errno));
  }
}

Status WaitFor(int fd, short events, Deadline deadline,
               const base::InterruptCheck& interrupt, const char* late) {
  return base::WaitInterruptibly(deadline, interrupt, [&](Deadline slice) {
    return WaitFor(fd, events, slice) ? OkStatus() : DeadlineExceeded(late);
  });
}

Status WriteAll(int fd, std::span<const std::byte> bytes, Deadline deadline,
                const base::InterruptCheck& interrupt) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (MustWait(errno)) {
      RETURN_IF_ERROR(
          WaitFor(fd, POLLOUT, deadline, interrupt, "it takes no bytes"));
    } else if (errno != EINTR) {
      return Unavailable(PeerGone(errno).message());
    }
  }
  return OkStatus();
}

Status ReadAll(int fd, std::span<std::byte> bytes, Deadline deadline,
               const base::InterruptCheck& interrupt) {
  while (!bytes.empty()) {
    const ssize_t count = recv(fd, bytes.data(), bytes.size(), 0);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0) {
      return Unavailable("it closed the connection");
    } else if (MustWait(errno)) {
      RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline, interrupt, "no answer"));
    } else if (errno != EINTR) {
      return Unavailable(PeerGone(errno).message());
    }
  }
  return OkStatus();
}

void TuneSocket(int fd) {
  // Not for every kind of socket, and none is needed to work.
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // A host that vanished is found though nothing is sent to it. One that only
  // stopped its process answers by its kernel, and is late, not dead; that is
  // also why there is no TCP_USER_TIMEOUT, which such a peer would run into.
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kKeepIdleSeconds,
                   sizeof(int));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kKeepSeconds, sizeof(int));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kKeepCount, sizeof(int));
}

std::unique_ptr<ByteStream> MakeSocketStream(base::Descriptor fd) {
  return std::make_unique<SocketStream>(std::move(fd));
}

}  // namespace fleet::channel
