// SPDX-License-Identifier: Apache-2.0

// Hosts that are named by addresses: each calls each.

#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/message.h"
#include "fleet/launch/meeting.h"
#include "fleet/launch/talk.h"

namespace fleet::launch {
namespace {

using base::Deadline;
using channel::Connection;
using channel::Listener;
using channel::ProcessKind;

// How long a launcher whose meeting failed still tells others why.
constexpr std::chrono::seconds kLinger{2};

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
  channel::MessageWriter writer;
  for (const auto& [key, value] : view) writer.Text(key).Text(value);
  return writer.Take();
}

// Ok when `theirs` is what `ours` is.
Status Compare(const std::map<std::string, std::string>& ours,
               const std::string& our_host, const std::string& theirs,
               const std::string& their_host) {
  std::map<std::string, std::string> view;
  for (channel::MessageReader reader(theirs); !reader.rest().empty();) {
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
      unanswered_.insert(plan.hosts[i]);
    }
  }

  Result<std::vector<HostLink>> Run(std::unique_ptr<Listener> listener) {
    Listener& door = *listener;
    std::jthread doorman(
        [self = shared_from_this(), &door] { self->AnswerCalls(door); });
    for (size_t i = 0; i < plan_.hosts.size(); ++i) {
      const int host = static_cast<int>(i);
      if (host == plan_.own_host) continue;
      // Not joined: a connection that is being tried cannot be given up, and
      // the meeting lives as long as its threads.
      std::thread([self = shared_from_this(), host] {
        self->Call(host);
      }).detach();
    }
    Status status = WaitForAll();
    if (!status.ok()) WaitUntilAnswered(Deadline::After(kLinger));
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
        channel::MessageWriter().Text(own_).Text(Encode(view_)).Take();
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
    channel::MessageReader reader(*greeting);
    const std::string name = reader.Text();
    const std::string theirs = reader.Text();
    if (!reader.Finish().ok()) return;
    if (!SendText(*guest.channel, Encode(view_), patience).ok()) return;
    const Status same = Compare(view_, own_, theirs, name);
    base::MutexLock lock(mutex_);
    unanswered_.erase(name);
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

  // After a failure: those who call now hear what is wrong. It is over when all
  // have called.
  void WaitUntilAnswered(Deadline deadline) {
    base::MutexLock lock(mutex_);
    while (!unanswered_.empty() && changed_.WaitUntil(mutex_, deadline)) {
      continue;
    }
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
  std::set<std::string> unanswered_ GUARDED_BY(mutex_);
  std::map<int, std::unique_ptr<channel::Channel>> called_ GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<channel::Channel>> heard_
      GUARDED_BY(mutex_);
};

}  // namespace

cluster::Endpoint MeetingEndpoint(const LaunchPlan& plan, int host) {
  for (const auto* list : {&plan.workers, &plan.servers, &plan.heter_workers}) {
    for (const cluster::Endpoint& endpoint : *list) {
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

}  // namespace fleet::launch
