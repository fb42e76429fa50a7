// SPDX-License-Identifier: Apache-2.0

// Memory that processes share: a file without a name, handed over as a
// descriptor. Its size is sealed, so that nobody can shorten it under the
// others' feet.

#ifndef FLEET_COMM_SHARED_MEMORY_SEGMENT_H_
#define FLEET_COMM_SHARED_MEMORY_SEGMENT_H_

#include <cstddef>
#include <utility>

#include "fleet/base/status.h"
#include "fleet/channel/socket.h"

namespace fleet::comm {

inline constexpr size_t kPageByteSize = 4096;

// Unavailable when the host, or the container, has not so much memory left.
Status CheckAvailable(size_t byte_size);

// New memory of `byte_size` zeros. No page of it exists yet: see Reserve.
Result<base::Descriptor> MakeSharedMemory(size_t byte_size);

// A view of such memory, read and write.
class Mapping final {
 public:
  // DataLoss when `memory` is not sealed memory of `byte_size`.
  static Result<Mapping> Of(const base::Descriptor& memory, size_t byte_size);
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        byte_size_(std::exchange(other.byte_size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(byte_size_, other.byte_size_);
    return *this;
  }
  ~Mapping();

  // Takes pages of `memory` for [begin, begin + byte_size) now: one that cannot
  // be had later would be a SIGBUS. Large pages where the system gives them.
  // Unavailable when there is not so much memory.
  Status Reserve(const base::Descriptor& memory, size_t begin,
                 size_t byte_size) const;

  // Pages that exist already need no fault when they are first touched.
  void Prefault() const;

  std::byte* data() const { return data_; }
  size_t byte_size() const { return byte_size_; }

 private:
  std::byte* data_ = nullptr;
  size_t byte_size_ = 0;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_SHARED_MEMORY_SEGMENT_H_
