// SPDX-License-Identifier: Apache-2.0

// The face of the library: a training program for one machine runs on many.
//
//   ASSIGN_OR_RETURN(auto job, fleet::Job::Init());
//   fleet::DistributedModel model(*job, Net());               // torch::nn
//   fleet::DistributedOptimizer optimizer(
//       *job, torch::optim::SGD(model->parameters(), 0.01));  // torch::optim
//   for (auto& batch : *loader) {
//     ... forward, loss.backward(), optimizer.step() ...
//   }
//   return job->Finish();
//
// DistributedModel and DistributedOptimizer are in distributed_model.h, a
// sampler for torch::data in distributed_sampler.h, collectives on tensors in
// collectives.h, programs in distributed_program.h.
//
// A worker of a job with servers says how it works with them, and has the same
// verbs:
//
//   ASSIGN_OR_RETURN(auto job,
//                    fleet::Job::Init({.servers = fleet::WorkerOptions{}}));
//   ... job->servers() asks them: parameter_server.h, remote_embedding.h ...
//   return job->Finish();
//
// Started by fleetrun, torchrun, mpirun or srun; alone, it is a job of one.

#ifndef FLEET_JOB_H_
#define FLEET_JOB_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/fork.h"
#include "fleet/base/future.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/role.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/world.h"
#include "fleet/plan/parameter_server.h"

namespace fleet {

namespace exec {
class Executor;
class Extension;
}  // namespace exec
namespace ps {
class PsClient;
}  // namespace ps

class Job;
class ParameterWorker;

// How a worker works with its servers.
struct WorkerOptions {
  plan::PsMode mode = plan::PsMode::kAsync;
  // See served::SynchronizerOptions.
  uint64_t geo_steps = 100;
  uint32_t max_merge = 20;
  uint32_t queue_size = 20;
  // How long an exchange waits for late servers and workers. Unset:
  // FLEET_TIMEOUT.
  std::optional<std::chrono::milliseconds> timeout;
  // Unset: that of the job.
  base::InterruptCheck interrupt;
};

struct JobOptions {
  // Who this process is. Unset: whatever launcher made the environment says.
  std::optional<cluster::Role> role;
  // Unset: the ranks of the job talk to each other, and there are no servers.
  std::optional<WorkerOptions> servers;
  // Asked while calls wait, so that ^C ends them.
  base::InterruptCheck interrupt;
};

// Some ranks of a job, as this rank sees them. The job makes and owns it.
// Thread-safe: calls of several threads wait for each other, but all ranks of
// the group must make them in the same order.
class Group final {
 public:
  using Call = std::function<Status(comm::Communicator&, base::Deadline)>;

  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Job& job() const { return job_; }
  // The number by which FindGroup and the attribute ring_id of operations know
  // the group. 0 is the group of all ranks.
  int id() const { return id_; }
  // Ranks of the job, in the order of the group.
  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // This process in the group; -1 outside of it.
  int rank() const { return rank_; }
  // The rank in the group of a rank of the job; -1 when it is not in it.
  int RankOf(int job_rank) const;

  // Null where this process is not in the group. Calls to it go through Run
  // and Start, or are made while no other thread makes any.
  comm::Communicator* communicator() const { return communicator_; }
  // How long its calls wait for late ranks: what NewGroup was given, else as
  // long as the job's.
  std::chrono::milliseconds timeout() const;
  // For a call that begins now.
  base::Deadline deadline() const { return base::Deadline::After(timeout()); }

  // Makes `call(communicator, deadline)`, and returns what it does, a Status
  // or a Result. FailedPrecondition when the job has ended, InvalidArgument
  // outside of the group.
  template <typename F>
  auto Run(const F& call)
      -> decltype(call(std::declval<comm::Communicator&>(), deadline())) {
    RETURN_IF_ERROR(CheckCall());
    std::lock_guard lock(one_call_);
    return call(*communicator_, deadline());
  }
  // The same on a thread of the group's, after what was started before. The
  // call may run when the group is gone, at the end of the process. No
  // gradients are recorded in it, and an exception of LibTorch becomes a
  // Status.
  Result<base::Future<>> Start(Call call);

