// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/row_arena.h"

#include <algorithm>
#include <bit>

#include "fleet/base/check.h"

namespace fleet::table {
namespace {

// Large enough for huge pages, small enough that a table's last chunk, which
// is half empty on average, does not count.
constexpr size_t kChunkByteSize = size_t{4} << 20;

}  // namespace

RowArena::RowArena(size_t stride) : stride_(stride) {
  FLEET_CHECK_GT(stride, size_t{0});
  const size_t rows =
      std::bit_floor(std::max<size_t>(1, kChunkByteSize / (4 * stride)));
  chunk_shift_ = static_cast<uint32_t>(std::countr_zero(rows));
  chunk_mask_ = static_cast<uint32_t>(rows - 1);
}

Status RowArena::Reserve(size_t additional) {
  if (additional <= free_.size()) return OkStatus();
  const uint64_t needed = uint64_t{end_} + additional - free_.size();
  if (needed > kMaxRows) {
    return Unavailable("more than ", kMaxRows, " rows in one shard");
  }
  while ((chunks_.size() << chunk_shift_) < needed) {
    // A small table lives in its first chunk and takes no more than it fills.
    const bool huge = !chunks_.empty();
    ASSIGN_OR_RETURN(
        PageMemory memory,
        PageMemory::Make((size_t{chunk_mask_} + 1) * stride_ * sizeof(float),
                         huge));
    chunks_.push_back(reinterpret_cast<float*>(memory.data()));
    memory_.push_back(std::move(memory));
  }
  return OkStatus();
}

uint32_t RowArena::Add() {
  if (free_.empty()) return end_++;
  const uint32_t row = free_.back();
  free_.pop_back();
  return row;
}

std::vector<std::span<std::byte>> RowArena::Unused(size_t count) const {
  std::vector<std::span<std::byte>> parts;
  const uint64_t end = std::min<uint64_t>(uint64_t{end_} + count,
                                          chunks_.size() << chunk_shift_);
  for (uint64_t row = end_; row < end;) {
    const uint64_t chunk_end = ((row >> chunk_shift_) + 1) << chunk_shift_;
    const uint64_t n = std::min(end, chunk_end) - row;
    parts.emplace_back(
        reinterpret_cast<std::byte*>(at(static_cast<uint32_t>(row))),
        n * stride_ * sizeof(float));
    row += n;
  }
  return parts;
}

void RowArena::Clear() {
  memory_.clear();
  chunks_.clear();
  free_ = {};
  end_ = 0;
}

size_t RowArena::byte_size() const {
  return size_t{end_} * stride_ * sizeof(float) +
         free_.capacity() * sizeof(uint32_t);
}

}  // namespace fleet::table
