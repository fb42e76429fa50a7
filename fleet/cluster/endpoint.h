// SPDX-License-Identifier: Apache-2.0

// Where a process can be reached, and lists of such places as users write
// them: "10.0.0.1:6170,10.0.0.2:6170". Every function that reads text takes
// `source`, the name of the variable or flag that the text came from, and puts
// it into its errors. All are pure and thread-safe.

#ifndef FLEET_CLUSTER_ENDPOINT_H_
#define FLEET_CLUSTER_ENDPOINT_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::cluster {

// A host by address or name, and a port.
struct Endpoint {
  std::string host;   // IPv6 without its brackets, in the shortest form
  uint16_t port = 0;  // 1 to 65535 in whatever was parsed

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

// "10.0.0.1:6170", "[fe80::1]:6170".
std::string ToString(const Endpoint& endpoint);
// Joined by commas, as environment variables hold them.
std::string ToString(const std::vector<Endpoint>& endpoints);
std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint);

// Reads "host:port" or "[IPv6]:port"; blanks around it are dropped. A host of
// digits and dots must be an IPv4 address. InvalidArgument names `source`, the
// text, and what is wrong with it.
Result<Endpoint> ParseEndpoint(std::string_view text, std::string_view source);

// Reads endpoints between commas. InvalidArgument when there is none, when one
// is empty or wrong, or when one occurs twice.
Result<std::vector<Endpoint>> ParseEndpointList(std::string_view text,
                                                std::string_view source);

// Reads endpoints that are separate texts already, with the same failures.
Result<std::vector<Endpoint>> ParseEndpointList(
    const std::vector<std::string>& texts, std::string_view source);

// Reads hosts (names or addresses, IPv6 with or without brackets) between
// commas. The errors are those of ParseEndpointList.
Result<std::vector<std::string>> ParseHostList(std::string_view text,
                                               std::string_view source);

// How many different hosts occur.
int NumHosts(const std::vector<Endpoint>& endpoints);

// A process among those on its host.
struct PlaceOnHost {
  int rank;  // how many before it in the list have the same host
  int size;  // how many in the list have the same host, itself included
};
// The place of endpoints[index], which must exist.
PlaceOnHost FindPlaceOnHost(const std::vector<Endpoint>& endpoints,
                            size_t index);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_ENDPOINT_H_
