// SPDX-License-Identifier: Apache-2.0

// Training with parameter servers: what a server process runs, and what a
// worker has in its place of parameters.
//
//   // a server
//   ASSIGN_OR_RETURN(auto server, fleet::ParameterServer::Start(role, {}));
//   return server->Run();                      // until the last worker stopped
//
//   // a worker, with a program
//   ASSIGN_OR_RETURN(plan::ParameterServerPlan plan,
//                    plan::ServeParameters(main, startup, strategy, role));
//   ASSIGN_OR_RETURN(auto job,
//                    fleet::Job::Init({.servers = fleet::WorkerOptions{}}));
//   RETURN_IF_ERROR(job->Serve(plan.tables));
//   job->AddTo(executor);
//   executor.Run(startup, scope, {}, {});
//   executor.Run(main, scope, feeds, {"loss"});
//   RETURN_IF_ERROR(job->servers().Save("saved"));
//   RETURN_IF_ERROR(job->Finish());
//
// A worker with torch::nn modules: remote_embedding.h.

#ifndef FLEET_PARAMETER_SERVER_H_
#define FLEET_PARAMETER_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/cluster/role.h"
#include "fleet/exec/scope.h"
#include "fleet/job.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/ps/client.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/serve.h"
#include "fleet/served/synchronizer.h"
#include "fleet/sync/ps_ops.h"

namespace fleet {

struct ServerOptions {
  // A folder that a worker saved to: tables begin with what it holds. One that
  // a process without servers saved its variables to will do, too.
  std::string load_folder;
  // The parameters that do; empty: all.
  std::vector<std::string> load_only;
  // What survives of updates that were acknowledged when this server is killed
  // (docs/howto/durability.md), and the folder in which it logs them, in a
  // folder of its own. FLEET_PS_DURABILITY and FLEET_PS_LOG_DIR, where they are
  // set, go before; a durability that differs is a warning. Under fleetrun the
  // folder is set. Unset: none, or log under fleetrun --max_restarts.
  std::optional<ps::Durability> durability;
  std::string log_folder;
  // Asked while Run waits, so that ^C ends it.
  base::InterruptCheck interrupt;
};

// A server of the job. The environment says the rest (docs/configuration.md).
class ParameterServer final {
 public:
  // Takes its endpoint of `role` and serves from then on. InvalidArgument for a
  // role that is no server's, for a variable of the environment that makes no
  // sense, and where a log has no folder; an endpoint that is taken is told by
  // the system's error.
  static Result<std::unique_ptr<ParameterServer>> Start(
      const cluster::Role& role, const ServerOptions& options);

  // Until every worker has stopped, however long that takes; the log names
  // workers that do not come. Unavailable names workers that were lost.
  Status Run() { return serving_->Run(); }

  ps::PsServer& server() { return serving_->server(); }
  const channel::Address& address() const { return serving_->address(); }

 private:
  explicit ParameterServer(std::unique_ptr<ps::Serving> serving)
      : serving_(std::move(serving)) {}

  std::unique_ptr<ps::Serving> serving_;
};

// What a worker of a job does with the tables on the servers: Job::servers().
// How the worker connects and ends, and which tables there are, is the job's.
// Calls that ask servers wait Job::timeout() at most: DeadlineExceeded and
// Unavailable name the server or the workers that are missing. NotFound for a
// parameter that no table is of. Thread-safe.
class ParameterWorker final {
 public:
  // Ends the background work.
  ~ParameterWorker();

  // Until this worker's gradients are applied.
  Status Flush();

  // One cut through the job: flushes, then every server writes its part of
  // every table, while no worker changes any. Of every other worker all steps
  // up to some are in it, in all tables and on all servers; those on their way
  // wait. Folders are the servers', which share them; what a save is, and when
  // it counts, is in PsClient::Save. Called by one worker, while the others
  // wait (Job::Barrier) if all of their gradients shall be in it.
  // DeadlineExceeded names a worker that is in the middle of a step and does
  // not end it. Where a server is started again meanwhile it is made anew, with
  // another cut.
  struct SaveOptions {
    table::SaveKind kind = table::SaveKind::kBase;
    bool text = false;  // sparse tables also as text
    bool remove_older = true;
  };
  Status Save(const std::string& folder, const SaveOptions& options);
  Status Save(const std::string& folder) { return Save(folder, SaveOptions()); }
  // A cut over several calls: what is saved and pulled from BeginCut, which
  // flushes, to EndCut is one state of all tables. The other workers' updates
  // wait meanwhile, and those of this worker. FailedPrecondition for a second
  // one. What is saved is written, and counts, when EndCut returns, which says
  // whether: the others go on before that.
  Status BeginCut();
  Status EndCut();
  // Values and rows of all tables become those of the folder, in a cut.
  Status Load(const std::string& folder);
  // See ps::PsClient::SetRate.
  Status SetRate(const std::string& name, double rate);
  // A day is over: see table::SparseTable::Shrink. All sparse tables, or one.
  // Returns how many rows went.
  Result<uint64_t> Shrink(uint32_t max_unseen_days);
  Result<uint64_t> Shrink(const std::string& parameter,
                          uint32_t max_unseen_days);

