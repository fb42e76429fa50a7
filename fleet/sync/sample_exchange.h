// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_SAMPLE_EXCHANGE_H_
#define FLEET_SYNC_SAMPLE_EXCHANGE_H_

#include <cstddef>
#include <span>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/data/exchange.h"

namespace fleet::sync {

// Samples of a global shuffle over the workers' communicator, which outlives
// it.
class SampleExchange final : public data::Exchange {
 public:
  explicit SampleExchange(comm::Communicator& communicator)
      : communicator_(communicator) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  Status AllToAll(std::span<const std::byte> from, std::span<std::byte> to,
                  base::Deadline deadline) override;

 private:
  comm::Communicator& communicator_;
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_SAMPLE_EXCHANGE_H_
