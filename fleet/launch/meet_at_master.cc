// SPDX-License-Identifier: Apache-2.0

// Hosts that meet at one of them, whose address all were told.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/message.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/bind_address.h"
#include "fleet/launch/meeting.h"
#include "fleet/launch/ports.h"
#include "fleet/launch/talk.h"

namespace fleet::launch {
namespace {

using base::Deadline;
using channel::Connection;
using channel::Listener;
using channel::ProcessKind;

// What a host says at the master's door.
struct Application {
  int num_hosts = 0;
  int node_rank = -1;  // -1: any
  HostShare share;
};

void Write(const HostShare& share, channel::MessageWriter& writer) {
  writer.Text(share.host);
  for (const auto* ports :
       {&share.ports, &share.server_ports, &share.heter_ports}) {
    writer.U32(static_cast<uint32_t>(ports->size()));
    for (uint16_t port : *ports) writer.U32(port);
  }
  writer.U32(share.torch_port).U8(share.with_servers ? 1 : 0);
}

HostShare ReadShare(channel::MessageReader& reader) {
  HostShare share;
  share.host = reader.Text();
  for (auto* ports : {&share.ports, &share.server_ports, &share.heter_ports}) {
    const uint32_t count = reader.U32();
    for (uint32_t i = 0; i < count && !reader.rest().empty(); ++i) {
      ports->push_back(static_cast<uint16_t>(reader.U32()));
    }
  }
  share.torch_port = static_cast<uint16_t>(reader.U32());
  share.with_servers = reader.U8() != 0;
  return share;
}

std::vector<uint16_t> AllPorts(const HostShare& share) {
  std::vector<uint16_t> all;
  for (const auto* ports :
       {&share.ports, &share.server_ports, &share.heter_ports}) {
    all.insert(all.end(), ports->begin(), ports->end());
  }
  return all;
}

std::string Encode(const Application& application) {
  channel::MessageWriter writer;
  writer.U32(application.num_hosts).U32(application.node_rank + 1);
  Write(application.share, writer);
  return writer.Take();
}

Result<Application> DecodeApplication(std::string_view bytes) {
  channel::MessageReader reader(bytes);
  Application application;
  application.num_hosts = static_cast<int>(reader.U32());
  application.node_rank = static_cast<int>(reader.U32()) - 1;
  application.share = ReadShare(reader);
  RETURN_IF_ERROR(reader.Finish());
  return application;
}

// A refusal, or the roster for one of its hosts.
std::string EncodeAnswer(const Status& refusal, const Roster& roster, int own) {
  channel::MessageWriter writer;
  writer.Failure(refusal).U32(own);
  writer.U32(static_cast<uint32_t>(roster.hosts.size()));
  for (const HostShare& share : roster.hosts) Write(share, writer);
  return writer.Take();
}

Result<Roster> DecodeAnswer(std::string_view bytes) {
  channel::MessageReader reader(bytes);
  const Status refusal = reader.Failure();
  Roster roster;
  roster.own_host = static_cast<int>(reader.U32());
  const uint32_t count = reader.U32();
  for (uint32_t i = 0; i < count && !reader.rest().empty(); ++i) {
    roster.hosts.push_back(ReadShare(reader));
  }
  RETURN_IF_ERROR(reader.Finish());
  RETURN_IF_ERROR(refusal);
  return roster;
}

// One who came to the master, the master's own host included.
struct Applicant {
  Application application;
  std::unique_ptr<channel::Channel> channel;  // of itself: none
};

Status CheckFits(const Application& first, const Application& other) {
  const std::string who = base::Concat("hosts ", first.share.host, " and ",
                                       other.share.host, " differ: ");
  if (first.num_hosts != other.num_hosts) {
    return FailedPrecondition(who, "--nnodes is ", first.num_hosts, " on the ",
                              "first and ", other.num_hosts, " on the second");
  }
  if (first.share.with_servers != other.share.with_servers) {
    return FailedPrecondition(
        who, first.share.with_servers ? "servers and workers" : "ranks",
        " on the first, and ",
        other.share.with_servers ? "servers and workers" : "ranks",
        " on the second");
  }
  if (!first.share.with_servers &&
      first.share.ports.size() != other.share.ports.size()) {
    return FailedPrecondition(who, first.share.ports.size(),
                              " ranks on the first and ",
                              other.share.ports.size(), " on the second");
  }
  if (other.node_rank >= other.num_hosts) {
    return FailedPrecondition("--rank=", other.node_rank, " on ",
                              other.share.host, ", but --nnodes is ",
                              other.num_hosts);
  }
  return OkStatus();
}

// By wish, then by arrival.
Result<std::vector<int>> GiveRanks(const std::vector<Applicant>& applicants) {
  std::vector<int> ranks(applicants.size(), -1);
  std::map<int, size_t> taken;
  for (size_t i = 0; i < applicants.size(); ++i) {
    const int wish = applicants[i].application.node_rank;
    if (wish < 0) continue;
    const auto [place, is_new] = taken.emplace(wish, i);
    if (!is_new) {
      return FailedPrecondition(
          "hosts ", applicants[place->second].application.share.host, " and ",
          applicants[i].application.share.host,
          " were both given --rank=", wish);
    }
    ranks[i] = wish;
  }
  int next = 0;
  for (int& rank : ranks) {
    if (rank >= 0) continue;
    while (taken.contains(next)) ++next;
    rank = next++;
  }
  return ranks;
}

// Whether an applicant who waits for its answer has gone instead.
bool IsGone(const Applicant& applicant) {
  if (applicant.channel == nullptr) return false;  // ourselves
  const auto now = Deadline::After(std::chrono::seconds(0));
  return applicant.channel->NextSize(now).status().code() !=
         StatusCode::kDeadlineExceeded;
}

// Whether both are one launcher, started twice: no port has two owners.
bool IsSameLauncher(const HostShare& one, const HostShare& other) {
  if (one.host != other.host) return false;
  const std::vector<uint16_t> ours = AllPorts(one);
  const std::vector<uint16_t> theirs = AllPorts(other);
  return std::find_first_of(ours.begin(), ours.end(), theirs.begin(),
                            theirs.end()) != ours.end();
}

// A job with servers has some of each kind.
Status CheckWhole(const std::vector<HostShare>& hosts) {
  if (!hosts.front().with_servers) return OkStatus();
  const auto none = [&](std::vector<uint16_t> HostShare::* ports) {
    return std::all_of(hosts.begin(), hosts.end(), [&](const HostShare& share) {
      return (share.*ports).empty();
    });
  };
  if (none(&HostShare::server_ports)) {
    return FailedPrecondition("no host of the job has a server (--server_num)");
  }
  if (none(&HostShare::ports)) {
    return FailedPrecondition("no host of the job has a worker (--worker_num)");
  }
  return OkStatus();
}

// The master's part: waits for the others, and tells all who is where.
Result<Roster> Host(Listener& door, const MasterOptions& master,
                    Application own, const MeetingOptions& options) {
  std::vector<Applicant> applicants;
  applicants.push_back({std::move(own), nullptr});
  Status failure;
  while (failure.ok() &&
         static_cast<int>(applicants.size()) < master.num_hosts) {
    Result<Connection> guest = door.Accept(options.deadline);
    if (!guest.ok()) {
      std::erase_if(applicants, IsGone);
      std::vector<std::string> here;
      here.reserve(applicants.size());
      for (const Applicant& a : applicants) {
        here.push_back(a.application.share.host);
      }
      failure =
          guest.status().code() == StatusCode::kDeadlineExceeded
              ? DeadlineExceeded(here.size(), " of ", master.num_hosts,
                                 " hosts came to ", master.master, ": only ",
                                 Join(here), " (FLEET_START_TIMEOUT)")
              : guest.status();
      break;
    }
    if (guest->peer.kind != ProcessKind::kLauncher) continue;
    const Deadline patience =
        Earlier(options.deadline, Deadline::After(kAnswerPatience));
    Result<std::string> text = RecvText(*guest->channel, patience);
    if (!text.ok()) continue;
    Result<Application> application = DecodeApplication(*text);
    if (!application.ok()) continue;
    failure = CheckFits(applicants.front().application, *application);
    // Who started anew is counted once, whether its end was seen or not.
    std::erase_if(applicants, [&](const Applicant& known) {
      return IsGone(known) ||
             (known.channel != nullptr &&
              IsSameLauncher(known.application.share, application->share));
    });
    applicants.push_back({std::move(*application), std::move(guest->channel)});
  }
  Roster roster;
  std::vector<int> ranks(applicants.size(), 0);
  if (failure.ok()) {
    Result<std::vector<int>> given = GiveRanks(applicants);
    failure = given.status();
    if (given.ok()) {
      ranks = std::move(given).value();
      roster.hosts.resize(applicants.size());
      for (size_t i = 0; i < applicants.size(); ++i) {
        roster.hosts[ranks[i]] = applicants[i].application.share;
      }
      failure = CheckWhole(roster.hosts);
    }
  }
  for (size_t i = 1; i < applicants.size(); ++i) {
    const std::string answer = EncodeAnswer(failure, roster, ranks[i]);
    Status sent = SendText(*applicants[i].channel, answer, options.deadline);
    if (!failure.ok()) continue;
    RETURN_IF_ERROR(sent);
    roster.links.push_back({applicants[i].application.share.host,
                            std::move(applicants[i].channel)});
  }
  RETURN_IF_ERROR(failure);
  roster.own_host = ranks[0];
  return roster;
}

Result<Roster> Visit(const MasterOptions& master, const Application& own,
                     const MeetingOptions& options) {
  ASSIGN_OR_RETURN(
      Connection connection,
      channel::Connect(ToAddress(master.master),
                       MeetOptions(own.node_rank, options), options.deadline));
  channel::Channel& peer = *connection.channel;
  RETURN_IF_ERROR(SendText(peer, Encode(own), options.deadline));
  ASSIGN_OR_RETURN(std::string answer, RecvText(peer, options.deadline));
  ASSIGN_OR_RETURN(Roster roster, DecodeAnswer(answer));
  roster.links.push_back(
      {ToString(master.master), std::move(connection.channel)});
  return roster;
}

}  // namespace

Result<std::optional<MasterOptions>> ReadMaster(
    const LaunchOptions& options, const cluster::Environment& env) {
  ASSIGN_OR_RETURN(std::optional<int> nnodes,
                   cluster::FindInt(env, "PADDLE_NNODES"));
  if (options.nnodes) nnodes = options.nnodes;
  std::optional<std::string> place = options.master;
  if (const auto given = cluster::Find(env, "PADDLE_MASTER"); !place && given) {
    place = *given;
  }
  if (options.master && options.ips) {
    return InvalidArgument("--master and --ips: give one of them");
  }
  if (!place || nnodes.value_or(1) <= 1 || options.ips) {
    return std::optional<MasterOptions>();
  }
  if (options.servers || options.workers || options.heter_workers) {
    if (!options.master) return std::optional<MasterOptions>();
    return InvalidArgument(
        "--master beside --servers or --workers: say how many are on this "
        "host by --server_num and --worker_num");
  }
  MasterOptions master;
  ASSIGN_OR_RETURN(master.master, cluster::ParseEndpoint(*place, "--master"));
  master.num_hosts = *nnodes;
  master.node_rank = options.node_rank;
  if (master.node_rank && *master.node_rank >= master.num_hosts) {
    return InvalidArgument("--rank=", *master.node_rank, ", but --nnodes is ",
                           master.num_hosts);
  }
  return std::optional(master);
}

Result<Roster> MeetAtMaster(const MasterOptions& master, const HostShare& own,
                            const MeetingOptions& options) {
  const Application application = {master.num_hosts,
                                   master.node_rank.value_or(-1), own};
  // Who has to be the master may know a name that stands for another machine
  // here, say one that passes connections on.
  const bool may_listen = master.node_rank
                              ? *master.node_rank == 0
                              : cluster::IsOwnAddress(master.master.host);
  if (may_listen) {
    cluster::Endpoint place = master.master;
    Result<base::Descriptor> door = OpenListener(place);
    if (door.ok()) {
      ASSIGN_OR_RETURN(
          std::unique_ptr<Listener> listener,
          Listener::Adopt(door->Release(), MeetOptions(0, options)));
      return Host(*listener, master, application, options);
    }
    // Where another launcher of this host was faster, that one is the master;
    // a host that has to be it, and is not, is an error.
    if (master.node_rank && door.status().error_number() != EADDRINUSE) {
      return door.status().WithContext("--rank=0 listens at --master");
    }
  }
  return Visit(master, application, options);
}

Result<std::string> AddressTowards(const cluster::Endpoint& peer) {
  ASSIGN_OR_RETURN(std::vector<channel::SocketAddress> addresses,
                   channel::Resolve(ToAddress(peer)));
  for (const channel::SocketAddress& address : addresses) {
    // Connecting a datagram socket only asks the routing table.
    const auto fd = base::Descriptor::OfThisProcess(
        socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    channel::SocketAddress own;
    own.byte_size = sizeof(own.storage);
    if (fd.valid() &&
        connect(fd.get(), address.get(), address.byte_size) == 0 &&
        getsockname(fd.get(), own.get(), &own.byte_size) == 0) {
      return channel::ToAddress(own).host;
    }
  }
  return Unavailable("--master: there is no way to ", peer);
}

HostShare ShareOf(const LaunchPlan& plan) {
  HostShare share;
  share.host = plan.hosts.front();
  share.torch_port = plan.torch_master.port;
  share.with_servers = plan.mode == LaunchMode::kServers;
  const auto copy = [](const std::vector<cluster::Endpoint>& from,
                       std::vector<uint16_t>& to) {
    for (const cluster::Endpoint& endpoint : from) to.push_back(endpoint.port);
  };
  copy(plan.workers, share.ports);
  copy(plan.servers, share.server_ports);
  copy(plan.heter_workers, share.heter_ports);
  return share;
}

LaunchPlan JoinPlan(LaunchPlan own, const Roster& roster) {
  own.hosts.clear();
  own.workers.clear();
  own.servers.clear();
  own.heter_workers.clear();
  own.own_host = roster.own_host;
  // How many of each kind are on hosts before this one.
  int before[3] = {};
  for (size_t i = 0; i < roster.hosts.size(); ++i) {
    const HostShare& share = roster.hosts[i];
    own.hosts.push_back(share.host);
    const auto add = [&](const std::vector<uint16_t>& ports,
                         std::vector<cluster::Endpoint>& to, int& count) {
      for (uint16_t port : ports) to.push_back({share.host, port});
      if (static_cast<int>(i) < roster.own_host) {
        count += static_cast<int>(ports.size());
      }
    };
    add(share.ports, own.workers, before[0]);
    add(share.server_ports, own.servers, before[1]);
    add(share.heter_ports, own.heter_workers, before[2]);
  }
  own.torch_master = {roster.hosts.front().host,
                      roster.hosts.front().torch_port};
  for (ProcessPlan& process : own.processes) {
    process.index += process.kind == cluster::RoleKind::kWorker   ? before[0]
                     : process.kind == cluster::RoleKind::kServer ? before[1]
                                                                  : before[2];
  }
  return own;
}

}  // namespace fleet::launch
