// SPDX-License-Identifier: Apache-2.0

// Collectives between processes of one host, through memory that they share.
//
// What a call costs, with two ranks: up to 40 bytes one cache line each way; up
// to some kilobytes one copy in, after which every rank combines all inputs
// itself; beyond that pieces that fit into the caches. Data in memory from
// Allocate is not copied at all: each rank combines its slice of all ranks'
// buffers and writes the result into all of them.
//
// A wait spins while the processes of the host are no more than its cores, and
// sleeps otherwise. All memory is had at the start or in Allocate, so that a
// lack of it is an error there and nothing later. Nothing has a name in the
// file system. A rank that breaks, leaves or dies wakes the others, which name
// it.

#ifndef FLEET_COMM_SHARED_MEMORY_H_
#define FLEET_COMM_SHARED_MEMORY_H_

#include <memory>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/meeting.h"

namespace fleet::comm {

// Called by all ranks of the meeting, which are on one host; returns when all
// have come. DeadlineExceeded names those that did not, Unavailable says that
// there is no memory. `meeting` is not needed afterwards.
Result<std::unique_ptr<Communicator>> ConnectSharedMemory(
    const Meeting& meeting, CommunicatorOptions options, Deadline deadline);

}  // namespace fleet::comm

#endif  // FLEET_COMM_SHARED_MEMORY_H_
