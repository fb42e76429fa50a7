// SPDX-License-Identifier: Apache-2.0

// The collectives of comm::Communicator on tensors, as fleet users and the
// Python package call them.
//
// A contiguous tensor on the CPU, or on a GPU if the communicator works there
// (on_device), is used in place. Any other goes through a copy, and back.
// Arguments that make no sense, such as an element type that no communicator
// knows, are InvalidArgument before anything is sent; other failures are those
// of the communicator. History is not recorded.

#ifndef FLEET_SYNC_TENSOR_COLLECTIVES_H_
#define FLEET_SYNC_TENSOR_COLLECTIVES_H_

#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::sync {

// InvalidArgument names a type that has no counterpart (complex, quantized).
Result<comm::DataType> ToDataType(at::ScalarType type);
at::ScalarType ToScalarType(comm::DataType type);

// The memory of `tensor`, which is contiguous; on a GPU with the current stream
// of its device.
Result<comm::Span> SpanOf(const at::Tensor& tensor);

// A tensor of `byte_count` zero bytes. On the CPU it lies in memory from
// communicator.Allocate and keeps that alive; all ranks call it then.
Result<at::Tensor> AllocateTensor(comm::Communicator& communicator,
                                  size_t byte_count, at::Device device,
                                  base::Deadline deadline);

// In place. On ranks other than `root`, Reduce leaves `data` as it was.
Status AllReduce(comm::Communicator& communicator, const at::Tensor& data,
                 comm::ReduceOp op, base::Deadline deadline);
Status Reduce(comm::Communicator& communicator, const at::Tensor& data,
              comm::ReduceOp op, int root, base::Deadline deadline);
Status Broadcast(comm::Communicator& communicator, const at::Tensor& data,
                 int root, base::Deadline deadline);

// One tensor like `mine` for each rank, in their order. They share one memory.
Result<std::vector<at::Tensor>> AllGather(comm::Communicator& communicator,
                                          const at::Tensor& mine,
                                          base::Deadline deadline);
// One tensor for each rank on the root; an empty list on the others.
Result<std::vector<at::Tensor>> Gather(comm::Communicator& communicator,
                                       const at::Tensor& mine, int root,
                                       base::Deadline deadline);

// Part i of the root's `parts`, each of which is like `mine`, goes into the
// `mine` of rank i. Other ranks pass an empty list.
Status Scatter(comm::Communicator& communicator,
               const std::vector<at::Tensor>& parts, const at::Tensor& mine,
               int root, base::Deadline deadline);
// The combination of all ranks' parts[rank] goes into `mine`.
Status ReduceScatter(comm::Communicator& communicator,
                     const std::vector<at::Tensor>& parts,
                     const at::Tensor& mine, comm::ReduceOp op,
                     base::Deadline deadline);
// Part i goes to rank i; part i of the result came from rank i. All parts are
// alike.
Result<std::vector<at::Tensor>> AllToAll(comm::Communicator& communicator,
                                         const std::vector<at::Tensor>& parts,
                                         base::Deadline deadline);

Status Send(comm::Communicator& communicator, const at::Tensor& data, int to,
            base::Deadline deadline);
Status Recv(comm::Communicator& communicator, const at::Tensor& data, int from,
            base::Deadline deadline);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_TENSOR_COLLECTIVES_H_
