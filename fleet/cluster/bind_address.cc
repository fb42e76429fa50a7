// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/bind_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

namespace fleet::cluster {
namespace {

// IPv4, or IPv6 in any spelling, with or without a zone ("%eth0").
bool IsInNumbers(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &parsed) ==
             1;
}

}  // namespace

Result<channel::Address> BindAddress(const channel::Address& address) {
  if (address.is_local() || address.host == "localhost" ||
      IsInNumbers(address.host)) {
    return address;
  }
  ASSIGN_OR_RETURN(const std::vector<channel::SocketAddress> resolved,
                   channel::Resolve(address));
  channel::Address all = address;
  all.host = resolved.front().storage.ss_family == AF_INET6 ? "::" : "0.0.0.0";
  return all;
}

bool IsOwnAddress(const std::string& host) {
  const auto addresses = channel::Resolve({.host = host});
  if (!addresses.ok()) return false;
  for (const channel::SocketAddress& address : *addresses) {
    const auto fd = base::Descriptor::OfThisProcess(
        socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && bind(fd.get(), address.get(), address.byte_size) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace fleet::cluster
