// SPDX-License-Identifier: Apache-2.0

// How long a call waited, for its error message.

#ifndef FLEET_CHANNEL_WAITED_H_
#define FLEET_CHANNEL_WAITED_H_

#include <chrono>
#include <iomanip>
#include <ostream>

namespace fleet::channel {

// Starts with the first wait, so that a call that does not wait never asks for
// the time. Prints as "0.2 s".
class Waited final {
 public:
  void Begin() {
    if (!begun_) since_ = std::chrono::steady_clock::now();
    begun_ = true;
  }

  friend std::ostream& operator<<(std::ostream& out, const Waited& waited) {
    std::chrono::duration<double> time{0};
    if (waited.begun_) time = std::chrono::steady_clock::now() - waited.since_;
    return out << std::fixed << std::setprecision(time.count() < 1 ? 3 : 1)
               << time.count() << " s";
  }

 private:
  bool begun_ = false;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_WAITED_H_
