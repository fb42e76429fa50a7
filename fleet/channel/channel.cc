// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/channel.h"

namespace fleet::channel {

Result<std::vector<std::byte>> Channel::RecvMessage(uint64_t max_byte_size,
                                                    Deadline deadline) {
  ASSIGN_OR_RETURN(const uint64_t byte_size, NextSize(deadline));
  if (byte_size > max_byte_size) {
    return InvalidArgument(peer_, ": recv: a message of ", byte_size,
                           " bytes, and at most ", max_byte_size,
                           " are wanted");
  }
  begun_.resize(byte_size);
  RETURN_IF_ERROR(Recv(begun_, deadline));
  return std::exchange(begun_, {});
}

void Channel::Close() {
  Abort(FailedPrecondition(peer_, ": the channel was closed on this side"));
}

}  // namespace fleet::channel
