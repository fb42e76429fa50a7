// SPDX-License-Identifier: Apache-2.0

#ifndef FLEET_BASE_DESCRIPTOR_H_
#define FLEET_BASE_DESCRIPTOR_H_

#include <unistd.h>
#include <utility>

#include "fleet/base/fork.h"

namespace fleet::base {

// Owns a file descriptor and closes it. Two kinds, which differ in a child that
// was forked without exec:
//   Descriptor(fd)       the child has a copy: files, pipes to children
//   OfThisProcess(...)   closed in the child from the start (fork.h):
//                        connections, whose end must show the death of this
//                        process though a child lives on
//
// One thread at a time.
class Descriptor final {
 public:
  Descriptor() = default;
  // Takes what was opened; -1 is nothing.
  explicit Descriptor(int fd) : fd_(fd) {}
  static Descriptor OfThisProcess(int fd) {
    if (fd >= 0) ForkRegistry::Add(fd);
    return Descriptor(fd, true);
  }
  // Takes what `make` opens, between which and this no child is forked. Not
  // valid() when it returns -1; errno then says why.
  template <typename Make>
  static Descriptor OfThisProcess(Make make)
    requires requires { int{make()}; }
  {
    return Descriptor(ForkRegistry::Open(make), true);
  }

  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        of_this_process_(other.of_this_process_) {}
  // Closes what it held.
  Descriptor& operator=(Descriptor&& other) noexcept {
    Descriptor taken(std::move(other));
    std::swap(fd_, taken.fd_);
    std::swap(of_this_process_, taken.of_this_process_);
    return *this;
  }
  ~Descriptor() { (void)Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // What close(2) returned; 0 when there was nothing to close.
  int Close() {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0) return 0;
    return of_this_process_ ? ForkRegistry::Close(fd) : close(fd);
  }
  // Who gets it closes it, and a forked child has it too.
  int Release() {
    if (valid() && of_this_process_) ForkRegistry::Forget(fd_);
    return std::exchange(fd_, -1);
  }

 private:
  Descriptor(int fd, bool of_this_process)
      : fd_(fd), of_this_process_(of_this_process) {}

  int fd_ = -1;
  bool of_this_process_ = false;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_DESCRIPTOR_H_
