// SPDX-License-Identifier: Apache-2.0

// How a worker reaches a server.

#ifndef FLEET_PS_CONNECT_H_
#define FLEET_PS_CONNECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/ps/wire.h"

namespace fleet::ps {

using base::Deadline;

// How to get a connection to server `server`; called again when one is lost.
using OpenConnection = std::function<Result<std::unique_ptr<channel::Channel>>(
    uint32_t server, Deadline deadline)>;

struct ConnectByAddressOptions {
  int32_t worker = 0;
  channel::Trust trust;
  channel::Carrier carrier = channel::Carrier::kTcp;
  // Servers of this host are reached by shared memory.
  bool shared_memory = true;
  base::InterruptCheck interrupt;
};

// Connections by address: TCP first, which every server has, then shared memory
// where the server told its name and can be reached there.
OpenConnection ConnectByAddress(const std::vector<channel::Address>& servers,
                                const ConnectByAddressOptions& options);

// One request on a connection that nobody else uses, and its answer. What the
// server refuses has its code. `interrupt` is asked while it waits.
Result<std::string> Ask(channel::Channel& channel, const RequestHead& head,
                        const std::string& body, Deadline deadline,
                        const base::InterruptCheck& interrupt = {});

}  // namespace fleet::ps

#endif  // FLEET_PS_CONNECT_H_
