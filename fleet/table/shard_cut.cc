// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/shard_cut.h"

#include <algorithm>
#include <cstring>

#include "fleet/table/row_copy.h"

namespace fleet::table {

Result<std::unique_ptr<ShardCut>> ShardCut::Make(const CutOptions& options,
                                                 const RowArena& arena,
                                                 size_t num_rows,
                                                 ColdCut cold) {
  auto cut = std::make_unique<ShardCut>(options, arena);
  cut->cold_ = std::move(cold);
  const size_t byte_size = std::max<size_t>(1, arena.end()) * sizeof(uint32_t);
  // No huge pages: of a cut that is soon written few places are touched.
  ASSIGN_OR_RETURN(cut->slots_, PageMemory::Make(byte_size, false));
  ASSIGN_OR_RETURN(cut->list_, SortedKeys::Make(num_rows));
  return cut;
}

Status ShardCut::PutAside(uint32_t row, const float* content) {
  RETURN_IF_ERROR(aside_.Reserve(1));
  const uint32_t at = aside_.Add();
  std::memcpy(aside_.at(at), content, aside_.stride() * sizeof(float));
  slot(row) = at + 1;
  ++num_put_aside_;
  CountKept();
  return OkStatus();
}

bool ShardCut::Keep(Key key, uint32_t row) {
  if (!Has(row) || IsWritten(key)) return false;
  if (!listed_ && HashKey(key) >= next_hash_) List(key, row);
  slot(row) |= kKept;
  ++num_kept_;
  CountKept();
  return true;
}

void ShardCut::ListCandidate(Key key, uint64_t count) {
  if (!options_.candidates || changed_candidates_.Contains(key)) return;
  candidates_.emplace_back(key, count);
}

Status ShardCut::CandidateChanges(Key key, std::optional<uint64_t> count) {
  if (!options_.candidates || listed_ || HashKey(key) < next_hash_ ||
      changed_candidates_.Contains(key)) {
    return OkStatus();
  }
  RETURN_IF_ERROR(changed_candidates_.Reserve(1));
  changed_candidates_.Add(key, changed_candidates_.Home(key));
  if (count.has_value()) candidates_.emplace_back(key, *count);
  return OkStatus();
}

void ShardCut::Take(std::span<const KeyAndRow> pairs, RowArena& arena,
                    Key* keys, float* rows) {
  constexpr size_t kAhead = 16;
  const size_t stride = arena.stride();
  WithRowSize(stride, [&](auto copy) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i + kAhead < pairs.size()) {
        const uint32_t next = pairs[i + kAhead].row;
        __builtin_prefetch(&slot(next));
        arena.Prefetch(next, stride);
      }
      const auto& [key, row] = pairs[i];
      keys[i] = key;
      const uint32_t known = slot(row);
      copy(rows + i * stride, Content(row, arena));
      if (known == kHere) [[likely]] {
        continue;
      }
      if ((known & ~kKept) != kHere) aside_.Free((known & ~kKept) - 1);
      if ((known & kKept) != 0) {
        arena.Free(row);
        --num_kept_;
      }
      slot(row) = kOut;
    }
  });
  if (pairs.empty()) return;
  any_taken_ = true;
  last_taken_ = pairs.back().key;
}

void ShardCut::End(RowArena& arena) {
  for (uint32_t row = 0; row < end_ && num_kept_ > 0; ++row) {
    const uint32_t known = slot(row);
    if (known == kOut || (known & kKept) == 0) continue;
    arena.Free(row);
    --num_kept_;
  }
}

size_t ShardCut::byte_size() const {
  return aside_.byte_size() + list_.byte_size() + slots_.byte_size() +
         changed_candidates_.byte_size() +
         candidates_.capacity() * sizeof(candidates_[0]);
}

}  // namespace fleet::table
