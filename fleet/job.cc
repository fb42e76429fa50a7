// SPDX-License-Identifier: Apache-2.0
#include "fleet/job.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "fleet/base/check.h"
#include "fleet/base/heap.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/cluster/launcher_words.h"
#include "fleet/exec/executor.h"
#include "fleet/ops/aten_error.h"
#include "fleet/parameter_server.h"
#include "fleet/ps/client.h"
#include "fleet/ps/serve.h"
#include "fleet/sync/ps_ops.h"
#include "fleet/sync/static_collectives.h"

namespace fleet {
namespace {

using base::Deadline;
using base::MutexLock;
using cluster::Environment;
using comm::Communicator;

// The GPU of this rank: the first that the launcher chose for it. Where NCCL
// was asked for, also the one at its position on the host.
std::optional<int> GpuOf(const cluster::Role& role, const Environment& env,
                         std::string_view backend) {
  const std::string_view chosen =
      cluster::Find(env, "FLAGS_selected_gpus").value_or("");
  int gpu = 0;
  const auto end = chosen.data() + chosen.size();
  if (std::from_chars(chosen.data(), end, gpu).ec == std::errc()) return gpu;
  return backend == "nccl" ? role.local_rank : std::nullopt;
}

std::vector<int> AllRanks(int size) {
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(i);
  return ranks;
}

}  // namespace

// ---- groups

Group::Group(Job& job, int id, std::vector<int> ranks)
    : job_(job), id_(id), ranks_(std::move(ranks)) {
  rank_ = RankOf(job.rank());
}

int Group::RankOf(int job_rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), job_rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

std::chrono::milliseconds Group::timeout() const {
  return timeout_.value_or(job_.timeout());
}

Result<base::Future<>> Group::Start(Call call) {
  RETURN_IF_ERROR(CheckCall());
  auto later = [call = std::move(call),
                timeout = timeout()](Communicator& communicator) {
    try {
      at::NoGradGuard guard;
      return call(communicator, Deadline::After(timeout));
    } catch (const c10::Error& error) {
      return ops::FromException(error);
    }
  };
  std::lock_guard lock(one_call_);
  return communicator_->Start(std::move(later));
}

Status Group::CheckRunning() const {
  if (!job_.finished()) [[likely]]
    return OkStatus();
  return FailedPrecondition(
      "group ", id_, " is of a job that has ended: this process has left it");
}

Status Group::CheckCall() const {
  RETURN_IF_ERROR(CheckRunning());
  if (communicator_ != nullptr) [[likely]]
    return OkStatus();
  return InvalidArgument("rank ", job_.rank(), " is not in group ", id_);
}

Status Group::Check() const {
  RETURN_IF_ERROR(job_.CheckOwn());
  RETURN_IF_ERROR(CheckRunning());
  if (!destroyed_) [[likely]]
    return OkStatus();
  return FailedPrecondition("group ", id_, " was destroyed");
}

// ---- how a job begins

Result<std::unique_ptr<Job>> Job::Make(JobOptions options) {
  base::KeepFreedMemory();
  const Environment env = cluster::ReadEnvironment();
  std::unique_ptr<Job> job(new Job(std::move(options)));
  std::optional<WorkerOptions>& servers = job->options_.servers;
  if (job->options_.role.has_value()) {
    job->role_ = *job->options_.role;
  } else {
    ASSIGN_OR_RETURN(job->role_,
                     cluster::RoleFromEnvironment(env, !servers.has_value()));
  }
  if (!job->role_.is_worker()) {
    return InvalidArgument(
        servers.has_value() ? "a job is for workers, and this is "
                            : "a collective job has workers only, and this is ",
        cluster::ToString(job->role_));
  }
  using namespace std::chrono_literals;
  ASSIGN_OR_RETURN(job->timeout_,
                   cluster::ReadSeconds(env, "FLEET_TIMEOUT", 1800s));
  if (servers.has_value()) {
    if (!servers->interrupt) servers->interrupt = job->options_.interrupt;
    job->timeout_ = servers->timeout.value_or(job->timeout_);
    servers->timeout = job->timeout_;
  }
  return job;
}

Result<std::unique_ptr<Job>> Job::Init(JobOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Job> job, Make(std::move(options)));
  RETURN_IF_ERROR(job->Connect());
  return job;
}

Result<std::unique_ptr<Job>> Job::Init(std::unique_ptr<ps::PsClient> client,
                                       JobOptions options) {
  if (!options.servers.has_value()) options.servers.emplace();
  ASSIGN_OR_RETURN(std::unique_ptr<Job> job, Make(std::move(options)));
  {
    MutexLock lock(job->connect_mutex_);
    RETURN_IF_ERROR(job->UseClient(std::move(client)));
    job->connected_ = true;
  }
  return job;
}

Job::Job(JobOptions options) : options_(std::move(options)) {}

