// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_STATE_H_
#define FLEET_SYNC_STATE_H_

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::sync {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  // For parameters: gradients are rows of a sparse tensor, as those of an
  // embedding with sparse=True, and are exchanged as rows. Where it is false, a
  // sparse gradient becomes a dense one.
  bool sparse = false;
};

// That all ranks have tensors of the same names, shapes and types in the same
// order. Otherwise FailedPrecondition on all of them, which shows the first
// difference. `what` is what they are: "parameter".
Status CheckSameOnAllRanks(comm::Communicator& communicator,
                           const std::string& what,
                           const std::vector<NamedTensor>& tensors,
                           base::Deadline deadline);

// Gives all ranks the values of `root`, in place. Small tensors of one type
// travel together. What CheckSameOnAllRanks checks must hold; tensors that are
// undefined or empty are left out.
Status BroadcastTensors(comm::Communicator& communicator,
                        const std::vector<NamedTensor>& tensors, int root,
                        base::Deadline deadline);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_STATE_H_
