// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/sample_exchange.h"

namespace fleet::sync {

Status SampleExchange::AllToAll(std::span<const std::byte> from,
                                std::span<std::byte> to,
                                base::Deadline deadline) {
  return communicator_.AllToAll(
      comm::ConstSpan{.data = from.data(), .count = from.size()},
      comm::Span{.data = to.data(), .count = to.size()}, deadline);
}

}  // namespace fleet::sync
