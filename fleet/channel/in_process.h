// SPDX-License-Identifier: Apache-2.0

// A channel between two threads of one process. It defines what the others
// must do, and serves jobs whose ranks are threads.

#ifndef FLEET_CHANNEL_IN_PROCESS_H_
#define FLEET_CHANNEL_IN_PROCESS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "fleet/channel/channel.h"

namespace fleet::channel {

struct InProcessOptions {
  // What each end calls the other.
  std::string first_name = "first";
  std::string second_name = "second";
  // Bytes that may wait unread in one direction before Send waits. A larger
  // message is taken when nothing else waits.
  size_t capacity = 1 << 20;
};

// Two ends of one channel. Each may outlive the other.
std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>> MakeInProcessPair(
    const InProcessOptions& options = {});

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_IN_PROCESS_H_
