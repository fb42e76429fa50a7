// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/bucket_plan.h"

namespace fleet::sync {
namespace {

constexpr size_t kCacheLine = 64;

size_t RoundUp(size_t count, comm::DataType type) {
  const size_t line = kCacheLine / comm::ByteSize(type);
  return (count + line - 1) / line * line;
}

}  // namespace

std::vector<BucketPlan> PlanBuckets(const std::vector<Gradient>& gradients,
                                    const plan::BucketSizes& sizes) {
  // Backward makes gradients from the end of the model to its front.
  const size_t last = gradients.size() - 1;
  std::vector<plan::GradientSize> made;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto [count, type] = gradients[last - i];
    made.push_back({.byte_size = RoundUp(count, type) * comm::ByteSize(type),
                    .type = static_cast<int>(type)});
  }
  std::vector<BucketPlan> buckets;
  for (const std::vector<size_t>& positions :
       plan::DivideIntoBuckets(made, sizes)) {
    BucketPlan& bucket = buckets.emplace_back();
    bucket.type = gradients[last - positions[0]].type;
    for (size_t position : positions) {
      bucket.parameters.push_back(last - position);
      bucket.offsets.push_back(bucket.count);
      bucket.count += RoundUp(gradients[last - position].count, bucket.type);
    }
  }
  return buckets;
}

}  // namespace fleet::sync
