// SPDX-License-Identifier: Apache-2.0

// Preloaded into a process (LD_PRELOAD), it does what the file CHAOS_CONTROL
// says: steps the clock of the process, makes its disk full, makes the disk
// fail. The file is shared memory with whoever writes it, and shim.h has its
// layout.

#include "tests/chaos/shim.h"

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

using fleet::chaos::Control;

constexpr int64_t kSecond = 1'000'000'000;

const Control& TheControl() {
  static const Control* const control = [] {
    static const Control nothing;
    const char* const path = std::getenv("CHAOS_CONTROL");
    if (path == nullptr) return &nothing;
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return &nothing;
    void* const mapped =
        ::mmap(nullptr, sizeof(Control), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return mapped == MAP_FAILED ? &nothing
                                : static_cast<const Control*>(mapped);
  }();
  return *control;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result =
      static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  const int64_t now =
      time->tv_sec * kSecond + time->tv_nsec + TheControl().clock_step.load();
  time->tv_sec = now / kSecond;
  time->tv_nsec = now % kSecond;
  return 0;
}

time_t time(time_t* result) noexcept {
  timespec now = {};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* result, void*) noexcept {
  timespec now = {};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  result->tv_sec = now.tv_sec;
  result->tv_usec = now.tv_nsec / 1000;
  return 0;
}

int posix_fallocate(int fd, off_t offset, off_t size) {
  if (TheControl().disk_is_full.load() != 0) return ENOSPC;
  using Function = int (*)(int, off_t, off_t);
  static const auto real =
      reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "posix_fallocate"));
  return real(fd, offset, size);
}

int posix_fallocate64(int fd, off_t offset, off_t size) {
  return posix_fallocate(fd, offset, size);
}

int fdatasync(int fd) {
  if (TheControl().disk_fails.load() != 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

}  // extern "C"
