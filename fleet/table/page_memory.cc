// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/page_memory.h"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>

namespace fleet::table {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<PageMemory> PageMemory::Make(size_t byte_size, bool huge) {
  // More than asked for, so that it can begin on a boundary; the rest goes
  // back.
  const size_t slack = huge ? kHugePage : 0;
  void* at = mmap(nullptr, byte_size + slack, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return Unavailable(
        ErrnoStatus(errno, base::Concat(byte_size, " bytes of memory"))
            .message());
  }
  auto* data = static_cast<std::byte*>(at);
  if (huge) {
    const size_t skip =
        (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
    if (skip > 0) munmap(data, skip);
    data += skip;
    // The end must lie on a page of the usual size.
    const size_t end = (byte_size + 4095) / 4096 * 4096;
    if (slack - skip > 0) munmap(data + end, slack - skip);
    // Without huge pages all is the same but slower.
    (void)madvise(data, byte_size, MADV_HUGEPAGE);
  }
  return PageMemory(data, byte_size);
}

void PageMemory::Populate(std::span<std::byte> part) {
#if defined(MADV_POPULATE_WRITE)
  constexpr uintptr_t kPage = 4096;
  const uintptr_t before =
      reinterpret_cast<uintptr_t>(part.data()) & (kPage - 1);
  (void)madvise(part.data() - before, before + part.size(),
                MADV_POPULATE_WRITE);
#else
  (void)part;
#endif
}

PageMemory::~PageMemory() {
  if (data_ != nullptr) munmap(data_, byte_size_);
}

}  // namespace fleet::table
