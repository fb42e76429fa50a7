// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/endpoint.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <optional>
#include <set>
#include <system_error>

#include "fleet/base/check.h"

namespace fleet::cluster {
namespace {

// The longest name that DNS can hold.
constexpr size_t kMaxHostLength = 253;

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> items;
  while (true) {
    const size_t comma = text.find(',');
    items.push_back(Trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameChar(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '.' || c == '-' || c == '_';
}

// The address in its shortest form, so that two spellings of one address are
// equal; a zone ("%eth0") stays as it is. nullopt when it is no IPv6 address.
std::optional<std::string> CanonicalIpv6(std::string_view text) {
  const size_t percent = std::min(text.find('%'), text.size());
  const std::string_view zone = text.substr(percent);
  if (zone == "%" || !std::all_of(zone.begin() + (zone.empty() ? 0 : 1),
                                  zone.end(), IsNameChar)) {
    return std::nullopt;
  }
  in6_addr address;
  char shortest[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(),
                &address) != 1 ||
      inet_ntop(AF_INET6, &address, shortest, sizeof(shortest)) == nullptr) {
    return std::nullopt;
  }
  return std::string(shortest) + std::string(zone);
}

// What is wrong with a host that is not IPv6; empty when nothing is.
std::string_view FaultOfHost(std::string_view host) {
  if (host.empty()) return "has no host";
  if (host.size() > kMaxHostLength) return "has a host longer than 253 letters";
  if (host.front() == '-' || host.front() == '.' ||
      !std::all_of(host.begin(), host.end(), IsNameChar)) {
    return "has a host that is neither an address nor a name";
  }
  const bool numeric = std::all_of(
      host.begin(), host.end(), [](char c) { return IsDigit(c) || c == '.'; });
  in_addr address;
  if (numeric && inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) {
    return "is not an IPv4 address";
  }
  return {};
}

template <typename... Parts>
Status Fault(std::string_view source, std::string_view text,
             const Parts&... parts) {
  return InvalidArgument(source, ": '", text, "' ", parts...);
}

Result<uint16_t> ParsePort(std::string_view port, std::string_view text,
                           std::string_view source) {
  int number = 0;
  const char* end = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data(), end, number);
  if (error != std::errc() || stop != end || number < 1 || number > 65535) {
    return Fault(source, text, "has the port '", port,
                 "'; a port is a number from 1 to 65535");
  }
  return static_cast<uint16_t>(number);
}

// `text` is trimmed.
Result<Endpoint> ParseTrimmed(std::string_view text, std::string_view source) {
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos || text.substr(close + 1, 1) != ":") {
      return Fault(source, text, "is not [IPv6]:port");
    }
    const auto host = CanonicalIpv6(text.substr(1, close - 1));
    if (!host) return Fault(source, text, "holds no IPv6 address in brackets");
    ASSIGN_OR_RETURN(uint16_t port,
                     ParsePort(text.substr(close + 2), text, source));
    return Endpoint{*host, port};
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return Fault(source, text, "has no port; write ip:port");
  }
  if (text.find(':', colon + 1) != std::string_view::npos) {
    return Fault(source, text,
                 "has several colons; an IPv6 address is written [ip]:port");
  }
  const std::string_view host = text.substr(0, colon);
  if (std::string_view fault = FaultOfHost(host); !fault.empty()) {
    return Fault(source, text, fault);
  }
  ASSIGN_OR_RETURN(uint16_t port,
                   ParsePort(text.substr(colon + 1), text, source));
  return Endpoint{std::string(host), port};
}

Result<std::string> ParseHost(std::string_view text, std::string_view source) {
  std::string_view bare = text;
  if (bare.size() >= 2 && bare.front() == '[' && bare.back() == ']') {
    bare = bare.substr(1, bare.size() - 2);
  }
  if (auto ipv6 = CanonicalIpv6(bare)) return *ipv6;
  if (bare.size() != text.size() || bare.find(':') != bare.npos) {
    return Fault(source, text,
                 "is neither a host name nor an address; ports do not belong "
                 "here");
  }
  if (std::string_view fault = FaultOfHost(text); !fault.empty()) {
    return Fault(source, text, fault);
  }
  return std::string(text);
}

// Reads each of `items`, none of which may be empty or equal to another.
template <typename T>
Result<std::vector<T>> ParseEach(const std::vector<std::string_view>& items,
                                 std::string_view source,
                                 Result<T> (*parse)(std::string_view,
                                                    std::string_view)) {
  std::vector<T> values;
  std::set<T> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].empty()) {
      return InvalidArgument(source, ": item ", i + 1, " of ", items.size(),
                             " is empty");
    }
    ASSIGN_OR_RETURN(T value, parse(items[i], source));
    if (!seen.insert(value).second) {
      return Fault(source, items[i], "occurs twice in the list");
    }
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

std::string ToString(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  const std::string port = std::to_string(endpoint.port);
  return ipv6 ? "[" + endpoint.host + "]:" + port : endpoint.host + ":" + port;
}

std::string ToString(const std::vector<Endpoint>& endpoints) {
  std::string joined;
  for (const Endpoint& endpoint : endpoints) {
    if (!joined.empty()) joined += ',';
    joined += ToString(endpoint);
  }
  return joined;
}

std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint) {
  return out << ToString(endpoint);
}

Result<Endpoint> ParseEndpoint(std::string_view text, std::string_view source) {
  return ParseTrimmed(Trim(text), source);
}

Result<std::vector<Endpoint>> ParseEndpointList(std::string_view text,
                                                std::string_view source) {
  if (Trim(text).empty()) {
    return InvalidArgument(source,
                           ": the list is empty; write ip:port,ip:port");
  }
  return ParseEach(SplitAtCommas(text), source, ParseTrimmed);
}

Result<std::vector<Endpoint>> ParseEndpointList(
    const std::vector<std::string>& texts, std::string_view source) {
  std::vector<std::string_view> items;
  items.reserve(texts.size());
  for (const std::string& text : texts) items.push_back(Trim(text));
  return ParseEach(items, source, ParseTrimmed);
}

Result<std::vector<std::string>> ParseHostList(std::string_view text,
                                               std::string_view source) {
  if (Trim(text).empty()) {
    return InvalidArgument(source, ": the list is empty; write host,host");
  }
  return ParseEach(SplitAtCommas(text), source, ParseHost);
}

int NumHosts(const std::vector<Endpoint>& endpoints) {
  std::set<std::string_view> hosts;
  for (const Endpoint& endpoint : endpoints) hosts.insert(endpoint.host);
  return static_cast<int>(hosts.size());
}

PlaceOnHost FindPlaceOnHost(const std::vector<Endpoint>& endpoints,
                            size_t index) {
  FLEET_CHECK_LT(index, endpoints.size());
  PlaceOnHost place = {0, 0};
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].host != endpoints[index].host) continue;
    ++place.size;
    if (i < index) ++place.rank;
  }
  return place;
}

}  // namespace fleet::cluster
