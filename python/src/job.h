// SPDX-License-Identifier: Apache-2.0

// The jobs that this process is a worker of. There is one default job, behind
// paddle.distributed; it begins with init_parallel, or by itself as a job of
// one where nothing speaks of others. The object lives until the process ends,
// because graphs and reducers refer to its communicators, but a job that was
// left listens nowhere, so that the same processes can begin another one.
//
// A process that ends with status 0 finishes its jobs, so that the others know
// that its part ended well; with any other status, by a signal or by _exit it
// does not. A forked child is no worker: collectives raise there, and its end
// says nothing to anybody.
//
// All functions need the GIL, and give it away while they wait.

#ifndef FLEET_PYTHON_SRC_JOB_H_
#define FLEET_PYTHON_SRC_JOB_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "fleet/base/fork.h"
#include "fleet/base/interrupt.h"
#include "fleet/cluster/role.h"
#include "fleet/comm/communicator.h"
#include "fleet/fleet.h"

namespace fleet::python {

class Job;

// Some ranks of a job, seen from this one.
struct Group {
  Job* job = nullptr;
  int id = 0;              // 0 is the group of all
  std::vector<int> ranks;  // of the job, in the order of the group
  int rank = -1;           // of this process in the group, -1 outside
  bool destroyed = false;  // by the user; what holds on to it still works
  // Null when this process is not in the group.
  comm::Communicator* communicator = nullptr;
  std::unique_ptr<comm::Communicator> owned;  // of all groups but 0
  std::mutex one_call;  // a communicator takes one call or Start at a time
  // How long its calls wait for late ranks, if not as long as the job's.
  std::optional<std::chrono::milliseconds> own_timeout;

  // The rank in the group of a rank of the job; -1 when it is not in it.
  int RankOf(int job_rank) const;
  std::chrono::milliseconds timeout() const;
  // For a call that begins now.
  base::Deadline deadline() const;
};

class Job {
 public:
  // Meets the others. Throws.
  static Job& Connect(cluster::Role role);

  Fleet& fleet() { return *fleet_; }
  int size() const { return fleet_->size(); }
  base::Deadline deadline() const { return fleet_->deadline(); }
  const base::InterruptCheck& interrupt() const { return interrupt_; }

  // Throws for one that does not exist. Groups stay where they are.
  Group& group(int id);
  // All ranks of the job call it with the same list. Throws.
  Group& NewGroup(std::vector<int> ranks,
                  std::optional<std::chrono::milliseconds> timeout);

  // Whether this is a child that was forked from a worker.
  bool forked() const { return origin_.in_child(); }

  // This rank's part ended well; calls fail from now on. Idempotent.
  void Finish();
  bool finished() const { return finished_; }
  // Whether a collective failed, here or at another rank.
  bool broken() const;
  // Fails what still holds on to a communicator.
  void Abort(const Status& why);
  // The end of the process, which is what `exit_status` says. False when this
  // rank failed; the others have been told then.
  bool End(int exit_status);

 private:
  std::unique_ptr<Fleet> fleet_;
  base::InterruptCheck interrupt_;
  std::vector<std::unique_ptr<Group>> groups_;
  const base::Origin origin_;
  std::atomic<bool> finished_ = false;
};

// The default job if it has begun, else null.
Job* CurrentJob();
// Begins it; if it has begun with several ranks, nothing changes. Throws.
Job& BeginJob(cluster::Role role);
// Ends it well: calls on its groups fail from now on. Another one may begin.
void LeaveJob();
// Drops a job that a fork copied, so that this process can begin its own.
void ForgetJob();

// The group that a Python argument means: None or 0 for all ranks of the
// default job, which begins if it has to; a number; or a Group. Throws, also
// for a group of a job that has ended.
Group& GroupOf(nanobind::handle group);

// Throws for a group of a job that has ended.
void RequireRunning(const Group& group);

// Asks, on Python's main thread, whether a signal came whose handler raised;
// then the error is set in this thread, and ThrowIfError lets it through. Takes
// the GIL.
base::InterruptCheck MakeSignalCheck();

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_JOB_H_
