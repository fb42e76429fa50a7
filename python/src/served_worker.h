// SPDX-License-Identifier: Apache-2.0

// The worker of this process in a job with servers, as Python holds it: made
// when a script says what it is, connected when something first needs the
// servers.
//
// A process that ends with status 0 flushes and says good-bye; with any other
// status, by a signal or by _exit it does not, and the servers count it as
// lost. A forked child is no worker, and its end says nothing to anybody.

#ifndef FLEET_PYTHON_SRC_SERVED_WORKER_H_
#define FLEET_PYTHON_SRC_SERVED_WORKER_H_

#include <memory>
#include <mutex>
#include <vector>

#include "fleet/base/fork.h"
#include "fleet/base/status.h"
#include "fleet/cluster/role.h"
#include "fleet/exec/executor.h"
#include "fleet/parameter_server.h"

namespace fleet::python {

class ServedWorker final {
 public:
  ServedWorker(cluster::Role role, WorkerOptions options);

  // Tables that this worker's programs ask for. Needs no servers before there
  // is a connection.
  Status Serve(const std::vector<plan::ServedTable>& tables);

  // The connection, made if there is none yet; then the tables are there.
  // Blocks; without the GIL.
  Result<ParameterWorker*> Connect();
  bool connected() const;

  // Says good-bye, also where there was no connection before: the servers
  // wait for it. Without the GIL.
  Status Stop();
  bool stopped() const;

  // The end of the process, which is what `exit_status` says. False when this
  // worker is lost to the servers, by that or because it could not say
  // good-bye.
  bool End(int exit_status);

  const cluster::Role& role() const { return role_; }
  std::vector<plan::ServedTable> tables() const;

 private:
  Result<ParameterWorker*> ConnectLocked();

  const cluster::Role role_;
  const WorkerOptions options_;
  const base::Origin origin_;

  mutable std::mutex mutex_;  // held while a connection is made
  std::vector<plan::ServedTable> tables_;
  std::unique_ptr<ParameterWorker> worker_;
  bool stopped_ = false;
};

// Operations of programs that need servers run over the worker that was made
// last, which their first run connects.
void AddServedOperations(exec::Executor& executor);

// The worker that was made last; null before there is one.
std::shared_ptr<ServedWorker> CurrentServedWorker();
// Takes the place of the one so far, which must have stopped or never have
// connected.
void UseServedWorker(std::shared_ptr<ServedWorker> worker);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_SERVED_WORKER_H_
