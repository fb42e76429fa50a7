// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/bucket_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fleet::sync {
namespace {

constexpr size_t kCacheLine = 64;

size_t RoundUp(size_t count, comm::DataType type) {
  const size_t line = kCacheLine / comm::ByteSize(type);
  return (count + line - 1) / line * line;
}

}  // namespace

std::vector<BucketPlan> PlanBuckets(const std::vector<GradientSize>& gradients,
                                    size_t bucket_bytes, size_t last_bytes) {
  // From the front of the model, so that what is left over, and makes a bucket
  // of any size, is sent first.
  std::vector<BucketPlan> buckets;
  std::map<comm::DataType, size_t> open;  // by type, its bucket
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto [count, type] = gradients[i];
    const size_t byte_size = RoundUp(count, type) * comm::ByteSize(type);
    auto [entry, is_last] = open.try_emplace(type, buckets.size());
    if (is_last) buckets.push_back({.type = type});
    BucketPlan* bucket = &buckets[entry->second];
    const bool in_last =
        std::none_of(buckets.begin(), buckets.begin() + entry->second,
                     [&](const BucketPlan& b) { return b.type == type; });
    const size_t limit =
        in_last ? std::min(last_bytes, bucket_bytes) : bucket_bytes;
    if (bucket->count > 0 &&
        bucket->count * comm::ByteSize(type) + byte_size > limit) {
      entry->second = buckets.size();
      buckets.push_back({.type = type});
      bucket = &buckets.back();
    }
    bucket->parameters.push_back(i);
    bucket->count += RoundUp(count, type);
  }
  std::reverse(buckets.begin(), buckets.end());
  for (BucketPlan& bucket : buckets) {
    std::reverse(bucket.parameters.begin(), bucket.parameters.end());
    size_t offset = 0;
    for (size_t i : bucket.parameters) {
      bucket.offsets.push_back(offset);
      offset += RoundUp(gradients[i].count, bucket.type);
    }
  }
  return buckets;
}

}  // namespace fleet::sync
