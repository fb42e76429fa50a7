// SPDX-License-Identifier: Apache-2.0

// What lies where in a row: its values, the optimizer's state beside them, and
// what the table's options ask to remember.

#ifndef FLEET_TABLE_ROW_LAYOUT_H_
#define FLEET_TABLE_ROW_LAYOUT_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fleet/table/options.h"

namespace fleet::table {

// Offsets count floats; kAbsent is a part that these rows lack. Parts that are
// no floats are 32-bit integers in the same place.
struct RowLayout {
  static constexpr size_t kAbsent = static_cast<size_t>(-1);

  explicit RowLayout(const SparseTableOptions& options);

  // values at 0, state i at (i + 1) * dim
  size_t dim;
  size_t num_state;
  size_t num_powers;             // that each row keeps
  size_t powers = kAbsent;       // float each
  size_t done_steps = kAbsent;   // integer: steps that are in the row
  size_t unseen_days = kAbsent;  // integer
  size_t last_seen = kAbsent;    // integer: ShardSetting::now when touched
  size_t extended = kAbsent;     // integer: 1 once the columns are all there
  size_t show = kAbsent;         // float
  size_t click = kAbsent;        // float
  size_t delta_score = kAbsent;  // float: score since the last delta save
  size_t stride;                 // floats of a row

  // What the row holds, as files name it: two rows with the same text can be
  // copied.
  std::string text;
};

inline uint32_t LoadInteger(const float* row, size_t offset) {
  return std::bit_cast<uint32_t>(row[offset]);
}
inline void StoreInteger(float* row, size_t offset, uint32_t value) {
  row[offset] = std::bit_cast<float>(value);
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_ROW_LAYOUT_H_
