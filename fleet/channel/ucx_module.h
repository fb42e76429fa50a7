// SPDX-License-Identifier: Apache-2.0

// What libfleet_core and the module of UCX say to each other.

#ifndef FLEET_CHANNEL_UCX_MODULE_H_
#define FLEET_CHANNEL_UCX_MODULE_H_

#include <memory>

#include "fleet/base/status.h"
#include "fleet/channel/byte_stream.h"
#include "fleet/channel/socket.h"

namespace fleet::channel {

// The argument of MakeUcxStream and its answer.
struct UcxOpening {
  base::Descriptor life;

  Status status;
  std::unique_ptr<ByteStream> stream;
};

using UcxEntry = void(UcxOpening*);
inline constexpr char kUcxEntry[] = "FleetOpenUcxStream";

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_UCX_MODULE_H_
