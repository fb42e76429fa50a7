// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/world.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>
#include <utility>

#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/cluster/launcher_words.h"
#include "fleet/comm/hierarchical.h"
#include "fleet/comm/in_process.h"
#include "fleet/comm/meeting.h"
#include "fleet/comm/mpi.h"
#include "fleet/comm/nccl.h"
#include "fleet/comm/shared_memory.h"
#include "fleet/comm/tcp.h"

namespace fleet::comm {
namespace {

using cluster::News;

// A connection that ended may mean that a rank died, of which the membership
// knows more: where it ran, which process. Its news needs some milliseconds.
constexpr auto kReasonPatience = std::chrono::milliseconds(300);
constexpr char kNoGpu[] = "-";

// Who reaches the same abstract unix sockets is on the same host: the same
// kernel, and the same network namespace.
Result<std::string> KeyOfThisHost() {
  ASSIGN_OR_RETURN(std::string boot,
                   base::ReadFile("/proc/sys/kernel/random/boot_id"));
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  char network[64];
  const ssize_t size =
      ::readlink("/proc/self/ns/net", network, sizeof(network));
  if (size < 0) return ErrnoStatus(errno, "/proc/self/ns/net");
  return base::Concat(boot, " ",
                      std::string_view(network, static_cast<size_t>(size)));
}

// What the membership told, and the communicators that it concerns. Shared
// with communicators that may outlive the world. Thread-safe.
class Watch final {
 public:
  void Add(const std::string& name, const std::vector<int>& ranks,
           const std::shared_ptr<AbortHandle>& handle) EXCLUDES(mutex_) {
    {
      base::MutexLock lock(mutex_);
      // Names are used once, so what is there is there for good; a handle of a
      // communicator that is gone does nothing.
      groups_[name] = {std::set<int>(ranks.begin(), ranks.end()), handle};
    }
    // What was heard before it was there; of what comes now, Hear() tells it.
    const Status doom = Doom(name, ranks);
    if (!doom.ok()) handle->Abort(doom);
  }

  // The reason for which this group cannot be, if there is one.
  Status Doom(const std::string& name, const std::vector<int>& ranks) const
      EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    if (const auto failed = failed_.find(name); failed != failed_.end()) {
      return failed->second;
    }
    for (int rank : ranks) {
      if (const auto dead = died_.find(rank); dead != died_.end()) {
        return dead->second;
      }
    }
    return OkStatus();
  }

  void Hear(const News& news) EXCLUDES(mutex_) {
    if (news.kind != News::Kind::kLeft) {
      cluster::TellLauncher(cluster::LauncherWord::kOthersFailed);
    }
    std::vector<std::shared_ptr<AbortHandle>> concerned;
    {
      base::MutexLock lock(mutex_);
      if (news.kind == News::Kind::kFailed) {
        failed_.try_emplace(news.topic, news.why);
        const auto group = groups_.find(news.topic);
        if (group != groups_.end()) concerned.push_back(group->second.handle);
      } else if (news.kind == News::Kind::kDied) {
        died_.try_emplace(news.rank, news.why);
        for (const auto& [name, group] : groups_) {
          if (group.ranks.count(news.rank) != 0) {
            concerned.push_back(group.handle);
          }
        }
      }
    }
    for (const auto& handle : concerned) handle->Abort(news.why);
  }

 private:
  struct Group {
    std::set<int> ranks;
    std::shared_ptr<AbortHandle> handle;
  };

  mutable base::Mutex mutex_;
  std::map<std::string, Group> groups_ GUARDED_BY(mutex_);
  std::map<int, Status> died_ GUARDED_BY(mutex_);
  std::map<std::string, Status> failed_ GUARDED_BY(mutex_);
};

std::string ListText(const std::vector<int>& ranks) {
  std::string text = "[";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += base::Concat(i == 0 ? "" : ", ", ranks[i]);
  }
  return text + "]";
}

class JobWorld final : public World {
 public:
  JobWorld(cluster::Membership& membership, WorldOptions options)
      : membership_(membership), options_(std::move(options)) {}
  ~JobWorld() override {
    if (subscription_.has_value()) membership_.Unsubscribe(*subscription_);
  }

  Status Connect(Deadline deadline) {
    RETURN_IF_ERROR(CheckBackend());
    subscription_ = membership_.Subscribe(
        [watch = watch_](const News& news) { watch->Hear(news); });
    RETURN_IF_ERROR(FindPlaces(deadline));
    ASSIGN_OR_RETURN(all_, Meet("world", AllRanks(), deadline));
    return OkStatus();
  }

