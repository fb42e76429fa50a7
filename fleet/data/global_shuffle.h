// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_DATA_GLOBAL_SHUFFLE_H_
#define FLEET_DATA_GLOBAL_SHUFFLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/data/exchange.h"
#include "fleet/data/sample_block.h"
#include "fleet/data/slot.h"

namespace fleet::data {

using Blocks = std::vector<std::shared_ptr<const SampleBlock>>;

// Deals the samples of all workers out to them. `blocks` are let go one by one
// as they are sent. Returns what came; InvalidArgument when another worker has
// other slots.
Result<Blocks> DealSamples(Blocks blocks, const std::vector<Slot>& slots,
                           Exchange& exchange, uint64_t seed,
                           base::Deadline deadline);

}  // namespace fleet::data

#endif  // FLEET_DATA_GLOBAL_SHUFFLE_H_
