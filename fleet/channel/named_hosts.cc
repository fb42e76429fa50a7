// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/named_hosts.h"

#include <arpa/inet.h>
#include <chrono>
#include <netinet/in.h>
#include <string_view>
#include <utility>

#include "fleet/channel/socket.h"

namespace fleet::channel {
namespace {

// Asking the name service takes time, in which members wait.
constexpr auto kLookUpEvery = std::chrono::seconds(5);

bool IsInDigits(const std::string& host) {
  in6_addr any;
  return inet_pton(AF_INET, host.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

// A socket that listens for both families shows IPv4 so.
std::string WithoutMapping(const std::string& address) {
  constexpr std::string_view kMapped = "::ffff:";
  return address.starts_with(kMapped) ? address.substr(kMapped.size())
                                      : address;
}

}  // namespace

NamedHosts::NamedHosts(std::vector<std::string> hosts)
    : hosts_(std::move(hosts)) {
  for (const std::string& host : hosts_) {
    if (IsInDigits(host)) {
      addresses_.insert(host);
    } else {
      has_names_ = true;
    }
  }
  if (has_names_) look_up_again_ = base::Deadline::After({});
}

void NamedHosts::LookUpNames() {
  for (const std::string& host : hosts_) {
    if (IsInDigits(host)) continue;
    const auto found = Resolve({.host = host, .port = 1});
    if (!found.ok()) continue;
    for (const SocketAddress& at : *found) {
      addresses_.insert(WithoutMapping(ToAddress(at).host));
    }
  }
  look_up_again_ = base::Deadline::After(kLookUpEvery);
}

bool NamedHosts::Contain(const std::string& address) {
  if (hosts_.empty()) return true;
  const std::string plain = WithoutMapping(address);
  if (IsLoopback(plain) || addresses_.contains(plain)) return true;
  if (!look_up_again_.expired()) return false;
  LookUpNames();
  return addresses_.contains(plain);
}

std::string NamedHosts::ToString() const {
  std::string text;
  for (const std::string& host : hosts_) {
    text += (text.empty() ? "" : ", ") + host;
  }
  return text;
}

}  // namespace fleet::channel