  // No longer found by number, and refused by Check; what holds on to its
  // communicator still works.
  void Destroy() { destroyed_ = true; }
  // FailedPrecondition in a forked child, when the job has ended, and for a
  // group that was destroyed.
  Status Check() const;

 private:
  friend class Job;

  Group(Job& job, int id, std::vector<int> ranks);
  Status CheckRunning() const;
  Status CheckCall() const;

  Job& job_;
  const int id_;
  const std::vector<int> ranks_;
  int rank_ = -1;
  std::optional<std::chrono::milliseconds> timeout_;
  comm::Communicator* communicator_ = nullptr;
  std::unique_ptr<comm::Communicator> owned_;  // of all groups except 0
  // A communicator takes one call or Start at a time.
  std::mutex one_call_;
  std::atomic<bool> destroyed_ = false;
};

// One process as a worker of a job: who it is, how it reaches the others, and
// how its part ends. The others are the ranks of the job, over which there are
// collectives, or servers, which have the tables. Timeouts come from the
// environment (docs/configuration.md). Several may live in one process, each as
// one worker. A forked child is no worker: its calls fail, and its end says
// nothing to anybody. One thread at a time, except where it is said; a
// communicator's Abort may come from any.
class Job final {
 public:
  // Make and Connect.
  static Result<std::unique_ptr<Job>> Init(JobOptions options = {});
  // Reads the environment, and talks to nobody. InvalidArgument for an
  // environment that makes no sense and for a role that is no worker's.
  static Result<std::unique_ptr<Job>> Make(JobOptions options = {});
  // A worker that reaches its servers through `client`: they may be in this
  // process.
  static Result<std::unique_ptr<Job>> Init(std::unique_ptr<ps::PsClient> client,
                                           JobOptions options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // A process that ends without Finish has failed: the others are told, and a
  // launcher that this rank failed by itself, unless another one did before.
  // Servers count such a worker as lost.
  ~Job();

  const cluster::Role& role() const { return role_; }
  int rank() const { return role_.index; }
  // How many workers the job has.
  int size() const { return role_.worker_num; }
  bool has_servers() const { return options_.servers.has_value(); }
  const base::InterruptCheck& interrupt() const { return options_.interrupt; }
  // How long a call waits for late ranks, workers or servers: FLEET_TIMEOUT, or
  // what WorkerOptions say.
  std::chrono::milliseconds timeout() const { return timeout_; }
  // For a call that begins now.
  base::Deadline deadline() const { return base::Deadline::After(timeout_); }

  // Meets the other ranks, or waits for all servers and gives them the tables;
  // at most FLEET_START_TIMEOUT. DeadlineExceeded names those that never came,
  // Unavailable one that failed meanwhile; Unimplemented for a backend
  // (FLEET_COMM) that is not built in. What interrupt() answers ends it. Once
  // it is connected it stays so, and this returns at once; after Finish it is
  // FailedPrecondition. Thread-safe.
  Status Connect() EXCLUDES(connect_mutex_);
  bool connected() const { return connected_; }

  // All workers wait for each other. With servers they say the same `name`, and
  // in sync mode one that is here has no batch now: the others' steps go on
  // without it until they come, too, and then it has the dense parameters that
  // these made.
  Status Barrier(const std::string& name = "barrier");
  // A barrier to which each brings bytes; all get those of all, by worker.
  Result<std::vector<std::string>> AllGather(std::string_view bytes);
  // Lets `executor` run the operations of programs that talk to the others.
  // The job is connected, and outlives the executor. Several executors may
  // share it.
  void AddTo(exec::Executor& executor);
  // What AddTo gives to executors.
  std::shared_ptr<exec::Extension> operations();

  // ---- Between ranks. Of a job that is connected and has no servers.

  cluster::Membership& membership() { return *membership_; }
  comm::World& world() { return *world_; }
  // Over all ranks.
  comm::Communicator& communicator() { return world_->all(); }
  // All ranks.
  Group& group() { return *groups_[0]; }
  // InvalidArgument where there is none. Thread-safe; groups stay where they
  // are.
  Result<Group*> FindGroup(int64_t id) EXCLUDES(groups_mutex_);
  // All ranks of the job call it with the same list. Errors are those of
  // comm::World::NewGroup. Without a `timeout` its calls wait as long as those
  // of the job.
  Result<Group*> NewGroup(std::vector<int> ranks,
                          std::optional<std::chrono::milliseconds> timeout = {})
      EXCLUDES(groups_mutex_);

  // ---- With servers.

  // Tables that the programs of this worker ask for. Before Connect they are
  // remembered. Thread-safe.
  Status Serve(const std::vector<plan::ServedTable>& tables)
      EXCLUDES(connect_mutex_);
  std::vector<plan::ServedTable> tables() const EXCLUDES(connect_mutex_);
  // What this worker asks of them, after Connect. Thread-safe.
  ParameterWorker& servers();

  // ---- The end.

  // Leaves the job: this worker's part ended well. What was started is waited
  // for. Rank 0, where the others meet, waits for them to leave too, at most
  // timeout(). With servers its gradients are applied, and the last worker ends
  // them; it connects where it had not, because servers wait for every worker.
  // A second call returns what the first did. Thread-safe.
  Status Finish() EXCLUDES(connect_mutex_);
  bool finished() const { return finished_; }
  // Whether a collective failed, here or at another rank.
  bool broken() const EXCLUDES(groups_mutex_);
  // Fails what still holds on to a communicator of this job.
  void Abort(const Status& why) EXCLUDES(groups_mutex_);
  // The end of the process, which is what `exit_status` says: with 0 Finish,
  // else the others and the launcher are told that this worker failed. False
  // when it did, and where it could not finish: background threads may still
  // run then, and the process should end by _exit.
  bool End(int exit_status);
  // Whether this is a child that was forked from the worker.
  bool forked() const { return origin_.in_child(); }
  // FailedPrecondition in such a child.
  Status CheckOwn() const;
  // FailedPrecondition there, before Connect and after Finish.
  Status CheckConnected() const;

 private:
  explicit Job(JobOptions options);

  Status CheckNotFinished() const;
  Status ConnectLocked() REQUIRES(connect_mutex_);
  Status MeetRanks();
  Status ConnectToServers() REQUIRES(connect_mutex_);
  Status UseClient(std::unique_ptr<ps::PsClient> client)
      REQUIRES(connect_mutex_);
  Status FinishWithServers() EXCLUDES(connect_mutex_);
  bool EndWithServers(int exit_status);
  // The groups that this process is in.
  std::vector<Group*> OwnGroups() const EXCLUDES(groups_mutex_);

  JobOptions options_;
  cluster::Role role_;
  std::chrono::milliseconds timeout_{};
  const base::Origin origin_;
  std::atomic<bool> connected_ = false;
  std::atomic<bool> finished_ = false;
  mutable base::Mutex connect_mutex_;  // held while it connects

  std::unique_ptr<cluster::Membership> membership_;
  std::unique_ptr<comm::World> world_;
  mutable base::Mutex groups_mutex_;
  // The first stays from Connect on.
  std::vector<std::unique_ptr<Group>> groups_;
  // Keeps the buckets of programs, in memory of the communicators.
  std::shared_ptr<exec::Extension> collectives_;

  std::vector<plan::ServedTable> tables_ GUARDED_BY(connect_mutex_);
  std::unique_ptr<ParameterWorker> servers_;  // set once
};

}  // namespace fleet

#endif  // FLEET_JOB_H_
