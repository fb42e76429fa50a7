// SPDX-License-Identifier: Apache-2.0

// A stream of bytes through memory that two processes of one host share: a ring
// for each direction. The memory has no name: one process makes it and hands
// its descriptor over a connected unix socket. That socket stays open as the
// sign of life, since the kernel closes it when a process dies, however it
// dies.

#ifndef FLEET_CHANNEL_SHARED_MEMORY_H_
#define FLEET_CHANNEL_SHARED_MEMORY_H_

#include <cstddef>
#include <memory>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/channel/byte_stream.h"
#include "fleet/channel/socket.h"

namespace fleet::channel {

struct SharedMemoryOptions {
  // The ring of one direction, rounded up to a power of two, at least a page.
  // More lets a sender run further ahead; beyond the caches it is slower.
  size_t ring_byte_size = 1 << 20;
  // Processes of the job on this host. While they are no more than the cores,
  // waits spin for some microseconds before they sleep; with more, or with 0
  // for unknown, they sleep at once, because a spinning process would keep its
  // peer from running.
  int processes_on_host = 0;
};

// Makes the memory, all of it there from the start, hands it to the peer at the
// other end of the connected unix socket `life`, and returns this end.
// Unavailable when there is no memory, and the peer is told; or when the peer
// is gone.
Result<std::unique_ptr<ByteStream>> OfferSharedMemory(
    base::Descriptor life, const SharedMemoryOptions& options);

// The other side: takes what OfferSharedMemory hands over. FailedPrecondition
// when the peer had no memory, DeadlineExceeded when nothing came.
Result<std::unique_ptr<ByteStream>> TakeSharedMemory(base::Descriptor life,
                                                     base::Deadline deadline);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_SHARED_MEMORY_H_
