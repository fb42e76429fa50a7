// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/local_peer.h"

#include <cerrno>
#include <sys/socket.h>

namespace fleet::channel {

Status LocalPeer::CheckUser(uid_t self) const {
  if (user == self || user == 0) return OkStatus();
  return FailedPrecondition(Name(), " belongs to user ", user,
                            ", and this process to user ", self);
}

Result<LocalPeer> PeerOf(int fd) {
  ucred peer{};
  socklen_t byte_size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &byte_size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return LocalPeer{peer.pid, peer.uid};
}

Status CheckPeerUser(int fd) {
  ASSIGN_OR_RETURN(const LocalPeer peer, PeerOf(fd));
  return peer.CheckUser();
}

}  // namespace fleet::channel
