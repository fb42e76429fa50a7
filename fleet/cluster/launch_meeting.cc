// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launch_meeting.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fleet/base/mutex.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/bind_address.h"
#include "fleet/cluster/launch_ports.h"
#include "fleet/cluster/message.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using channel::Connection;
using channel::Identity;
using channel::Listener;
using channel::ProcessKind;

// One who has said hello and then says nothing.
constexpr std::chrono::seconds kAnswerPatience{10};
// How long a launcher whose meeting failed still tells others why.
constexpr std::chrono::seconds kLinger{2};

channel::MeetOptions MeetOptions(int rank, const MeetingOptions& options) {
  return {.self = {ProcessKind::kLauncher, rank}, .secret = options.secret};
}

channel::Address ToAddress(const Endpoint& endpoint) {
  return {.host = endpoint.host, .port = endpoint.port};
}

Status SendText(channel::Channel& to, const std::string& text,
                Deadline deadline) {
  return to.Send(std::as_bytes(std::span(text)), deadline);
}

Result<std::string> RecvText(channel::Channel& from, Deadline deadline) {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                   from.RecvMessage(kMaxMessageByteSize, deadline));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string Join(const std::vector<std::string>& items) {
  std::string joined;
  for (const std::string& item : items) {
    joined += (joined.empty() ? "" : ", ") + item;
  }
  return joined;
}

// What hosts have to agree on, in words.
std::map<std::string, std::string> ViewOf(const LaunchPlan& plan) {
  std::map<std::string, std::string> view = {
      {"workers", ToString(plan.workers)},
      {"servers", ToString(plan.servers)},
      {"heter workers", ToString(plan.heter_workers)}};
  std::erase_if(view, [](const auto& item) { return item.second.empty(); });
  return view;
}

std::string Encode(const std::map<std::string, std::string>& view) {
  MessageWriter writer;
  for (const auto& [key, value] : view) writer.Text(key).Text(value);
  return writer.Take();
}

// Ok when `theirs` is what `ours` is.
Status Compare(const std::map<std::string, std::string>& ours,
               const std::string& our_host, const std::string& theirs,
               const std::string& their_host) {
  std::map<std::string, std::string> view;
  for (MessageReader reader(theirs); !reader.rest().empty();) {
    const std::string key = reader.Text();
    if (key.empty()) return DataLoss(their_host, " sent no plan");
    view[key] = reader.Text();
  }
  std::string difference;
  for (const auto& [key, value] : ours) {
    if (view[key] == value) continue;
    difference += base::Concat("; ", key, " are ", value, " on ", our_host,
                               " and ", view[key].empty() ? "none" : view[key],
                               " on ", their_host);
  }
  for (const auto& [key, value] : view) {
    if (ours.contains(key) || value.empty()) continue;
    difference += base::Concat("; ", key, " are none on ", our_host, " and ",
                               value, " on ", their_host);
  }
  if (difference.empty()) return OkStatus();
  return FailedPrecondition("the plans of hosts ", our_host, " and ",
                            their_host, " differ", difference);
}

// A meeting by list, shared by its threads, which may outlive the caller.
class ListMeeting final : public std::enable_shared_from_this<ListMeeting> {
 public:
  ListMeeting(const LaunchPlan& plan, MeetingOptions options)
      : plan_(plan),
        view_(ViewOf(plan)),
        own_(plan.hosts[plan.own_host]),
        options_(std::move(options)) {
    for (size_t i = 0; i < plan.hosts.size(); ++i) {
      if (static_cast<int>(i) == plan.own_host) continue;
      uncalled_.insert(static_cast<int>(i));
      unheard_.insert(plan.hosts[i]);
    }
  }

  Result<std::vector<HostLink>> Run(std::unique_ptr<Listener> listener) {
    Listener& door = *listener;
    std::thread doorman(
        [self = shared_from_this(), &door] { self->AnswerCalls(door); });
    for (size_t i = 0; i < plan_.hosts.size(); ++i) {
      const int host = static_cast<int>(i);
      if (host == plan_.own_host) continue;
      std::thread([self = shared_from_this(), host] {
        self->Call(host);
      }).detach();
    }
    Status status = WaitForAll();
    if (!status.ok()) {
      // Those who call now hear what is wrong.
      std::this_thread::sleep_for(kLinger);
    }
    door.Abort(FailedPrecondition("the meeting is over"));
    doorman.join();
    // Nobody calls this host any more, so its ranks can have the socket.
    listener.reset();
    RETURN_IF_ERROR(status);
    base::MutexLock lock(mutex_);
    if (plan_.own_host == 0) return ReleaseAllLocked();
    return WaitForReleaseLocked();
  }

