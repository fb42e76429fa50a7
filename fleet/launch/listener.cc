// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/listener.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace fleet::launch {
namespace {

constexpr size_t kMaxWordByteSize = 256;

// Whose process sent `message`; root may speak for everybody.
bool IsOfThisUser(const msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) {
      continue;
    }
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
    return sender.uid == geteuid() || sender.uid == 0;
  }
  return false;
}

}  // namespace

WordListener::WordListener(std::string address, base::Descriptor socket)
    : address_(std::move(address)), socket_(std::move(socket)) {}

Result<WordListener> WordListener::Open() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return ErrnoStatus(errno, "a random number");
  }
  char name[32];
  std::snprintf(name, sizeof(name), "fleetrun-%016llx",
                static_cast<unsigned long long>(number));
  base::Descriptor fd(
      socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_un address = {.sun_family = AF_UNIX};
  std::memcpy(address.sun_path + 1, name, std::strlen(name));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           std::strlen(name));
  if (!fd.valid() ||
      setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return ErrnoStatus(errno, "a socket for words of the processes");
  }
  return WordListener(name, std::move(fd));
}

std::vector<cluster::SaidWord> WordListener::Take() {
  std::vector<cluster::SaidWord> words;
  while (true) {
    char text[kMaxWordByteSize];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    iovec piece = {text, sizeof(text)};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket_.get(), &message, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return words;
    if (!IsOfThisUser(message)) continue;
    auto word = cluster::DecodeWord({text, static_cast<size_t>(got)});
    if (word.ok()) words.push_back(*std::move(word));
  }
}

}  // namespace fleet::launch
