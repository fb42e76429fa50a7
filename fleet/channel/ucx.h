// SPDX-License-Identifier: Apache-2.0

// A stream of bytes by UCX, which uses what the hosts have between them: RDMA,
// several rails, else TCP. The TCP connection on which two processes said hello
// stays open as the sign of life.

#ifndef FLEET_CHANNEL_UCX_H_
#define FLEET_CHANNEL_UCX_H_

#include <memory>

#include "fleet/base/status.h"
#include "fleet/channel/byte_stream.h"
#include "fleet/channel/socket.h"

namespace fleet::channel {

// Loads UCX, with its signal handlers and its hooks into memory allocation off.
// Unimplemented where it is absent, when Fleet was built or now; says how to
// get it. Thread-safe.
Status LoadUcx();

// This end of a stream to the process at the other end of the connected socket
// `life`, which calls the same function. Returns at once: that the two find
// each other is the first thing that writing and reading wait for.
Result<std::unique_ptr<ByteStream>> MakeUcxStream(base::Descriptor life);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_UCX_H_