 private:
  // Tells `host` our plan, and hears theirs.
  void Call(int host) {
    const std::string& name = plan_.hosts[host];
    auto connection = channel::Connect(ToAddress(MeetingEndpoint(plan_, host)),
                                       MeetOptions(plan_.own_host, options_),
                                       options_.deadline);
    if (!connection.ok()) return CallFailed(connection.status());
    channel::Channel& peer = *connection->channel;
    const std::string greeting =
        MessageWriter().Text(own_).Text(Encode(view_)).Take();
    Status sent = SendText(peer, greeting, options_.deadline);
    if (!sent.ok()) return CallFailed(sent);
    Result<std::string> answer = RecvText(peer, options_.deadline);
    if (!answer.ok()) return CallFailed(answer.status());
    const Status same = Compare(view_, own_, *answer, name);
    base::MutexLock lock(mutex_);
    if (!same.ok()) return FailLocked(same);
    uncalled_.erase(host);
    called_[host] = std::move(connection->channel);
    changed_.NotifyAll();
  }

  void CallFailed(const Status& why) {
    // A host that is late is named by WaitForAll, together with others.
    if (why.code() == StatusCode::kDeadlineExceeded) return;
    base::MutexLock lock(mutex_);
    FailLocked(why.WithContext("the launcher on " + own_));
  }

  void AnswerCalls(Listener& door) {
    while (true) {
      Result<Connection> guest = door.Accept(options_.deadline);
      if (!guest.ok()) return;
      if (guest->peer.kind != ProcessKind::kLauncher) continue;
      Answer(*guest);
    }
  }

  void Answer(Connection& guest) {
    const Deadline patience =
        Earlier(options_.deadline, Deadline::After(kAnswerPatience));
    Result<std::string> greeting = RecvText(*guest.channel, patience);
    if (!greeting.ok()) return;
    MessageReader reader(*greeting);
    const std::string name = reader.Text();
    const std::string theirs = reader.Text();
    if (!reader.Finish().ok()) return;
    if (!SendText(*guest.channel, Encode(view_), patience).ok()) return;
    const Status same = Compare(view_, own_, theirs, name);
    base::MutexLock lock(mutex_);
    if (!same.ok()) return FailLocked(same);
    // One that is not of the plan is not waited for.
    if (name == own_ || !IsHost(name)) return;
    unheard_.erase(name);
    heard_[name] = std::move(guest.channel);
    changed_.NotifyAll();
  }

  bool IsHost(const std::string& name) const {
    return std::find(plan_.hosts.begin(), plan_.hosts.end(), name) !=
           plan_.hosts.end();
  }

  void FailLocked(const Status& why) REQUIRES(mutex_) {
    if (failure_.ok()) failure_ = why;
    changed_.NotifyAll();
  }

  Status WaitForAll() {
    base::MutexLock lock(mutex_);
    while (failure_.ok() && (!uncalled_.empty() || !unheard_.empty())) {
      if (changed_.WaitUntil(mutex_, options_.deadline)) continue;
      std::set<std::string> missing = unheard_;
      for (int host : uncalled_) missing.insert(plan_.hosts[host]);
      return DeadlineExceeded(
          "these hosts did not come: ", DescribeHosts(missing),
          ". Is fleetrun started on them? "
          "(FLEET_START_TIMEOUT)");
    }
    return failure_;
  }

  // "10.0.0.2 (rank 2, rank 3), ..."
  std::string DescribeHosts(const std::set<std::string>& names) const {
    std::vector<std::string> hosts;
    for (const std::string& name : names) {
      std::vector<std::string> ranks;
      for (size_t i = 0; i < plan_.workers.size(); ++i) {
        if (plan_.workers[i].host != name) continue;
        ranks.push_back("rank " + std::to_string(i));
      }
      hosts.push_back(ranks.empty() ? name : name + " (" + Join(ranks) + ")");
    }
    return Join(hosts);
  }

  // The first host lets all go once all have closed their doors: a rank that
  // starts must not meet a launcher where it expects a rank.
  Result<std::vector<HostLink>> ReleaseAllLocked() REQUIRES(mutex_) {
    for (auto& [name, peer] : heard_) {
      Status ready = RecvText(*peer, options_.deadline).status();
      if (!ready.ok()) return ready.WithContext("while hosts met: " + name);
    }
    std::vector<HostLink> links;
    for (auto& [name, peer] : heard_) {
      RETURN_IF_ERROR(SendText(*peer, "go", options_.deadline));
      links.push_back({name, std::move(peer)});
    }
    return links;
  }

  Result<std::vector<HostLink>> WaitForReleaseLocked() REQUIRES(mutex_) {
    HostLink first = {plan_.hosts[0], std::move(called_[0])};
    RETURN_IF_ERROR(SendText(*first.channel, "ready", options_.deadline));
    Status go = RecvText(*first.channel, options_.deadline).status();
    if (!go.ok()) return go.WithContext("while hosts met: " + first.host);
    std::vector<HostLink> links;
    links.push_back(std::move(first));
    return links;
  }

  const LaunchPlan plan_;
  const std::map<std::string, std::string> view_;
  const std::string own_;
  const MeetingOptions options_;

  base::Mutex mutex_;
  base::CondVar changed_;
  Status failure_ GUARDED_BY(mutex_);
  std::set<int> uncalled_ GUARDED_BY(mutex_);
  std::set<std::string> unheard_ GUARDED_BY(mutex_);
  std::map<int, std::unique_ptr<channel::Channel>> called_ GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<channel::Channel>> heard_
      GUARDED_BY(mutex_);
};

