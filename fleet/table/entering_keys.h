// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_TABLE_ENTERING_KEYS_H_
#define FLEET_TABLE_ENTERING_KEYS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "fleet/base/status.h"
#include "fleet/table/key.h"
#include "fleet/table/page_memory.h"

namespace fleet::table {

// Keys of many rows on their way into an index. They are gathered by the part
// of the index that their hash leads to, and enter it many at a time, while
// that part is in the cache: one after the other, each would wait for memory.
// One thread at a time.
class EnteringKeys final {
 public:
  struct Entry {
    Key key;
    uint32_t row;
  };

  // For about `count` keys; takes 8 bytes for each of them, 8 MB at most.
  // Unavailable when there is no memory for it.
  static Result<EnteringKeys> Make(size_t count) {
    EnteringKeys made;
    made.part_size_ =
        std::clamp<size_t>(count / (2 * kParts), kMinPartSize, kMaxPartSize);
    ASSIGN_OR_RETURN(
        made.memory_,
        PageMemory::Make(kParts * made.part_size_ * sizeof(Entry), true));
    return made;
  }

  // Calls enter(entries), which returns a Status, with those of a part when it
  // is full. Those of one key come in the order in which they were added.
  template <typename Enter>
  Status Add(Key key, uint32_t row, Enter enter) {
    const size_t part = HashKey(key) >> kShift;
    entries(part)[sizes_[part]++] = {key, row};
    if (sizes_[part] < part_size_) [[likely]] {
      return OkStatus();
    }
    return TakePart(part, enter);
  }
  // Enters all that are left.
  template <typename Enter>
  Status TakeAll(Enter enter) {
    for (size_t part = 0; part < kParts; ++part) {
      RETURN_IF_ERROR(TakePart(part, enter));
    }
    return OkStatus();
  }

 private:
  // A 256th of the index of a million keys stays in the second-level cache,
  // and 2048 keys reach most of its lines. So each line comes from memory
  // twice, not three or four times, and beside others of its page.
  static constexpr int kShift = 64 - 8;
  static constexpr size_t kParts = size_t{1} << (64 - kShift);
  static constexpr size_t kMinPartSize = 64;
  static constexpr size_t kMaxPartSize = 2048;

  EnteringKeys() = default;
  Entry* entries(size_t part) const {
    return reinterpret_cast<Entry*>(memory_.data()) + part * part_size_;
  }
  template <typename Enter>
  Status TakePart(size_t part, Enter enter) {
    return enter(
        std::span<const Entry>(entries(part), std::exchange(sizes_[part], 0)));
  }

  PageMemory memory_;
  size_t part_size_ = 0;
  std::array<uint32_t, kParts> sizes_{};
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_ENTERING_KEYS_H_
