// SPDX-License-Identifier: Apache-2.0

// Data parallel training of a program: every rank has the whole program and a
// part of the batch, and updates by the mean of all ranks' gradients.
//
// Gradients are exchanged in buckets. A bucket begins, c_allreduce_start, right
// behind the operation that completes its last gradient, and the rest of
// backward runs meanwhile; c_allreduce_wait ends it before the first operation
// that uses one of them. Where nothing can run beside an exchange, the first
// operation, with the attribute `blocking`, is all of it.

#ifndef FLEET_PLAN_INSERT_ALLREDUCE_H_
#define FLEET_PLAN_INSERT_ALLREDUCE_H_

#include <cstddef>

#include "fleet/program/program.h"

namespace fleet::plan {

struct AllReduceOptions {
  // When a bucket is full (buckets.h). A gradient of 4 MB has its own.
  size_t bucket_bytes = size_t{32} << 20;
  size_t last_bucket_bytes = size_t{1} << 20;
  // The mean over the ranks; otherwise the sum.
  bool average = true;
  // Exchanges run beside backward (sync/overlap.h), and all waits stand
  // together in front of the updates. Otherwise an exchange is waited for where
  // it starts. Ranks may differ in this.
  bool overlap = true;
};

// For all gradients of the main block that FindGradients names. Returns the
// number of buckets. What is there already stays; once more, it changes
// nothing.
size_t InsertAllReduce(program::Program& program,
                       const AllReduceOptions& options);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_INSERT_ALLREDUCE_H_
