// SPDX-License-Identifier: Apache-2.0

// Preloaded into a process (LD_PRELOAD), it makes the disk slow: whatever waits
// for it waits 200 ms longer.

#include <sys/syscall.h>
#include <unistd.h>

extern "C" int fdatasync(int fd) {
  ::usleep(200'000);
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
