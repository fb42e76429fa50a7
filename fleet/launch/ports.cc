// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/ports.h"

#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "fleet/channel/socket.h"
#include "fleet/cluster/bind_address.h"

namespace fleet::launch {
namespace {

using channel::SocketAddress;

bool AllowReuse(const base::Descriptor& fd) {
  const int on = 1;
  return setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0;
}

// Bound, and not yet listening. Puts the real port into `endpoint`.
Result<base::Descriptor> Bind(cluster::Endpoint& endpoint) {
  ASSIGN_OR_RETURN(
      const channel::Address place,
      cluster::BindAddress({.host = endpoint.host, .port = endpoint.port}));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   channel::Resolve(place));
  Status failure;
  for (const SocketAddress& address : addresses) {
    base::Descriptor fd(
        socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // A port by number may still be held by connections of a job that just
    // ended. One of the kernel's choice must be ours alone: two who allow reuse
    // may get the same.
    const bool any = endpoint.port == 0;
    if (fd.valid() && (any || AllowReuse(fd)) &&
        bind(fd.get(), address.get(), address.byte_size) == 0) {
      SocketAddress bound;
      bound.byte_size = sizeof(bound.storage);
      if (getsockname(fd.get(), bound.get(), &bound.byte_size) == 0) {
        endpoint.port = channel::ToAddress(bound).port;
        return fd;
      }
    }
    failure = ErrnoStatus(errno, ToString(endpoint));
  }
  return failure;
}

}  // namespace

Result<base::Descriptor> OpenListener(cluster::Endpoint& endpoint) {
  ASSIGN_OR_RETURN(base::Descriptor fd, Bind(endpoint));
  if (listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(errno, ToString(endpoint));
  }
  return fd;
}

Result<ReservedPorts> ReservePorts(LaunchPlan& plan) {
  ReservedPorts ports;
  for (const ProcessPlan& process : plan.processes) {
    cluster::Endpoint& endpoint = plan.endpoint_of(process);
    Result<base::Descriptor> listener = OpenListener(endpoint);
    if (!listener.ok()) {
      return listener.status().WithContext(base::Concat(
          "cannot listen for ", NameOf(plan, process),
          "; choose other ports (--started_port) or end what uses them"));
    }
    ports.listeners.push_back(std::move(listener).value());
  }
  const bool is_first = plan.torch_master.host == plan.hosts[plan.own_host];
  const bool one_host = plan.hosts.size() == 1;
  if (is_first && (one_host || plan.torch_master.port != 0)) {
    // Only for programs with torch's own rendezvous, which will say it
    // themselves when the port is taken.
    Result<base::Descriptor> fd = Bind(plan.torch_master);
    if (fd.ok() && AllowReuse(*fd)) ports.torch_master = std::move(fd).value();
  }
  return ports;
}

}  // namespace fleet::launch
