// SPDX-License-Identifier: Apache-2.0

#ifndef FLEET_LAUNCH_DESCRIPTOR_H_
#define FLEET_LAUNCH_DESCRIPTOR_H_

#include <unistd.h>
#include <utility>

namespace fleet::launch {

// Owns a file descriptor that children of this process are to have, unlike
// channel::Fd, which is closed in them.
class Descriptor final {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Who gets it closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_DESCRIPTOR_H_
