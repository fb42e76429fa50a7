// SPDX-License-Identifier: Apache-2.0

// Memory straight from the kernel: zero, on page boundaries, given back at
// once when it is freed, so that a table's resident size is what it holds.

#ifndef FLEET_TABLE_PAGE_MEMORY_H_
#define FLEET_TABLE_PAGE_MEMORY_H_

#include <cstddef>
#include <span>
#include <utility>

#include "fleet/base/status.h"

namespace fleet::table {

class PageMemory final {
 public:
  // Nothing.
  PageMemory() = default;
  // `byte_size` bytes, which become resident as they are written. With `huge`,
  // the kernel is asked for pages of 2 MB, which makes random access faster and
  // residence coarser. Unavailable when there is no memory.
  static Result<PageMemory> Make(size_t byte_size, bool huge);

  PageMemory(PageMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        byte_size_(std::exchange(other.byte_size_, 0)) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(byte_size_, other.byte_size_);
    return *this;
  }
  ~PageMemory();

  // Makes the pages of `part`, of any PageMemory, resident: what the first
  // write to each would do, at once and on whatever thread calls it. Content
  // stays. A kernel that cannot does nothing.
  static void Populate(std::span<std::byte> part);

  std::byte* data() const { return data_; }
  size_t byte_size() const { return byte_size_; }

 private:
  PageMemory(std::byte* data, size_t byte_size)
      : data_(data), byte_size_(byte_size) {}

  std::byte* data_ = nullptr;
  size_t byte_size_ = 0;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_PAGE_MEMORY_H_
