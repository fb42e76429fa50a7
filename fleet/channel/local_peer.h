// SPDX-License-Identifier: Apache-2.0

// Whose process is at the other end of a unix socket. Anybody on this host can
// reach or take an abstract name, so both ends of a connection ask.

#ifndef FLEET_CHANNEL_LOCAL_PEER_H_
#define FLEET_CHANNEL_LOCAL_PEER_H_

#include <string>
#include <sys/types.h>
#include <unistd.h>

#include "fleet/base/status.h"

namespace fleet::channel {

// A process, as the kernel saw it when it connected or began to listen.
struct LocalPeer {
  pid_t process = 0;
  uid_t user = 0;

  std::string Name() const { return "process " + std::to_string(process); }
  // FailedPrecondition unless it belongs to the user `self`, or to root, who
  // could look into this process anyway.
  Status CheckUser(uid_t self = geteuid()) const;
};

// The peer of a connected unix socket.
Result<LocalPeer> PeerOf(int fd);

// Both at once: whether the peer may be spoken to.
Status CheckPeerUser(int fd);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_LOCAL_PEER_H_
