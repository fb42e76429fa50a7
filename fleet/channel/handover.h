// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_HANDOVER_H_
#define FLEET_CHANNEL_HANDOVER_H_

#include <cstddef>
#include <span>

#include "fleet/base/status.h"
#include "fleet/channel/socket.h"

namespace fleet::channel {

// A few bytes, and with them a descriptor, over a connected unix socket that
// is empty: the socket takes them at once and whole. `fd` of -1: only the
// bytes.
Status SendDescriptor(int socket, std::span<const std::byte> bytes, int fd);

// The other side, once WaitFor says that something has come; not valid when
// the bytes came alone, or when this process has no descriptor left.
// Unavailable when the peer is gone.
Result<base::Descriptor> ReceiveDescriptor(int socket,
                                           std::span<std::byte> bytes);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_HANDOVER_H_