// What a host says at the master's door.
struct Application {
  int num_hosts = 0;
  int node_rank = -1;  // -1: any
  HostShare share;
};

void Write(const HostShare& share, MessageWriter& writer) {
  writer.Text(share.host);
  for (const auto* ports :
       {&share.ports, &share.server_ports, &share.heter_ports}) {
    writer.U32(static_cast<uint32_t>(ports->size()));
    for (uint16_t port : *ports) writer.U32(port);
  }
  writer.U32(share.torch_port).U8(share.with_servers ? 1 : 0);
}

HostShare ReadShare(MessageReader& reader) {
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
  MessageWriter writer;
  writer.U32(application.num_hosts).U32(application.node_rank + 1);
  Write(application.share, writer);
  return writer.Take();
}

Result<Application> DecodeApplication(std::string_view bytes) {
  MessageReader reader(bytes);
  Application application;
  application.num_hosts = static_cast<int>(reader.U32());
  application.node_rank = static_cast<int>(reader.U32()) - 1;
  application.share = ReadShare(reader);
  RETURN_IF_ERROR(reader.Finish());
  return application;
}

// A refusal, or the roster for one of its hosts.
std::string EncodeAnswer(const Status& refusal, const Roster& roster, int own) {
  MessageWriter writer;
  writer.Failure(refusal).U32(own);
  writer.U32(static_cast<uint32_t>(roster.hosts.size()));
  for (const HostShare& share : roster.hosts) Write(share, writer);
  return writer.Take();
}

Result<Roster> DecodeAnswer(std::string_view bytes) {
  MessageReader reader(bytes);
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
  const auto none = [&](std::vector<uint16_t> HostShare::*ports) {
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

Result<std::optional<MasterOptions>> ReadMaster(const LaunchOptions& options,
                                                const Environment& env) {
  ASSIGN_OR_RETURN(std::optional<int> nnodes, FindInt(env, "PADDLE_NNODES"));
  if (options.nnodes) nnodes = options.nnodes;
  std::optional<std::string> place = options.master;
  if (const auto given = Find(env, "PADDLE_MASTER"); !place && given) {
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
  ASSIGN_OR_RETURN(master.master, ParseEndpoint(*place, "--master"));
  master.num_hosts = *nnodes;
  master.node_rank = options.node_rank;
  if (master.node_rank && *master.node_rank >= master.num_hosts) {
    return InvalidArgument("--rank=", *master.node_rank, ", but --nnodes is ",
                           master.num_hosts);
  }
  return std::optional(master);
}

Endpoint MeetingEndpoint(const LaunchPlan& plan, int host) {
  for (const auto* list : {&plan.workers, &plan.servers, &plan.heter_workers}) {
    for (const Endpoint& endpoint : *list) {
      if (endpoint.host == plan.hosts[host]) return endpoint;
    }
  }
  return {};
}

Result<std::vector<HostLink>> MeetByList(const LaunchPlan& plan, int listen_fd,
                                         const MeetingOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                   Listener::Adopt(fcntl(listen_fd, F_DUPFD_CLOEXEC, 3),
                                   MeetOptions(plan.own_host, options)));
  Result<std::vector<HostLink>> links =
      std::make_shared<ListMeeting>(plan, options)->Run(std::move(listener));
  // Both descriptors are one socket; whoever inherits it expects a plain one.
  fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) & ~O_NONBLOCK);
  return links;
}

Result<Roster> MeetAtMaster(const MasterOptions& master, const HostShare& own,
                            const MeetingOptions& options) {
  const Application application = {master.num_hosts,
                                   master.node_rank.value_or(-1), own};
  // Who has to be the master may know a name that stands for another machine
  // here, say one that passes connections on.
  const bool may_listen = master.node_rank ? *master.node_rank == 0
                                           : IsOwnAddress(master.master.host);
  if (may_listen) {
    Endpoint place = master.master;
    Result<Descriptor> door = OpenListener(place);
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

Result<std::string> AddressTowards(const Endpoint& peer) {
  ASSIGN_OR_RETURN(std::vector<channel::SocketAddress> addresses,
                   channel::Resolve(ToAddress(peer)));
  for (const channel::SocketAddress& address : addresses) {
    // Connecting a datagram socket only asks the routing table.
    const channel::Fd fd(
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
  const auto copy = [](const std::vector<Endpoint>& from,
                       std::vector<uint16_t>& to) {
    for (const Endpoint& endpoint : from) to.push_back(endpoint.port);
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
  // Of each kind, those on hosts before this one.
  int before[3] = {};
  for (size_t i = 0; i < roster.hosts.size(); ++i) {
    const HostShare& share = roster.hosts[i];
    own.hosts.push_back(share.host);
    const auto add = [&](const std::vector<uint16_t>& ports,
                         std::vector<Endpoint>& to, int& count) {
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
    process.index += process.kind == RoleKind::kWorker   ? before[0]
                     : process.kind == RoleKind::kServer ? before[1]
                                                         : before[2];
  }
  return own;
}

}  // namespace fleet::cluster
