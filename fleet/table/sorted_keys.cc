// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sorted_keys.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fleet::table {

Result<SortedKeys> SortedKeys::Make(size_t count) {
  SortedKeys sorted;
  const size_t byte_size = std::max<size_t>(1, count) * sizeof(KeyAndRow);
  ASSIGN_OR_RETURN(sorted.given_, PageMemory::Make(byte_size, true));
  return sorted;
}

Status SortedKeys::Bucket() {
  const size_t byte_size = std::max<size_t>(1, size_) * sizeof(KeyAndRow);
  ASSIGN_OR_RETURN(bucketed_, PageMemory::Make(byte_size, true));
  const std::span<const KeyAndRow> all(given(), size_);
  uint64_t different = 0;
  for (const KeyAndRow& each : all) different |= each.key ^ all[0].key;
  shift_ = std::max(0, static_cast<int>(std::bit_width(different)) - kBits);
  for (const KeyAndRow& each : all) ++ends_[BucketOf(each.key)];
  size_t sum = 0;
  for (size_t& end : ends_) sum += std::exchange(end, sum);
  KeyAndRow* const to = bucketed();
  for (const KeyAndRow& each : all) to[ends_[BucketOf(each.key)]++] = each;
  given_ = PageMemory();
  return OkStatus();
}

std::span<const KeyAndRow> SortedKeys::bucket(size_t i) {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  const std::span<KeyAndRow> pairs(bucketed() + begin, ends_[i] - begin);
  if (shift_ > 0) SortInCache(pairs);
  return pairs;
}

// By counting digits where they are few, which dense keys make likely.
void SortedKeys::SortInCache(std::span<KeyAndRow> pairs) {
  constexpr int kDigit = 8;
  const auto by_key = [](const KeyAndRow& a, const KeyAndRow& b) {
    return a.key < b.key;
  };
  if (shift_ > 2 * kDigit || pairs.size() < 64) {
    std::sort(pairs.begin(), pairs.end(), by_key);
    return;
  }
  spare_.resize(pairs.size());
  for (int shift = 0; shift < shift_; shift += kDigit) {
    std::array<size_t, size_t{1} << kDigit> begin{};
    auto digit = [&](Key key) { return key >> shift & (begin.size() - 1); };
    // The last digit may reach into the bucket's number, which is the same
    // for all.
    for (const KeyAndRow& each : pairs) ++begin[digit(each.key)];
    size_t sum = 0;
    for (size_t& at : begin) sum += std::exchange(at, sum);
    for (const KeyAndRow& each : pairs) {
      spare_[begin[digit(each.key)]++] = each;
    }
    std::copy(spare_.begin(), spare_.end(), pairs.begin());
  }
}

}  // namespace fleet::table
