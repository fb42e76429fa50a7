// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/proxy.h"

#include <cerrno>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fleet::chaos {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

base::Descriptor NewSocket() {
  base::Descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  (void)::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return made;
}

}  // namespace

Result<Listening> ListenOnLoopback() {
  Listening made;
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  // It stays open in processes that are started with it.
  made.socket = base::Descriptor(::socket(AF_INET, SOCK_STREAM, 0));
  if (!made.socket.valid() || ::bind(made.socket.get(), generic, size) != 0 ||
      ::listen(made.socket.get(), 64) != 0 ||
      ::getsockname(made.socket.get(), generic, &size) != 0) {
    return ErrnoStatus(errno, "listen on loopback");
  }
  made.port = ntohs(address.sin_port);
  return made;
}

Proxy::Proxy(Listening listening, uint16_t server_port)
    : listener_(std::move(listening.socket)),
      port_(listening.port),
      server_port_(server_port) {}

Result<std::unique_ptr<Proxy>> Proxy::Start(uint16_t server_port) {
  ASSIGN_OR_RETURN(Listening listening, ListenOnLoopback());
  std::unique_ptr<Proxy> proxy(new Proxy(std::move(listening), server_port));
  proxy->accepting_ = std::jthread([it = proxy.get()] { it->Accept(); });
  return proxy;
}

Proxy::~Proxy() {
  ends_ = true;
  accepting_.join();
  Cut();
  base::MutexLock lock(mutex_);
  links_.clear();
}

void Proxy::Cut() {
  base::MutexLock lock(mutex_);
  for (Link& link : links_) {
    // Unread bytes make it a reset, as that of a host that is gone.
    (void)::shutdown(link.worker.get(), SHUT_RDWR);
    (void)::shutdown(link.server.get(), SHUT_RDWR);
  }
}

void Proxy::Clean() {
  for (auto it = links_.begin(); it != links_.end();) {
    it = it->num_running == 0 ? links_.erase(it) : std::next(it);
  }
}

void Proxy::Accept() {
  while (!ends_) {
    pollfd waiting = {listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    base::Descriptor worker(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!worker.valid()) continue;
    const int on = 1;
    (void)::setsockopt(worker.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    base::Descriptor server = NewSocket();
    const sockaddr_in address = Loopback(server_port_);
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) != 0) {
      continue;
    }
    base::MutexLock lock(mutex_);
    Clean();
    Link& link = links_.emplace_back();
    link.worker = std::move(worker);
    link.server = std::move(server);
    const int a = link.worker.get();
    const int b = link.server.get();
    link.there = std::jthread([this, &link, a, b] { Carry(link, a, b); });
    link.back = std::jthread([this, &link, a, b] { Carry(link, b, a); });
  }
}

void Proxy::Carry(Link& link, int from, int to) {
  std::vector<char> piece(64 << 10);
  while (true) {
    const ssize_t size = ::read(from, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    if (const int delay = delay_ms_; delay > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    }
    ssize_t sent = 0;
    while (sent < size) {
      const ssize_t n = ::send(to, piece.data() + sent,
                               static_cast<size_t>(size - sent), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      sent += n;
    }
    if (sent < size) break;
  }
  (void)::shutdown(from, SHUT_RDWR);
  (void)::shutdown(to, SHUT_RDWR);
  --link.num_running;
}

}  // namespace fleet::chaos
