// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/buckets.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fleet::plan {

std::vector<std::vector<size_t>> DivideIntoBuckets(
    std::span<const GradientSize> gradients, const BucketSizes& sizes) {
  // From the end, so that the last bucket is small, and what is left over, and
  // makes a bucket of any size, leaves first.
  struct Open {
    std::vector<size_t> bucket;  // in reverse
    size_t byte_size = 0;
    size_t limit = 0;
  };
  std::vector<std::vector<size_t>> buckets;
  std::map<int, Open> open;  // by type
  auto close = [&](Open& o) {
    if (o.bucket.empty()) return;
    std::reverse(o.bucket.begin(), o.bucket.end());
    buckets.push_back(std::exchange(o.bucket, {}));
    o.byte_size = 0;
    o.limit = sizes.bucket_bytes;
  };
  for (size_t i = gradients.size(); i-- > 0;) {
    const GradientSize& gradient = gradients[i];
    if (gradient.alone) {
      buckets.push_back({i});
      continue;
    }
    auto [entry, is_last] = open.try_emplace(gradient.type);
    Open& o = entry->second;
    if (is_last) {
      o.limit = std::min(sizes.last_bucket_bytes, sizes.bucket_bytes);
    }
    if (o.byte_size + gradient.byte_size > o.limit) close(o);
    o.bucket.push_back(i);
    o.byte_size += gradient.byte_size;
  }
  for (auto& [type, o] : open) close(o);
  std::sort(buckets.begin(), buckets.end(),
            [](const auto& a, const auto& b) { return a.back() < b.back(); });
  return buckets;
}

}  // namespace fleet::plan
