// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/bucket_exchange.h"

#include <cstring>

#include <ATen/core/grad_mode.h>

#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {

using at::Tensor;
using base::Deadline;
using comm::Communicator;

void CopyInto(const Tensor& place, const Tensor& gradient) {
  const bool strided = gradient.layout() == at::kStrided;
  if (strided && gradient.const_data_ptr() == place.const_data_ptr()) return;
  // Without a dispatch where both are plain memory, as most are.
  if (strided && gradient.scalar_type() == place.scalar_type() &&
      gradient.device().is_cpu() && place.device().is_cpu() &&
      gradient.is_contiguous() && place.is_contiguous()) {
    std::memcpy(place.data_ptr(), gradient.const_data_ptr(), place.nbytes());
    return;
  }
  const at::NoGradGuard no_grad;
  const Tensor plain = gradient.detach();
  place.copy_(strided ? plain : plain.to_dense());
}

Status BucketExchange::Start(Communicator& communicator, const Tensor& values,
                             const Tensor& memory, comm::ReduceOp op,
                             Deadline deadline, bool beside) {
  ASSIGN_OR_RETURN(comm::Span span, SpanOf(values));
  if (!beside) return communicator.AllReduce(span, op, deadline);
  pending_ = communicator.Start([span, op, memory, deadline](Communicator& c) {
    return c.AllReduce(span, op, deadline);
  });
  return OkStatus();
}

Status BucketExchange::Wait(Communicator& communicator,
                            const base::InterruptCheck& interrupt) {
  if (!pending_.has_value()) return OkStatus();
  Status status = pending_->WaitReady(Deadline::Infinite(), interrupt);
  if (status.ok()) {
    status = pending_->Wait(Deadline::Infinite());
  } else {
    communicator.Abort(status);
  }
  pending_.reset();
  return status;
}

}  // namespace fleet::sync
