// SPDX-License-Identifier: Apache-2.0

// Where a process of this host listens, given how others reach it.

#ifndef FLEET_CLUSTER_BIND_ADDRESS_H_
#define FLEET_CLUSTER_BIND_ADDRESS_H_

#include <string>

#include "fleet/base/status.h"
#include "fleet/channel/socket.h"

namespace fleet::cluster {

// What to bind to so that others reach this host at `address`. For an address
// in numbers, "localhost" and "@name" that is `address` itself. For the name of
// a host it is all addresses of this one, since a name may mean one thing here
// (127.0.1.1) and another one elsewhere: whoever asks must know that the name
// is that of this host. NotFound when nobody knows the name. Thread-safe.
Result<channel::Address> BindAddress(const channel::Address& address);

// Whether `host`, an address or a name, belongs to this host: whether what it
// stands for here can be bound to. So all of 127.0.0.0/8 does, and a name that
// nobody knows does not. Thread-safe.
bool IsOwnAddress(const std::string& host);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_BIND_ADDRESS_H_
