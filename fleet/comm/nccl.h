// SPDX-License-Identifier: Apache-2.0

// Collectives between GPUs by NCCL, which is loaded on first use through the
// module libfleet_nccl.so. In a process with a CUDA build of torch, NCCL and
// CUDA are already there.

#ifndef FLEET_COMM_NCCL_H_
#define FLEET_COMM_NCCL_H_

#include <memory>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {

// A communicator for memory of GPU `device`, over the ranks of `companion`,
// which has one GPU each and is of no further use to the caller. All ranks call
// it. The companion, on the CPU, compares the calls of the ranks before
// anything is given to a GPU, so late ranks are named and different calls are
// an error; it also carries the calls whose memory is the host's, and the
// barriers. All ranks give memory of the same kind to one call.
//
// A call returns when it is in the order of its stream. What fails later, when
// a rank is gone, is known by the next call; Abort ends what the GPU waits for.
// float16 and bfloat16 are rounded as NCCL does; max and min may lose a NaN.
//
// Unimplemented without NCCL or CUDA: says how to get it. DeadlineExceeded when
// NCCL has not connected the ranks in time.
Result<std::unique_ptr<Communicator>> ConnectNccl(
    std::unique_ptr<Communicator> companion, int device,
    CommunicatorOptions options, Deadline deadline);

// Ok if ConnectNccl finds NCCL, CUDA and GPU `device` in this process;
// otherwise what it would answer.
Status CheckNccl(int device);

}  // namespace fleet::comm

#endif  // FLEET_COMM_NCCL_H_
