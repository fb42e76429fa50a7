// SPDX-License-Identifier: Apache-2.0
#include "fleet/channel/handover.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

namespace fleet::channel {

Status SendDescriptor(int socket, std::span<const std::byte> bytes, int fd) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(errno, "hand over memory");
  }
  return OkStatus();
}

Result<base::Descriptor> ReceiveDescriptor(int socket,
                                           std::span<std::byte> bytes) {
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return ErrnoStatus(errno, "take memory");
  base::Descriptor taken;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr;
       at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(at), sizeof(fd));
    taken = base::Descriptor::OfThisProcess(fd);
  }
  if (count != static_cast<ssize_t>(bytes.size())) {
    return Unavailable("the peer left while it handed over memory");
  }
  return taken;
}

}  // namespace fleet::channel
