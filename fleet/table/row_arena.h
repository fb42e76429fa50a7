// SPDX-License-Identifier: Apache-2.0

// Rows of one size in flat memory. A row has a number and never moves, so
// growing copies nothing.

#ifndef FLEET_TABLE_ROW_ARENA_H_
#define FLEET_TABLE_ROW_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/page_memory.h"

namespace fleet::table {

// One thread at a time.
class RowArena final {
 public:
  // Numbers of rows are below this.
  static constexpr uint32_t kMaxRows = 0x7fffffff;

  // Rows of `stride` floats, at least one.
  explicit RowArena(size_t stride);

  // Makes room: so many rows can then be added. Unavailable when there is no
  // memory or there would be more than kMaxRows.
  Status Reserve(size_t additional);

  // Adds a row whose values the caller sets; Reserve has made room for it.
  uint32_t Add();
  // Gives a row back; Add may hand it out again.
  void Free(uint32_t row) { free_.push_back(row); }

  float* at(uint32_t row) const {
    return chunks_[row >> chunk_shift_] + (row & chunk_mask_) * stride_;
  }
  void Prefetch(uint32_t row, size_t num_floats) const {
    const float* begin = at(row);
    for (size_t i = 0; i < num_floats; i += 16) {
      __builtin_prefetch(begin + i, 1);
    }
  }

  // The reserved memory of the next `count` rows that were never added.
  std::vector<std::span<std::byte>> Unused(size_t count) const;

  // Takes all out and gives the memory back.
  void Clear();

  size_t stride() const { return stride_; }
  // Rows that were added and not freed.
  size_t size() const { return end_ - free_.size(); }
  // Numbers ever handed out are below this.
  uint32_t end() const { return end_; }
  // Resident at most.
  size_t byte_size() const;

 private:
  const size_t stride_;
  uint32_t chunk_shift_;
  uint32_t chunk_mask_;
  std::vector<PageMemory> memory_;
  std::vector<float*> chunks_;
  uint32_t end_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_ROW_ARENA_H_