Job::~Job() {
  // Before the others hear that this rank is gone, and fail because of it.
  if (membership_ != nullptr && !finished_ && !forked() && size() > 1) {
    cluster::TellLauncher(cluster::LauncherWord::kFailed);
  }
}

Status Job::CheckOwn() const {
  if (!forked()) [[likely]]
    return OkStatus();
  if (has_servers()) {
    return FailedPrecondition(
        "this process was forked from worker ", rank(),
        " of a job and is none of its workers: servers belong to the parent");
  }
  return FailedPrecondition(
      "this process was forked from rank ", rank(),
      " of a job and is none of its ranks: collectives belong to the parent");
}

Status Job::CheckNotFinished() const {
  if (!finished_) return OkStatus();
  if (has_servers()) {
    return FailedPrecondition("worker ", rank(),
                              " has stopped, and can ask the servers no more");
  }
  return FailedPrecondition("rank ", rank(), " has left the job");
}

Status Job::CheckConnected() const {
  RETURN_IF_ERROR(CheckOwn());
  RETURN_IF_ERROR(CheckNotFinished());
  if (connected_) return OkStatus();
  if (has_servers()) {
    return FailedPrecondition("worker ", rank(),
                              " has not connected to its servers");
  }
  return FailedPrecondition("rank ", rank(), " has not met the others");
}

Status Job::Connect() {
  MutexLock lock(connect_mutex_);
  return ConnectLocked();
}

Status Job::ConnectLocked() {
  RETURN_IF_ERROR(CheckOwn());
  RETURN_IF_ERROR(CheckNotFinished());
  if (connected_) return OkStatus();
  RETURN_IF_ERROR(has_servers() ? ConnectToServers() : MeetRanks());
  connected_ = true;
  return OkStatus();
}

Status Job::MeetRanks() {
  using namespace std::chrono_literals;
  const Environment env = cluster::ReadEnvironment();
  comm::WorldOptions world;
  ASSIGN_OR_RETURN(world.stall_report,
                   cluster::ReadSeconds(env, "FLEET_STALL_REPORT", 60s));
  world.backend = cluster::Find(env, "FLEET_COMM").value_or("auto");
  ASSIGN_OR_RETURN(world.carrier,
                   channel::ParseCarrier(
                       cluster::Find(env, "FLEET_CHANNEL").value_or("tcp")));
  world.gpu = GpuOf(role_, env, world.backend);
  world.interrupt = options_.interrupt;
  ASSIGN_OR_RETURN(cluster::JoinSettings join, cluster::ReadJoinSettings(env));
  join.options.interrupt = options_.interrupt;
  RETURN_IF_ERROR(cluster::AddLaunchersSecret(role_, env, join.options));

  const Deadline start = Deadline::After(join.start_timeout);
  ASSIGN_OR_RETURN(membership_, cluster::Membership::Join(
                                    role_, std::move(join.options), start));
  ASSIGN_OR_RETURN(world_,
                   comm::World::Connect(*membership_, std::move(world), start));

  std::unique_ptr<Group> all(new Group(*this, 0, AllRanks(size())));
  all->communicator_ = &world_->all();
  {
    MutexLock lock(groups_mutex_);
    groups_.push_back(std::move(all));
  }
  collectives_ = std::make_shared<sync::StaticCollectives>(
      [this](int64_t ring) -> Result<sync::CollectiveGroup> {
        ASSIGN_OR_RETURN(Group * group, FindGroup(ring));
        RETURN_IF_ERROR(group->Check());
        RETURN_IF_ERROR(group->CheckCall());
        return sync::CollectiveGroup{
            .communicator = group->communicator(),
            .ranks_on_host = role_.local_size.value_or(0),
            .timeout = group->timeout(),
            .interrupt = options_.interrupt};
      });
  return OkStatus();
}

Status Job::ConnectToServers() {
  ASSIGN_OR_RETURN(ps::ConnectOptions connect,
                   ps::ReadConnectOptions(role_, cluster::ReadEnvironment()));
  connect.client.interrupt = options_.servers->interrupt;
  ASSIGN_OR_RETURN(
      std::unique_ptr<ps::PsClient> client,
      ps::PsClient::Connect(connect.servers, connect.client,
                            Deadline::After(connect.start_timeout)));
  return UseClient(std::move(client));
}

Status Job::UseClient(std::unique_ptr<ps::PsClient> client) {
  ASSIGN_OR_RETURN(std::unique_ptr<ParameterWorker> worker,
                   ParameterWorker::Make(std::move(client), role_,
                                         *options_.servers, timeout_));
  RETURN_IF_ERROR(worker->Serve(tables_));
  servers_ = std::move(worker);
  return OkStatus();
}

// ---- together

Status Job::Barrier(const std::string& name) {
  if (has_servers()) return servers_->Barrier(name);
  return group().Run([](Communicator& communicator, Deadline deadline) {
    return communicator.Barrier(deadline);
  });
}

