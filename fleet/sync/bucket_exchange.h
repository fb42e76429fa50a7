// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_BUCKET_EXCHANGE_H_
#define FLEET_SYNC_BUCKET_EXCHANGE_H_

#include <optional>

#include <ATen/core/Tensor.h>

#include "fleet/base/deadline.h"
#include "fleet/base/future.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::sync {

// Copies a gradient to its place in a bucket, which has its shape and may be
// where it lies already. A gradient in rows becomes dense.
void CopyInto(const at::Tensor& place, const at::Tensor& gradient);

// The all-reduce of one bucket. Used by one thread; `communicator` is the same
// in every call and outlives this.
class BucketExchange final {
 public:
  // Combines `values`, which lie in `memory`, over all ranks. With `beside` it
  // runs on a thread of the communicator until Wait(), and keeps the memory
  // alive even if nobody waits any more; otherwise it is done on return. What
  // was begun before must have been waited for.
  Status Start(comm::Communicator& communicator, const at::Tensor& values,
               const at::Tensor& memory, comm::ReduceOp op,
               base::Deadline deadline, bool beside);

  // Until what was started is done, which has its own deadline; at once if
  // nothing was. An interrupt breaks the communicator.
  Status Wait(comm::Communicator& communicator,
              const base::InterruptCheck& interrupt);

 private:
  std::optional<base::Future<>> pending_;
};

}  // namespace fleet::sync

#endif  // FLEET_SYNC_BUCKET_EXCHANGE_H_
