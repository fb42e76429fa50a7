// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_ROW_EXCHANGE_H_
#define FLEET_SYNC_ROW_EXCHANGE_H_

#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::sync {

// Replaces every gradient by the mean over all ranks: a sparse tensor with the
// rows of rank 0, then those of rank 1, and so on, which is the same on all
// ranks; it is not coalesced. A gradient may be undefined, dense or sparse;
// `like[i]` is its parameter. Costs two rounds for the list and two for each
// gradient that has a row on some rank.
Status ExchangeRows(comm::Communicator& communicator,
                    const std::vector<at::Tensor>& like,
                    std::vector<at::Tensor>& gradients,
                    base::Deadline deadline);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_ROW_EXCHANGE_H_
