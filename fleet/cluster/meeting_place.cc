// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/meeting_place.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <unistd.h>

#include "fleet/base/interrupt.h"
#include "fleet/cluster/bind_address.h"
#include "fleet/cluster/name_hash.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using channel::Address;
using channel::Listener;

// Enough that one is free on any host, few enough to try all in a moment.
constexpr int kNumGuesses = 8;
// Above what services use and below what the kernel gives to clients.
constexpr uint64_t kFirstPort = 10240;
constexpr uint64_t kNumPorts = 32768 - kFirstPort;
// A job that was just killed may hold its port for a moment.
constexpr auto kBindPatience = std::chrono::seconds(5);
// An abstract name has room for 106 bytes.
constexpr size_t kMaxLocalName = 90;

Address ToChannelAddress(const Endpoint& endpoint) {
  Address address;
  address.host = endpoint.host;
  address.port = endpoint.port;
  return address;
}

void AddGuesses(const std::string& host, MeetingPlace& place) {
  for (int i = 0; i < kNumGuesses; ++i) {
    Address address;
    address.host = host;
    address.port = static_cast<uint16_t>(
        kFirstPort + NameHash(base::Concat(place.name, "/", i)) % kNumPorts);
    place.addresses.push_back(std::move(address));
  }
}

// Jobs of different users never meet, whatever they are called.
Address LocalAddress(const std::string& name) {
  std::string own = base::Concat(geteuid(), "-", name);
  if (own.size() > kMaxLocalName) own = NameDigits(own);
  Address address;
  address.local_name = base::Concat("fleet-", own);
  return address;
}

Result<std::unique_ptr<Listener>> Bind(const Address& address, bool is_guess,
                                       const channel::MeetOptions& options,
                                       Deadline deadline) {
  ASSIGN_OR_RETURN(const Address at, BindAddress(address));
  const Deadline end = Earlier(deadline, Deadline::After(kBindPatience));
  base::Interrupt nobody;
  while (true) {
    Result<std::unique_ptr<Listener>> listener = Listener::Bind(at, options);
    if (listener.ok() || is_guess || end.expired() ||
        listener.status().error_number() != EADDRINUSE) {
      return listener;
    }
    if (options.interrupt) RETURN_IF_ERROR(options.interrupt());
    RETURN_IF_ERROR(nobody.SleepUntil(
        Earlier(end, Deadline::After(base::kInterruptInterval))));
  }
}

}  // namespace

Result<MeetingPlace> FindMeetingPlace(const Role& role) {
  MeetingPlace place;
  if (role.master && role.source == RoleSource::kTorchrun) {
    place.name = base::Concat(role.meeting_name, "-", *role.master);
    if (!role.master_is_taken) {
      place.addresses.push_back(ToChannelAddress(*role.master));
    }
    AddGuesses(role.master->host, place);
  } else if (role.master) {
    place.addresses.push_back(ToChannelAddress(*role.master));
  } else if (!role.worker_endpoints.empty()) {
    place.addresses.push_back(ToChannelAddress(role.worker_endpoints[0]));
  } else if (!role.meeting_name.empty() && role.local_size == role.worker_num) {
    place.addresses.push_back(LocalAddress(role.meeting_name));
  } else if (!role.meeting_name.empty() && !role.node_names.empty()) {
    place.name = role.meeting_name;
    AddGuesses(role.node_names[0], place);
  } else {
    return InvalidArgument(
        ToString(role),
        ": nothing says where the workers meet; set MASTER_ADDR to the "
        "address of worker 0's host and MASTER_PORT to a free port there, the "
        "same for all workers");
  }
  return place;
}

Result<std::unique_ptr<Listener>> ListenAt(const MeetingPlace& place,
                                           const channel::MeetOptions& options,
                                           Deadline deadline) {
  Status failure = InvalidArgument("there is no address to listen at");
  for (const Address& address : place.addresses) {
    Result<std::unique_ptr<Listener>> listener =
        Bind(address, place.addresses.size() > 1, options, deadline);
    if (listener.ok()) return listener;
    failure = listener.status();
    if (failure.error_number() != EADDRINUSE) break;
  }
  return failure;
}

}  // namespace fleet::cluster
