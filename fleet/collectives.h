// SPDX-License-Identifier: Apache-2.0

// Collectives of a job on tensors, over all its ranks and with its patience.
//
//   torch::Tensor loss = ...;
//   RETURN_IF_ERROR(fleet::AllReduce(*job, loss.detach(), ReduceOp::kMean));
//
// What they do is said in sync/tensor_collectives.h. For groups of ranks, take
// a communicator from job.world().NewGroup() and call those.

#ifndef FLEET_COLLECTIVES_H_
#define FLEET_COLLECTIVES_H_

#include <vector>

#include "fleet/fleet.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet {

using comm::ReduceOp;

inline Status AllReduce(Fleet& job, const at::Tensor& data,
                        ReduceOp op = ReduceOp::kSum) {
  return sync::AllReduce(job.communicator(), data, op, job.deadline());
}

inline Status Reduce(Fleet& job, const at::Tensor& data, int root,
                     ReduceOp op = ReduceOp::kSum) {
  return sync::Reduce(job.communicator(), data, op, root, job.deadline());
}

inline Status Broadcast(Fleet& job, const at::Tensor& data, int root) {
  return sync::Broadcast(job.communicator(), data, root, job.deadline());
}

inline Result<std::vector<at::Tensor>> AllGather(Fleet& job,
                                                 const at::Tensor& mine) {
  return sync::AllGather(job.communicator(), mine, job.deadline());
}

inline Result<std::vector<at::Tensor>> Gather(Fleet& job,
                                              const at::Tensor& mine,
                                              int root) {
  return sync::Gather(job.communicator(), mine, root, job.deadline());
}

inline Status Scatter(Fleet& job, const std::vector<at::Tensor>& parts,
                      const at::Tensor& mine, int root) {
  return sync::Scatter(job.communicator(), parts, mine, root, job.deadline());
}

inline Status ReduceScatter(Fleet& job, const std::vector<at::Tensor>& parts,
                            const at::Tensor& mine,
                            ReduceOp op = ReduceOp::kSum) {
  return sync::ReduceScatter(job.communicator(), parts, mine, op,
                             job.deadline());
}

inline Result<std::vector<at::Tensor>> AllToAll(
    Fleet& job, const std::vector<at::Tensor>& parts) {
  return sync::AllToAll(job.communicator(), parts, job.deadline());
}

inline Status Send(Fleet& job, const at::Tensor& data, int to) {
  return sync::Send(job.communicator(), data, to, job.deadline());
}

inline Status Recv(Fleet& job, const at::Tensor& data, int from) {
  return sync::Recv(job.communicator(), data, from, job.deadline());
}

inline Status Barrier(Fleet& job) {
  return job.communicator().Barrier(job.deadline());
}

}  // namespace fleet

#endif  // FLEET_COLLECTIVES_H_
