// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace fleet::base {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// MADV_POPULATE_WRITE: faults pages in, and fails where a touch would be a
// SIGBUS. Newer than the headers of some systems; an old kernel refuses it.
constexpr int kPopulateWrite = 23;

constexpr size_t kHugePageByteSize = size_t{2} << 20;

// The number in a file of the kernel; `other` when it holds none.
uint64_t NumberIn(const char* path, uint64_t other) {
  std::ifstream file(path);
  uint64_t number;
  return file >> number ? number : other;
}

// What the kernel can still give. It would rather end processes than refuse a
// page of such memory, so it is asked before. Without an answer, everything.
uint64_t AvailableByteSize() {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  uint64_t available = kAll;
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    uint64_t kilobytes;
    if (word == "MemAvailable:" && file >> kilobytes) {
      available = kilobytes * 1024;
    }
  }
  // The limit of a container.
  const uint64_t limit = NumberIn("/sys/fs/cgroup/memory.max", kAll);
  const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current", 0);
  return std::min(available,
                  limit == kAll ? kAll : limit - std::min(limit, used));
}

}  // namespace

Status CheckAvailable(size_t byte_size) {
  const uint64_t available = AvailableByteSize();
  if (byte_size <= available) return OkStatus();
  return Unavailable("shared memory of ", byte_size, " bytes: only ", available,
                     " are left");
}

namespace {

// `fill` gives it its size.
template <typename Fill>
Result<Descriptor> MakeSealed(const char* name, size_t byte_size, int seals,
                              const Fill& fill) {
  auto memory = Descriptor::OfThisProcess(
      [&] { return memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!memory.valid() || !fill(memory.get()) ||
      fcntl(memory.get(), F_ADD_SEALS, seals) != 0) {
    return Unavailable(
        ErrnoStatus(errno, Concat("shared memory of ", byte_size, " bytes"))
            .message());
  }
  return memory;
}

}  // namespace

Result<Descriptor> MakeSharedMemory(const char* name, size_t byte_size) {
  return MakeSealed(name, byte_size, kSeals, [&](int fd) {
    return ftruncate(fd, static_cast<off_t>(byte_size)) == 0;
  });
}

Result<Descriptor> MakeConstantMemory(const char* name,
                                      std::string_view bytes) {
  return MakeSealed(name, bytes.size(), kSeals | F_SEAL_WRITE, [&](int fd) {
    return write(fd, bytes.data(), bytes.size()) ==
           static_cast<ssize_t>(bytes.size());
  });
}

namespace {

bool IsSealed(const Descriptor& memory) {
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals;
}

}  // namespace

Result<Mapping> Mapping::Of(const Descriptor& memory, size_t byte_size) {
  if (!IsSealed(memory) ||
      lseek(memory.get(), 0, SEEK_END) != static_cast<off_t>(byte_size)) {
    return DataLoss("what was handed over is no sealed memory of ", byte_size,
                    " bytes");
  }
  return Map(memory, 0, byte_size);
}

Result<Mapping> Mapping::OfPart(const Descriptor& memory, size_t begin,
                                size_t byte_size) {
  if (!IsSealed(memory) || lseek(memory.get(), 0, SEEK_END) <
                               static_cast<off_t>(begin + byte_size)) {
    return DataLoss("what was handed over is no sealed memory of ",
                    begin + byte_size, " bytes");
  }
  return Map(memory, begin, byte_size);
}

Result<Mapping> Mapping::Map(const Descriptor& memory, size_t begin,
                             size_t byte_size) {
  void* at = mmap(nullptr, byte_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                  memory.get(), static_cast<off_t>(begin));
  if (at == MAP_FAILED) {
    return Unavailable(
        ErrnoStatus(errno, Concat("map shared memory of ", byte_size, " bytes"))
            .message());
  }
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(at);
  mapping.byte_size_ = byte_size;
  mapping.begin_ = begin;
  return mapping;
}

Status Mapping::Reserve(const Descriptor& memory, size_t begin,
                        size_t byte_size) const {
  RETURN_IF_ERROR(CheckAvailable(byte_size));
  if (byte_size >= kHugePageByteSize) {
    // Advice only: where large pages are not given, small ones follow.
    (void)madvise(data_ + begin, byte_size, MADV_HUGEPAGE);
    (void)madvise(data_ + begin, byte_size, kPopulateWrite);
  }
  int failed;
  do {
    failed = fallocate(memory.get(), 0, static_cast<off_t>(begin_ + begin),
                       static_cast<off_t>(byte_size));
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return OkStatus();
  return Unavailable(
      ErrnoStatus(errno, Concat("shared memory of ", byte_size, " bytes"))
          .message());
}

void Mapping::Prefault() const {
  (void)madvise(data_, byte_size_, kPopulateWrite);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, byte_size_);
}

}  // namespace fleet::base
