// SPDX-License-Identifier: Apache-2.0

// The jobs of one process whose parts do not hand a Job to each other, and how
// the process ends them. Python has one such object; a program in C++ that
// holds its Job itself needs none.
//
//   static base::NoDestructor<ProcessJobs> jobs(
//       ProcessJobsOptions{.end_with_process = true});
//   ASSIGN_OR_RETURN(Job * job, jobs->Begin({}));
//   jobs->AddTo(executor);
//   ...
//   RETURN_IF_ERROR(jobs->Prepare(program));
//   executor.Run(program, ...);

#ifndef FLEET_PROCESS_JOBS_H_
#define FLEET_PROCESS_JOBS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/exec/executor.h"
#include "fleet/job.h"
#include "fleet/program/program.h"

namespace fleet {

struct ProcessJobsOptions {
  // Of jobs that begin by themselves.
  base::InterruptCheck interrupt;
  // Whether the process ends its jobs when it exits, by whatever status. The
  // ProcessJobs then live as long as the process.
  bool end_with_process = false;
};

// Jobs stay where they are until the process ends, because graphs and reducers
// refer to their communicators. One that was left listens nowhere, so that the
// same processes can begin another one. A forked child has the jobs of its
// parent, and is in none of them. Thread-safe.
class ProcessJobs final {
 public:
  explicit ProcessJobs(ProcessJobsOptions options = {});
  ProcessJobs(const ProcessJobs&) = delete;
  ProcessJobs& operator=(const ProcessJobs&) = delete;

  // The job that collectives are over where they name none; null before it
  // begins and after it was left.
  Job* current() const EXCLUDES(mutex_);
  // The same for a call: begins as a job of one where nothing speaks of others.
  // FailedPrecondition where the environment does, and in a forked child.
  Result<Job*> InUse() EXCLUDES(mutex_);
  // Begins it. If it has begun with several ranks, nothing changes. Errors are
  // those of Job::Init.
  Result<Job*> Begin(JobOptions options) EXCLUDES(mutex_);
  // Ends it well: calls on its groups fail from now on, and another one may
  // begin.
  Status Leave() EXCLUDES(mutex_);
  // Drops a job that a fork copied, so that this process can begin its own.
  void Forget() EXCLUDES(mutex_);
  // A group of the job in use.
  Result<Group*> FindGroup(int64_t id) EXCLUDES(mutex_);

  // Another job beside the current one. Errors are those of Job::Init.
  Result<Job*> Meet(JobOptions options) EXCLUDES(mutex_);
  // Keeps a job. One with servers, which need not be connected, is from now on
  // the one that programs ask.
  Job& Add(std::unique_ptr<Job> job) EXCLUDES(mutex_);
  // The job with servers that was added last, or null.
  Job* served() const { return served_; }

  // Lets `executor`, which this outlives, run the operations of programs that
  // talk to others: over the ranks of the job in use, and at the servers of
  // served(), when the program is compiled.
  void AddTo(exec::Executor& executor);
  // Before `program` is run: connects to the servers that it asks, if nothing
  // has. Compiling does not.
  Status Prepare(const program::Program& program);

  // What became of the jobs at the end of the process.
  struct Outcome {
    // Not 0 where a job with servers could not end well.
    int exit_status = 0;
    // Whether a job failed. Threads may still run then.
    bool failed = false;
    // Whether another rank failed before this process did.
    bool others_failed = false;
  };
  // Ends every job: see Job::End.
  Outcome End(int exit_status) EXCLUDES(mutex_);

 private:
  class Operations;

  // Registers EndAtExit with the first job.
  void WatchEndOfProcess() EXCLUDES(mutex_);
  static void EndAtExit(int exit_status, void* jobs);
  Result<Job*> BeginAlone() EXCLUDES(mutex_);

  const ProcessJobsOptions options_;
  std::vector<std::pair<std::string, std::shared_ptr<exec::Extension>>>
      operations_;
  mutable base::Mutex mutex_;  // never held while somebody is waited for
  std::vector<std::unique_ptr<Job>> all_ GUARDED_BY(mutex_);
  Job* current_ GUARDED_BY(mutex_) = nullptr;
  // On purpose, before the process ends.
  std::vector<Job*> left_ GUARDED_BY(mutex_);
  bool watches_ GUARDED_BY(mutex_) = false;
  std::atomic<Job*> served_ = nullptr;
};

}  // namespace fleet

#endif  // FLEET_PROCESS_JOBS_H_