  Communicator& all() override { return *all_; }

  Result<std::unique_ptr<Communicator>> NewGroup(std::vector<int> ranks,
                                                 Deadline deadline) override {
    RETURN_IF_ERROR(CheckRanks(ranks));
    base::MutexLock lock(groups_mutex_);
    const std::string name = base::Concat("group ", ++num_groups_);
    RETURN_IF_ERROR(CheckAgreement(name, ranks, deadline));
    if (std::count(ranks.begin(), ranks.end(), membership_.rank()) == 0) {
      return std::unique_ptr<Communicator>();
    }
    return Meet(name, ranks, deadline);
  }

 private:
  Status CheckBackend() const {
    const std::set<std::string> known = {"auto", "shm", "tcp", "mpi", "nccl"};
    if (known.count(options_.backend) != 0) return OkStatus();
    return InvalidArgument(
        "no backend \"", options_.backend,
        "\" for collectives; there are auto, shm, tcp, mpi and nccl");
  }

  Status CheckRanks(const std::vector<int>& ranks) const {
    std::set<int> seen;
    for (int rank : ranks) {
      if (rank < 0 || rank >= membership_.size()) {
        return InvalidArgument("a group of ", ListText(ranks), ": rank ", rank,
                               " of a job of ", membership_.size());
      }
      if (!seen.insert(rank).second) {
        return InvalidArgument("a group of ", ListText(ranks), ": rank ", rank,
                               " twice");
      }
    }
    if (ranks.empty()) return InvalidArgument("a group of nobody");
    return OkStatus();
  }

  std::string Key(const std::string& rest) const {
    return base::Concat("comm/", rest);
  }

  // The first rank to come writes down what it was given; the others compare.
  Status CheckAgreement(const std::string& name, const std::vector<int>& ranks,
                        Deadline deadline) {
    const std::string mine = ListText(ranks);
    ASSIGN_OR_RETURN(const std::optional<std::string> first,
                     membership_.store().CompareAndSet(
                         Key(name + "/ranks"), std::nullopt, mine, deadline));
    if (first == mine) return OkStatus();
    Status differs = FailedPrecondition(
        name, ": rank ", membership_.rank(), " was given ranks ", mine,
        ", another rank ", first.value_or("none"));
    membership_.Report(name, differs);
    return differs;
  }

