// SPDX-License-Identifier: Apache-2.0

// Memory that processes share: a file without a name, handed over as a
// descriptor. Its size is sealed, so that nobody can shorten it under the
// others' feet.

#ifndef FLEET_BASE_SHARED_MEMORY_H_
#define FLEET_BASE_SHARED_MEMORY_H_

#include <cstddef>
#include <string_view>
#include <utility>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"

namespace fleet::base {

inline constexpr size_t kPageByteSize = 4096;

// Unavailable when the host, or the container, has not so much memory left.
Status CheckAvailable(size_t byte_size);

// New memory of `byte_size` zeros, under a `name` that /proc shows. No page of
// it exists yet: see Reserve.
Result<Descriptor> MakeSharedMemory(const char* name, size_t byte_size);

// New memory that holds `bytes`, which nobody can change any more.
Result<Descriptor> MakeConstantMemory(const char* name, std::string_view bytes);

// A view of memory of MakeSharedMemory, read and write.
class Mapping final {
 public:
  // DataLoss when `memory` is not sealed memory of `byte_size`.
  static Result<Mapping> Of(const Descriptor& memory, size_t byte_size);
  // Maps the part [begin, begin + byte_size), which begins at a page. DataLoss
  // when `memory` is not sealed, or does not reach so far.
  static Result<Mapping> OfPart(const Descriptor& memory, size_t begin,
                                size_t byte_size);
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        byte_size_(std::exchange(other.byte_size_, 0)),
        begin_(other.begin_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(byte_size_, other.byte_size_);
    std::swap(begin_, other.begin_);
    return *this;
  }
  ~Mapping();

  // Takes pages of `memory`, which this is of, for [begin, begin + byte_size)
  // of the mapping now: one that cannot be had later would be a SIGBUS. Large
  // pages where the system gives them. Unavailable when there is not so much
  // memory.
  Status Reserve(const Descriptor& memory, size_t begin,
                 size_t byte_size) const;

  // Pages that exist already need no fault when they are first touched.
  void Prefault() const;

  std::byte* data() const { return data_; }
  size_t byte_size() const { return byte_size_; }

 private:
  static Result<Mapping> Map(const Descriptor& memory, size_t begin,
                             size_t byte_size);

  std::byte* data_ = nullptr;
  size_t byte_size_ = 0;
  size_t begin_ = 0;  // in the memory
};

}  // namespace fleet::base

#endif  // FLEET_BASE_SHARED_MEMORY_H_
