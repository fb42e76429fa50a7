// SPDX-License-Identifier: Apache-2.0

// A library in front of libc (linked first, or LD_PRELOAD) that ends the
// process at a chosen one of its calls that change files: open with O_CREAT or
// O_TRUNC, write, pwrite, pwritev, ftruncate, fallocate, rename, link, unlink,
// mkdir, rmdir, fsync, fdatasync, close of a file that was written.
//
// It remembers what was not brought to the disk, and can take it back before it
// ends the process, as if the host had lost its power.

#ifndef FLEET_TESTS_CRASH_POINTS_CALLS_H_
#define FLEET_TESTS_CRASH_POINTS_CALLS_H_

#include <cstdint>

extern "C" {

// What becomes of what was not synced, when the process ends: bytes of files,
// and names in folders.
enum CrashDisk {
  kDiskKeeps = 0,  // it is there: only the process died
  // It is gone, all of it. Names are lost from the end: file systems bring them
  // to the disk in their order.
  kDiskLoses = 1,
  // Any of it may be there: each write, a part of each write, names up to some
  // place in their order.
  kDiskMixes = 2,
};

// In memory that outlives the process.
struct CrashReport {
  uint64_t num_calls;  // so far
  char call[240];      // the last one, for people
};

// From here on calls for files below `folder` (an absolute path without links)
// are counted. Call number `at`, from 1, is not made: the process gets SIGKILL
// instead. 0: none. With `torn`, a write makes half of its bytes first.
void CrashAt(const char* folder, uint64_t at, int torn, int disk, uint64_t seed,
             struct CrashReport* report);

}  // extern "C"

#endif  // FLEET_TESTS_CRASH_POINTS_CALLS_H_
