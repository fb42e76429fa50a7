// SPDX-License-Identifier: Apache-2.0
#include "served_worker.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/no_destructor.h"
#include "fleet/sync/ps_ops.h"

namespace fleet::python {
namespace {

// Never destroyed: threads of a worker may outlast what runs at exit.
struct Workers {
  std::mutex mutex;
  std::shared_ptr<ServedWorker> current;
  std::vector<std::shared_ptr<ServedWorker>> all;
};

Workers& TheWorkers() {
  static base::NoDestructor<Workers> workers;
  return *workers;
}

// Python's atexit does not know how the process ends; this does. By then the
// interpreter is gone.
void EndWorkers(int exit_status, void*) {
  bool ended_well = true;
  for (const auto& worker : TheWorkers().all) {
    ended_well &= worker->End(exit_status);
  }
  if (ended_well) return;
  std::fflush(nullptr);
  // Threads of the worker still run, and nothing waits for them.
  _exit(exit_status != 0 ? exit_status : EXIT_FAILURE);
}

void WatchEndOfProcess() {
  static const int failed = on_exit(EndWorkers, nullptr);
  FLEET_CHECK(failed == 0);
}

// Connects when a program is compiled, which is when it is first run.
class ServedOperations final : public exec::Extension {
 public:
  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override {
    const std::shared_ptr<ServedWorker> worker = CurrentServedWorker();
    if (worker == nullptr) {
      return FailedPrecondition(
          "the program asks servers, but this process is no worker of a job "
          "with servers: call fleet.init() and fleet.minimize() first");
    }
    ASSIGN_OR_RETURN(ParameterWorker * connected, worker->Connect());
    return connected->programs()->Prepare(op);
  }
};

}  // namespace

ServedWorker::ServedWorker(cluster::Role role, WorkerOptions options)
    : role_(std::move(role)), options_(std::move(options)) {}

Status ServedWorker::Serve(const std::vector<plan::ServedTable>& tables) {
  std::lock_guard lock(mutex_);
  if (worker_ != nullptr) RETURN_IF_ERROR(worker_->Serve(tables));
  tables_.insert(tables_.end(), tables.begin(), tables.end());
  return OkStatus();
}

Result<ParameterWorker*> ServedWorker::Connect() {
  std::lock_guard lock(mutex_);
  return ConnectLocked();
}

Result<ParameterWorker*> ServedWorker::ConnectLocked() {
  if (origin_.in_child()) {
    return FailedPrecondition(
        "this process was forked from worker ", role_.index,
        " of a job and is none of its workers: servers belong to the parent");
  }
  if (stopped_) {
    return FailedPrecondition("worker ", role_.index,
                              " has stopped, and can ask the servers no more");
  }
  if (worker_ == nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<ParameterWorker> worker,
                     ParameterWorker::Connect(role_, options_));
    RETURN_IF_ERROR(worker->Serve(tables_));
    worker_ = std::move(worker);
  }
  return worker_.get();
}

bool ServedWorker::connected() const {
  std::lock_guard lock(mutex_);
  return worker_ != nullptr;
}

Status ServedWorker::Stop() {
  std::lock_guard lock(mutex_);
  if (stopped_) return OkStatus();
  ASSIGN_OR_RETURN(ParameterWorker * worker, ConnectLocked());
  RETURN_IF_ERROR(worker->Stop());
  stopped_ = true;
  return OkStatus();
}

bool ServedWorker::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

bool ServedWorker::End(int exit_status) {
  if (origin_.in_child() || !connected() || stopped()) return true;
  if (exit_status != 0) return false;
  const Status status = Stop();
  if (!status.ok()) {
    std::fprintf(stderr, "worker %d could not end well: %s\n", role_.index,
                 std::string(status.message()).c_str());
  }
  return status.ok();
}

std::vector<plan::ServedTable> ServedWorker::tables() const {
  std::lock_guard lock(mutex_);
  return tables_;
}

void AddServedOperations(exec::Executor& executor) {
  static base::NoDestructor<std::shared_ptr<ServedOperations>> operations(
      std::make_shared<ServedOperations>());
  for (const std::string& type : sync::ServedPrograms::Types()) {
    executor.AddExtension(type, *operations);
  }
}

std::shared_ptr<ServedWorker> CurrentServedWorker() {
  std::lock_guard lock(TheWorkers().mutex);
  return TheWorkers().current;
}

void UseServedWorker(std::shared_ptr<ServedWorker> worker) {
  WatchEndOfProcess();
  std::lock_guard lock(TheWorkers().mutex);
  TheWorkers().all.push_back(worker);
  TheWorkers().current = std::move(worker);
}

}  // namespace fleet::python
