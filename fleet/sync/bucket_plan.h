// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SYNC_BUCKET_PLAN_H_
#define FLEET_SYNC_BUCKET_PLAN_H_

#include <cstddef>
#include <vector>

#include "fleet/comm/types.h"
#include "fleet/plan/buckets.h"

namespace fleet::sync {

// One gradient, of the parameter at this position.
struct Gradient {
  size_t count = 0;  // of elements
  comm::DataType type = comm::DataType::kFloat32;
};

struct BucketPlan {
  comm::DataType type = comm::DataType::kFloat32;
  std::vector<size_t> parameters;  // in the order of their offsets
  std::vector<size_t> offsets;     // of elements
  size_t count = 0;                // of elements, with the gaps
};

// Lays gradients into buckets of one type each (plan/buckets.h). The parameter
// used last in the model, whose gradient comes first, is in the first bucket;
// parameters and buckets run backward from there. Every gradient begins at a
// cache line.
std::vector<BucketPlan> PlanBuckets(const std::vector<Gradient>& gradients,
                                    const plan::BucketSizes& sizes);

}  // namespace fleet::sync

#endif  // FLEET_SYNC_BUCKET_PLAN_H_
