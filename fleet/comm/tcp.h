// SPDX-License-Identifier: Apache-2.0

// Collectives between processes on different hosts, over a TCP channel between
// every two ranks.
//
//   up to 32 KB     all-reduce by recursive doubling: log2(size) rounds
//   beyond          a ring, in pieces that are combined and sent on while the
//                   next arrive; every rank sends its data less than twice
//   broadcast       a binomial tree, in pieces; reduce the same the other way
//   gather, scatter, all-to-all   directly
//
// All ranks get the same bits of a reduction. float16 and bfloat16 are rounded
// after each addition. A rank that fails tells all others why before it closes
// its channels.

#ifndef FLEET_COMM_TCP_H_
#define FLEET_COMM_TCP_H_

#include <memory>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/meeting.h"

namespace fleet::comm {

// Called by all ranks of the meeting; returns when all have come.
// DeadlineExceeded names those that did not. `meeting.store` outlives the
// communicator, which asks it who is late.
Result<std::unique_ptr<Communicator>> ConnectTcp(const Meeting& meeting,
                                                 CommunicatorOptions options,
                                                 Deadline deadline);

}  // namespace fleet::comm

#endif  // FLEET_COMM_TCP_H_