  // Where the ranks are, and whether each has a GPU of its own.
  Status FindPlaces(Deadline deadline) {
    const int size = membership_.size();
    host_of_.assign(size, 0);
    by_nccl_ = options_.backend == "nccl";
    if (size == 1) return OkStatus();
    std::string key = options_.host_key;
    if (key.empty()) {
      ASSIGN_OR_RETURN(key, KeyOfThisHost());
    }
    cluster::Store& store = membership_.store();
    std::vector<std::string> names;
    names.reserve(size);
    for (int i = 0; i < size; ++i) {
      names.push_back(Key(base::Concat("place/", i)));
    }
    const std::string mine = base::Concat(GpuText(), " ", key);
    RETURN_IF_ERROR(store.Set(names[membership_.rank()], mine, deadline));
    ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        base::WaitInterruptibly(
            deadline, Check("world", AllRanks()),
            [&](Deadline slice) { return store.Wait(names, slice); }));
    std::map<std::string, int> hosts;
    for (int i = 0; i < size; ++i) {
      const std::string host = all[i].substr(all[i].find(' ') + 1);
      host_of_[i] =
          hosts.try_emplace(host, static_cast<int>(hosts.size())).first->second;
    }
    if (options_.backend == "auto") by_nccl_ = HaveOwnGpus(all);
    return OkStatus();
  }

  // The GPU that "auto" may give to NCCL.
  std::string GpuText() const {
    if (options_.backend != "auto" || !options_.gpu.has_value() ||
        !CheckNccl(*options_.gpu).ok()) {
      return kNoGpu;
    }
    return std::to_string(*options_.gpu);
  }

  // `all` holds GPU and host of each rank. NCCL refuses ranks that share a GPU.
  static bool HaveOwnGpus(const std::vector<std::string>& all) {
    return std::set<std::string>(all.begin(), all.end()).size() == all.size() &&
           std::none_of(all.begin(), all.end(), [](const std::string& one) {
             return one.starts_with(kNoGpu);
           });
  }

  std::vector<int> AllRanks() const {
    std::vector<int> ranks(membership_.size());
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    return ranks;
  }

  // Whether what is being connected can still come to be.
  base::InterruptCheck Check(const std::string& name,
                             const std::vector<int>& ranks) const {
    return [watch = watch_, name, ranks,
            interrupt = options_.interrupt]() -> Status {
      if (interrupt) RETURN_IF_ERROR(interrupt());
      return watch->Doom(name, ranks);
    };
  }

  Result<std::unique_ptr<Communicator>> Meet(const std::string& name,
                                             const std::vector<int>& ranks,
                                             Deadline deadline) {
    CommunicatorOptions options{
        .name = name,
        .stall_report = options_.stall_report,
        .interrupt = Check(name, ranks),
        .reason_patience = kReasonPatience,
        .on_failure = [&membership = membership_, name](const Status& why) {
          if (why.code() == StatusCode::kUnavailable) {
            cluster::TellLauncher(cluster::LauncherWord::kOthersFailed);
          }
          membership.Report(name, why);
        }};
    RETURN_IF_ERROR(watch_->Doom(name, ranks));
    Result<std::unique_ptr<Communicator>> made =
        ConnectBackend(name, ranks, options, deadline);
    if (!made.ok()) {
      // Those that wait for this rank need not wait longer.
      membership_.Report(name, made.status());
      return made.status();
    }
    watch_->Add(name, ranks, (*made)->abort_handle());
    return made;
  }

  Result<std::unique_ptr<Communicator>> ConnectBackend(
      const std::string& name, const std::vector<int>& ranks,
      CommunicatorOptions options, Deadline deadline) {
    if (options_.backend == "mpi") {
      return ConnectMpi(ranks, std::move(options), deadline);
    }
    if (by_nccl_) {
      CommunicatorOptions of_companion = options;
      of_companion.on_failure = nullptr;  // it is told by the other one
      ASSIGN_OR_RETURN(std::unique_ptr<Communicator> companion,
                       ConnectOnCpu(name, ranks, of_companion, deadline));
      return ConnectNccl(std::move(companion), options_.gpu.value_or(0),
                         std::move(options), deadline);
    }
    return ConnectOnCpu(name, ranks, std::move(options), deadline);
  }

  Result<std::unique_ptr<Communicator>> ConnectOnCpu(
      const std::string& name, const std::vector<int>& ranks,
      CommunicatorOptions options, Deadline deadline) {
    if (ranks.size() == 1) {
      return std::move(MakeInProcess(1, options).front());
    }
    const int rank = membership_.rank();
    std::vector<int> hosts;
    hosts.reserve(ranks.size());
    for (int other : ranks) hosts.push_back(host_of_[other]);
    Meeting meeting{
        .store = &membership_.store(),
        .prefix = base::Concat(membership_.job_id(), "/comm/", name),
        .rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) -
                                 ranks.begin()),
        .size = static_cast<int>(ranks.size()),
        .host = membership_.host(),
        .trust = membership_.trust(),
        .carrier = options_.carrier,
        .processes_on_host = static_cast<int>(
            std::count(host_of_.begin(), host_of_.end(), host_of_[rank]))};
    const bool one_host =
        std::count(hosts.begin(), hosts.end(), hosts.front()) ==
        static_cast<ptrdiff_t>(hosts.size());
    if (options_.backend == "tcp") {
      return ConnectTcp(meeting, std::move(options), deadline);
    }
    if (one_host) {
      return ConnectSharedMemory(meeting, std::move(options), deadline);
    }
    if (options_.backend == "shm") {
      return FailedPrecondition(
          name,
          ": shared memory does not reach from host to host, and the "
          "ranks are on ",
          *std::max_element(hosts.begin(), hosts.end()) + 1, " hosts");
    }
    const bool one_each =
        std::set<int>(hosts.begin(), hosts.end()).size() == hosts.size();
    if (one_each) {
      return ConnectTcp(meeting, std::move(options), deadline);
    }
    return ConnectHierarchical(meeting, hosts, std::move(options), deadline);
  }

  cluster::Membership& membership_;
  const WorldOptions options_;
  const std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  std::optional<int> subscription_;
  std::vector<int> host_of_;  // by rank; hosts are counted from 0
  bool by_nccl_ = false;
  std::unique_ptr<Communicator> all_;

  base::Mutex groups_mutex_;
  int num_groups_ GUARDED_BY(groups_mutex_) = 0;
};

}  // namespace

Result<std::unique_ptr<World>> World::Connect(cluster::Membership& membership,
                                              WorldOptions options,
                                              base::Deadline deadline) {
  auto world = std::make_unique<JobWorld>(membership, std::move(options));
  RETURN_IF_ERROR(world->Connect(deadline));
  return world;
}

}  // namespace fleet::comm