  // Values of a dense parameter on the servers, as a tensor of its shape;
  // rows of a sparse one.
  Result<at::Tensor> PullDense(const std::string& parameter);
  Result<at::Tensor> PullRows(const std::string& parameter,
                              const std::vector<int64_t>& ids);
  Status AssignDense(const std::string& parameter, const at::Tensor& values);

  // Trainer threads; see Synchronizer::BeginThreads.
  void BeginThreads(int count);
  void EndThread();
  // See Synchronizer::EndPass. Then the values of dense parameters on the
  // servers go into `scope`, where it has them.
  Status EndPass(exec::Scope& scope);

  served::SynchronizerStats stats() const;
  // What a table holds on all servers: rows, memory, gradients with NaN or
  // infinity.
  Result<table::SparseTableStats> TableStats(const std::string& parameter);

  const cluster::Role& role() const { return role_; }
  const WorkerOptions& options() const { return options_; }
  // In the order in which the job got them.
  std::vector<plan::ServedTable> tables() const;
  Result<plan::ServedTable> FindTable(const std::string& parameter) const;
  // Behind those of all tables so far.
  table::TableId next_table_id() const;
  ps::PsClient& client() { return *client_; }
  served::Synchronizer& synchronizer() { return *synchronizer_; }
  sync::DenseHomes& homes() { return homes_; }
  // What runs the operations that plan::ServeParameters writes, as
  // Job::AddTo gives it to executors, one per thread.
  const std::shared_ptr<sync::ServedPrograms>& programs() { return programs_; }
  base::Deadline deadline() const { return base::Deadline::After(timeout_); }

 private:
  friend class Job;

  static Result<std::unique_ptr<ParameterWorker>> Make(
      std::unique_ptr<ps::PsClient> client, const cluster::Role& role,
      const WorkerOptions& options, std::chrono::milliseconds timeout);
  ParameterWorker(std::unique_ptr<ps::PsClient> client,
                  const cluster::Role& role, const WorkerOptions& options,
                  std::chrono::milliseconds timeout)
      : role_(role),
        options_(options),
        timeout_(timeout),
        client_(std::move(client)) {}

  // Makes the tables on the servers, or finds them there. Of several calls
  // each adds its tables; one that is known is left as it is.
  // FailedPrecondition when a server has another table of that id.
  Status Serve(const std::vector<plan::ServedTable>& tables);
  // All workers wait for each other. In sync mode one that is here has no
  // batch now: the others' steps go on without it until they come, too, and
  // then it has the dense parameters that these made.
  Status Barrier(const std::string& name);
  // A barrier to which each brings bytes; all get those of all, by worker.
  Result<std::vector<std::string>> AllGather(const std::string& name,
                                             std::string_view bytes);
  // Flush, and good-bye to the servers; the last worker's ends them. A second
  // call returns what the first did; nothing else may follow.
  Status Finish();

  // Waits until a save that has begun inside of a cut is written.
  Status FinishSave() REQUIRES(cut_mutex_);
  // The end of this worker's steps, before it waits for the others.
  Status EndSteps();

  const cluster::Role role_;
  const WorkerOptions options_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<ps::PsClient> client_;
  sync::DenseHomes homes_;
  std::unique_ptr<served::Synchronizer> synchronizer_;
  std::shared_ptr<sync::ServedPrograms> programs_;

  mutable base::Mutex mutex_;
  std::vector<plan::ServedTable> tables_ GUARDED_BY(mutex_);
  base::Mutex finish_mutex_;  // held while it says good-bye
  std::optional<Status> finished_ GUARDED_BY(finish_mutex_);
  base::Mutex cut_mutex_;  // held while a cut begins
  std::optional<uint64_t> cut_ GUARDED_BY(cut_mutex_);
  // The save that was begun inside of that cut.
  std::optional<ps::PsClient::BegunSave> begun_save_ GUARDED_BY(cut_mutex_);
};

}  // namespace fleet

#endif  // FLEET_PARAMETER_SERVER_H_
