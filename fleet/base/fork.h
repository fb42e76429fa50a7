// SPDX-License-Identifier: Apache-2.0

// What a forked child must not touch. A child without exec (a DataLoader's
// worker) inherits descriptors, but none of the threads. While it holds a
// connection, nobody notices the death of its parent; and a destructor that
// runs in it would wait for threads that are not there, or say good-bye in its
// parent's name. So the child closes the descriptors that are of its parent
// alone (descriptor.h) at once, and objects know where they come from:
//
//   ~Link() { if (origin_.in_child()) LeakThreads(); ... }
//   const Origin origin_;

#ifndef FLEET_BASE_FORK_H_
#define FLEET_BASE_FORK_H_

#include <atomic>
#include <cstdint>

#include "fleet/base/status.h"

namespace fleet::base {

// How many forks lie between the start of the program and this process.
extern std::atomic<uint32_t> fork_depth;

// The process that made an object.
class Origin final {
 public:
  Origin() : depth_(fork_depth.load(std::memory_order_relaxed)) {}

  // Whether this is a fork of that process, and the object only a copy.
  bool in_child() const {
    return depth_ != fork_depth.load(std::memory_order_relaxed);
  }
  // Ok, or FailedPrecondition in a child.
  Status Check() const {
    if (!in_child()) return OkStatus();
    return FailedPrecondition(
        "this process was forked from a rank and is none itself: it cannot "
        "talk to the others");
  }

 private:
  uint32_t depth_;
};

// Which descriptors a child closes. Descriptor calls these; they take a lock
// that fork() takes too, so that no child is made between the two halves.
class ForkRegistry final {
 public:
  // Makes a descriptor by `make` (-1: it failed, and errno says why) and
  // remembers it.
  template <typename Make>
  static int Open(Make make) {
    Lock();
    const int fd = make();
    if (fd >= 0) AddLocked(fd);
    Unlock();
    return fd;
  }
  static void Add(int fd);
  // What close(2) returned. Nothing happens in a child to a descriptor that was
  // its parent's.
  static int Close(int fd);
  // A child keeps it from now on.
  static void Forget(int fd);

 private:
  static void Lock();
  static void Unlock();
  static void AddLocked(int fd);
  // Whether it was known.
  static bool ForgetLocked(int fd);
};

}  // namespace fleet::base

#endif  // FLEET_BASE_FORK_H_
