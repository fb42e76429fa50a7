// SPDX-License-Identifier: Apache-2.0
#include "fleet/process_jobs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "fleet/base/check.h"
#include "fleet/base/descriptor.h"
#include "fleet/cluster/environment.h"
#include "fleet/exec/extension.h"
#include "fleet/sync/ps_ops.h"
#include "fleet/sync/static_collectives.h"

namespace fleet {
namespace {

using base::MutexLock;

// How long a rank that others brought down stays, unless its launcher ends.
constexpr std::chrono::milliseconds kStayAfterOthers{500};

void WaitForEndOfParent(std::chrono::milliseconds at_most) {
  const base::Descriptor parent(
      static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)));
  pollfd ended = {parent.get(), POLLIN, 0};
  (void)poll(&ended, 1, static_cast<int>(at_most.count()));
}

bool AsksServers(const program::Program& program) {
  const std::vector<std::string>& types = sync::ServedPrograms::Types();
  for (size_t i = 0; i < program.num_blocks(); ++i) {
    const program::Block& block = program.block(i);
    for (size_t j = 0; j < block.num_ops(); ++j) {
      const std::string& type = block.op(j).type;
      if (std::find(types.begin(), types.end(), type) != types.end()) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

// Gives each operation to the job of the moment. Executors live longer than
// jobs: a script leaves one and begins another.
class ProcessJobs::Operations final : public exec::Extension {
 public:
  Operations(ProcessJobs& jobs, bool served) : jobs_(jobs), served_(served) {}

  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override {
    ASSIGN_OR_RETURN(Job * job, served_ ? Served() : jobs_.InUse());
    return job->operations()->Prepare(op);
  }

 private:
  Result<Job*> Served() {
    Job* const job = jobs_.served();
    if (job == nullptr) {
      return FailedPrecondition(
          "the program asks servers, but this process is no worker of a job "
          "with servers: call fleet.init() and fleet.minimize() first");
    }
    RETURN_IF_ERROR(job->CheckConnected());
    return job;
  }

  ProcessJobs& jobs_;
  const bool served_;
};

ProcessJobs::ProcessJobs(ProcessJobsOptions options)
    : options_(std::move(options)) {
  const auto over_ranks = std::make_shared<Operations>(*this, false);
  const auto at_servers = std::make_shared<Operations>(*this, true);
  for (const std::string& type : sync::StaticCollectives::Types()) {
    operations_.emplace_back(type, over_ranks);
  }
  for (const std::string& type : sync::ServedPrograms::Types()) {
    operations_.emplace_back(type, at_servers);
  }
}

void ProcessJobs::AddTo(exec::Executor& executor) {
  for (const auto& [type, extension] : operations_) {
    executor.AddExtension(type, extension);
  }
}

Status ProcessJobs::Prepare(const program::Program& program) {
  Job* const job = served();
  // The cheap questions first: this comes before every run.
  if (job == nullptr || job->connected() || !AsksServers(program)) {
    return OkStatus();
  }
  return job->Connect();
}

// ---- the current job

Job* ProcessJobs::current() const {
  MutexLock lock(mutex_);
  return current_;
}

Result<Job*> ProcessJobs::InUse() {
  Job* const job = current();
  if (job == nullptr || (job->forked() && job->size() == 1)) {
    return BeginAlone();
  }
  RETURN_IF_ERROR(job->CheckOwn());
  return job;
}

// A collective came before the ranks have met: fine for one who is alone.
Result<Job*> ProcessJobs::BeginAlone() {
  ASSIGN_OR_RETURN(
      const cluster::Role role,
      cluster::RoleFromEnvironment(cluster::ReadEnvironment(), true));
  if (role.worker_num > 1) {
    return FailedPrecondition(
        "this process is rank ", role.index, " of ", role.worker_num,
        ", but has not met the others yet: call "
        "paddle.distributed.init_parallel_env() or fleet.init() first");
  }
  const cluster::Role alone = {.is_collective = true, .non_distributed = true};
  ASSIGN_OR_RETURN(Job * job,
                   Meet({.role = alone, .interrupt = options_.interrupt}));
  MutexLock lock(mutex_);
  current_ = job;
  return job;
}

Result<Job*> ProcessJobs::Begin(JobOptions options) {
  const Job* const before = current();
  if (before != nullptr && before->size() > 1) return InUse();
  ASSIGN_OR_RETURN(Job * job, Meet(std::move(options)));
  std::vector<Job*> left;
  {
    MutexLock lock(mutex_);
    current_ = job;
    left.swap(left_);
  }
  // All ranks are here, so none is in a call of a job before this one.
  for (Job* old : left) {
    if (old->forked()) continue;
    old->Abort(FailedPrecondition(
        "this process has left the job, and has begun another one"));
  }
  return job;
}

Status ProcessJobs::Leave() {
  Job* job = nullptr;
  {
    MutexLock lock(mutex_);
    std::swap(job, current_);
    if (job == nullptr) return OkStatus();
    left_.push_back(job);
  }
  return job->Finish();
}

void ProcessJobs::Forget() {
  MutexLock lock(mutex_);
  current_ = nullptr;
}

Result<Group*> ProcessJobs::FindGroup(int64_t id) {
  ASSIGN_OR_RETURN(Job * job, InUse());
  ASSIGN_OR_RETURN(Group * group, job->FindGroup(id));
  RETURN_IF_ERROR(group->Check());
  return group;
}

Result<Job*> ProcessJobs::Meet(JobOptions options) {
  // Before the job loads libraries that clean up at exit themselves.
  WatchEndOfProcess();
  ASSIGN_OR_RETURN(std::unique_ptr<Job> job, Job::Init(std::move(options)));
  return &Add(std::move(job));
}

Job& ProcessJobs::Add(std::unique_ptr<Job> job) {
  WatchEndOfProcess();
  MutexLock lock(mutex_);
  Job& added = *all_.emplace_back(std::move(job));
  if (added.has_servers()) served_ = &added;
  return added;
}

// ---- the end of the process

void ProcessJobs::WatchEndOfProcess() {
  MutexLock lock(mutex_);
  if (!options_.end_with_process || std::exchange(watches_, true)) return;
  // What atexit calls does not know how the process ends; this does.
  FLEET_CHECK_EQ(on_exit(EndAtExit, this), 0);
}

ProcessJobs::Outcome ProcessJobs::End(int exit_status) {
  std::vector<Job*> jobs;
  {
    MutexLock lock(mutex_);
    for (const std::unique_ptr<Job>& job : all_) jobs.push_back(job.get());
  }
  // A worker that could not say good-bye to its servers has failed, and so the
  // ranks that it met elsewhere are told so: these come after.
  std::stable_partition(jobs.begin(), jobs.end(),
                        [](const Job* job) { return job->has_servers(); });
  Outcome outcome{.exit_status = exit_status};
  for (Job* job : jobs) {
    outcome.others_failed |= job->broken();
    if (job->End(outcome.exit_status)) continue;
    outcome.failed = true;
    if (outcome.exit_status == 0) outcome.exit_status = EXIT_FAILURE;
  }
  return outcome;
}

void ProcessJobs::EndAtExit(int exit_status, void* jobs) {
  const Outcome outcome = static_cast<ProcessJobs*>(jobs)->End(exit_status);
  if (!outcome.failed) return;
  std::fflush(nullptr);
  // A launcher passes on the status of the rank that ended first. That is to be
  // the one that failed first: the others have been told now and will fail too,
  // so this process ends at once, unless it is itself one of those others. Then
  // it stays a while, until the launcher ends it or because there is none.
  if (outcome.others_failed) WaitForEndOfParent(kStayAfterOthers);
  // Threads of the jobs still run, and nothing waits for them.
  _exit(outcome.exit_status);
}

}  // namespace fleet
