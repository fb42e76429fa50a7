// SPDX-License-Identifier: Apache-2.0

// Collectives among the members of an exchange, each by its place. All members
// call the same with the same arguments.

#ifndef FLEET_COMM_TCP_COLLECTIVES_H_
#define FLEET_COMM_TCP_COLLECTIVES_H_

#include "fleet/base/status.h"
#include "fleet/comm/tcp_exchange.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

// How data is combined, and over how many ranks a mean is taken, which may be
// more than the members.
struct Reduction {
  ReduceOp op;
  int num_ranks;
};

// In place. Up to 32 KB by recursive doubling, beyond by a ring.
Status AllReduce(Exchange& x, Reduction reduction, Span data);
// Into the root's `data`. A binomial tree, in pieces.
Status Reduce(Exchange& x, Reduction reduction, Span data, int root);
// A binomial tree, in pieces.
Status Broadcast(Exchange& x, Span data, int root);
// Around a ring, in pieces.
Status AllGather(Exchange& x, ConstSpan mine, Span all);
Status ReduceScatter(Exchange& x, Reduction reduction, ConstSpan all,
                     Span mine);
// Directly.
Status Scatter(Exchange& x, ConstSpan all, Span mine, int root);
Status Gather(Exchange& x, ConstSpan mine, Span all, int root);
Status AllToAll(Exchange& x, ConstSpan from, Span to);
Status Barrier(Exchange& x);

}  // namespace fleet::comm

#endif  // FLEET_COMM_TCP_COLLECTIVES_H_
