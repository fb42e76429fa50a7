// SPDX-License-Identifier: Apache-2.0

// What a transport gives: a stream of bytes in both directions that never
// blocks, and waits beside it. FramedChannel makes messages of it.

#ifndef FLEET_CHANNEL_BYTE_STREAM_H_
#define FLEET_CHANNEL_BYTE_STREAM_H_

#include <cstddef>
#include <span>
#include <sys/uio.h>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"

namespace fleet::channel {

// Threads as for Channel: one writes, one reads, any may Shut.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Moves as many bytes as can be moved now, from or to the pieces in order,
  // and returns how many; 0 means wait first. Unavailable when the peer is gone
  // (when reading: and all it wrote was read). The pieces hold at least a byte.
  virtual Result<size_t> TryWrite(std::span<const iovec> pieces) = 0;
  virtual Result<size_t> TryRead(std::span<const iovec> pieces) = 0;

  // Returns when the next Try may do something, also that it fails; at the
  // latest at `deadline`. May return without reason.
  virtual void WaitWritable(base::Deadline deadline) = 0;
  virtual void WaitReadable(base::Deadline deadline) = 0;

  // Ends both directions: waits return at once from now on, and the peer meets
  // the end after what was written. More than once is fine.
  virtual void Shut() = 0;

  // How many bytes it pays to read beyond a message, because a call is dear;
  // 0 when it is not.
  virtual size_t read_ahead() const = 0;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_BYTE_STREAM_H_