Result<std::vector<std::string>> Job::AllGather(std::string_view bytes) {
  if (has_servers()) return servers_->AllGather("workers", bytes);
  ASSIGN_OR_RETURN(const auto parts, group().Run([&](Communicator& communicator,
                                                     Deadline deadline) {
    return communicator.AllGatherBytes(
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
        deadline);
  }));
  std::vector<std::string> all;
  for (const std::vector<std::byte>& part : parts) {
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return all;
}

std::shared_ptr<exec::Extension> Job::operations() {
  if (has_servers()) return servers_->programs();
  return collectives_;
}

void Job::AddTo(exec::Executor& executor) {
  const std::vector<std::string>& types =
      has_servers() ? sync::ServedPrograms::Types()
                    : sync::StaticCollectives::Types();
  for (const std::string& type : types) {
    executor.AddExtension(type, operations());
  }
}

Result<Group*> Job::FindGroup(int64_t id) {
  MutexLock lock(groups_mutex_);
  if (id >= 0 && id < static_cast<int64_t>(groups_.size())) {
    return groups_[static_cast<size_t>(id)].get();
  }
  return InvalidArgument("there is no group ", id,
                         "; new_group makes one, and 0 is the group of all "
                         "ranks");
}

Result<Group*> Job::NewGroup(std::vector<int> ranks,
                             std::optional<std::chrono::milliseconds> timeout) {
  // Not under the lock: the ranks of the group meet meanwhile.
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                   world_->NewGroup(ranks, deadline()));
  MutexLock lock(groups_mutex_);
  std::unique_ptr<Group> group(
      new Group(*this, static_cast<int>(groups_.size()), std::move(ranks)));
  group->timeout_ = timeout;
  group->owned_ = std::move(communicator);
  group->communicator_ = group->owned_.get();
  return groups_.emplace_back(std::move(group)).get();
}

Status Job::Serve(const std::vector<plan::ServedTable>& tables) {
  MutexLock lock(connect_mutex_);
  if (servers_ != nullptr) RETURN_IF_ERROR(servers_->Serve(tables));
  tables_.insert(tables_.end(), tables.begin(), tables.end());
  return OkStatus();
}

std::vector<plan::ServedTable> Job::tables() const {
  MutexLock lock(connect_mutex_);
  return tables_;
}

ParameterWorker& Job::servers() {
  FLEET_CHECK(servers_ != nullptr);
  return *servers_;
}

// ---- how a job ends

std::vector<Group*> Job::OwnGroups() const {
  MutexLock lock(groups_mutex_);
  std::vector<Group*> groups;
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group->communicator_ != nullptr) groups.push_back(group.get());
  }
  return groups;
}

Status Job::Finish() {
  if (has_servers()) return FinishWithServers();
  if (forked() || finished_.exchange(true)) return OkStatus();
  // What was started and nobody waited for is still part of the program.
  for (Group* group : OwnGroups()) {
    // Another thread inside a call is not waited for.
    std::unique_lock lock(group->one_call_, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    base::Future<> idle =
        group->communicator_->Start([](Communicator&) { return Status(); });
    lock.unlock();
    static_cast<void>(idle.Wait(group->deadline()));
  }
  if (membership_ != nullptr) membership_->Leave(deadline());
  return OkStatus();
}

Status Job::FinishWithServers() {
  MutexLock lock(connect_mutex_);
  if (finished_) return OkStatus();
  RETURN_IF_ERROR(ConnectLocked());
  RETURN_IF_ERROR(servers_->Finish());
  finished_ = true;
  return OkStatus();
}

bool Job::broken() const {
  if (forked()) return false;
  const std::vector<Group*> groups = OwnGroups();
  return std::any_of(groups.begin(), groups.end(), [](const Group* group) {
    return !group->communicator_->status().ok();
  });
}

void Job::Abort(const Status& why) {
  for (Group* group : OwnGroups()) group->communicator_->Abort(why);
}

bool Job::End(int exit_status) {
  if (forked()) return true;
  if (has_servers()) return EndWithServers(exit_status);
  if (exit_status == 0) static_cast<void>(Finish());
  if (connected_ && !finished_ && size() > 1) {
    using cluster::LauncherWord;
    cluster::TellLauncher(broken() ? LauncherWord::kOthersFailed
                                   : LauncherWord::kFailed);
    Abort(
        Unavailable("rank ", rank(), " ended with exit status ", exit_status));
    return false;
  }
  // Threads of the communicators end now, while what they use is still there.
  MutexLock lock(groups_mutex_);
  groups_.clear();
  world_.reset();
  membership_.reset();
  return true;
}

bool Job::EndWithServers(int exit_status) {
  if (!connected_ || finished_) return true;
  if (exit_status != 0) return false;
  const Status status = Finish();
  if (!status.ok()) {
    std::fprintf(stderr, "worker %d could not end well: %s\n", rank(),
                 std::string(status.message()).c_str());
  }
  return status.ok();
}

}  // namespace fleet
