// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_BUCKETS_H_
#define FLEET_PLAN_BUCKETS_H_

#include <cstddef>
#include <span>
#include <vector>

namespace fleet::plan {

// When a bucket of gradients is full. Larger buckets cost fewer rounds between
// the ranks, smaller ones leave earlier.
struct BucketSizes {
  size_t bucket_bytes;
  // How large the bucket of a type is that leaves last, when no computation is
  // left to hide its exchange. Never more than bucket_bytes.
  size_t last_bucket_bytes;
};

struct GradientSize {
  size_t byte_size = 0;
  int type = 0;        // gradients of different types share no bucket
  bool alone = false;  // has a bucket of its own
};

// Divides gradients, given in the order in which backward makes them, among
// buckets. A bucket holds positions in `gradients`, in order; buckets come in
// the order of the last gradient in each, in which they can leave. A gradient
// that is larger than a bucket has its own. The first bucket of a type, not the
// last, is the one that may stay far from full.
std::vector<std::vector<size_t>> DivideIntoBuckets(
    std::span<const GradientSize> gradients, const BucketSizes& sizes);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_BUCKETS_H_
