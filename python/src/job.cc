// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/no_destructor.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/launcher_words.h"

#include "status.h"

namespace fleet::python {
namespace {

namespace nb = nanobind;

// Never destroyed: threads of a job may outlast what runs at exit.
struct Jobs {
  std::vector<std::unique_ptr<Job>> all;
  Job* current = nullptr;
  std::vector<Job*> left;  // on purpose, before the process ends
};

Jobs& TheJobs() {
  static base::NoDestructor<Jobs> jobs;
  return *jobs;
}

// How long a rank that others brought down stays, unless its launcher ends.
constexpr std::chrono::milliseconds kStayAfterOthers{500};

void WaitForEndOfParent(std::chrono::milliseconds at_most) {
  const base::Descriptor parent(
      static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)));
  pollfd ended = {parent.get(), POLLIN, 0};
  (void)poll(&ended, 1, static_cast<int>(at_most.count()));
}

// Python's atexit does not know how the process ends; this does. By then the
// interpreter is gone.
void EndJobs(int exit_status, void*) {
  bool failed = false;
  bool was_broken = false;
  for (auto& job : TheJobs().all) {
    was_broken |= job->broken();
    failed |= !job->End(exit_status);
  }
  if (!failed) return;
  std::fflush(nullptr);
  // A launcher passes on the status of the rank that ended first. That is to be
  // the one that failed first: the others have been told now and will fail too,
  // so this process ends at once, unless it is itself one of those others. Then
  // it stays a while, until the launcher ends it or because there is none.
  if (was_broken) WaitForEndOfParent(kStayAfterOthers);
  _exit(exit_status);
}

void WatchEndOfProcess() {
  static const int failed = on_exit(EndJobs, nullptr);
  FLEET_CHECK(failed == 0);
}

// A collective came before init_parallel_env: fine for one who is alone.
Job& BeginAlone() {
  const cluster::Role role = ValueOrThrow(
      cluster::RoleFromEnvironment(cluster::ReadEnvironment(), true));
  if (role.worker_num > 1) {
    ThrowIfError(FailedPrecondition(
        "this process is rank ", role.index, " of ", role.worker_num,
        ", but has not met the others yet: call "
        "paddle.distributed.init_parallel_env() or fleet.init() first"));
  }
  Job& job = Job::Connect({.is_collective = true, .non_distributed = true});
  TheJobs().current = &job;
  return job;
}

void RequireOwn(Job& job) {
  if (!job.forked()) [[likely]]
    return;
  ThrowIfError(FailedPrecondition(
      "this process was forked from rank ", job.fleet().rank(),
      " of a job and is none of its ranks: collectives belong to the parent"));
}

Job& JobInUse() {
  Job* job = TheJobs().current;
  if (job == nullptr || (job->forked() && job->size() == 1)) {
    return BeginAlone();
  }
  RequireOwn(*job);
  return *job;
}

// Python handles signals on its main thread only. Other threads do not ask: the
// communicator's own would wait for the GIL of an interpreter that is ending.
pthread_t PythonsMainThread() {
  nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  return nb::cast<pthread_t>(thread.attr("ident"));
}

}  // namespace

int Group::RankOf(int job_rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), job_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

std::chrono::milliseconds Group::timeout() const {
  return own_timeout.value_or(job->fleet().timeout());
}

base::Deadline Group::deadline() const {
  return base::Deadline::After(timeout());
}

Job& Job::Connect(cluster::Role role) {
  WatchEndOfProcess();
  base::InterruptCheck interrupt = MakeSignalCheck();
  Result<std::unique_ptr<Fleet>> fleet = [&] {
    nb::gil_scoped_release release;
    return Fleet::Init({.role = std::move(role), .interrupt = interrupt});
  }();
  auto job = std::make_unique<Job>();
  job->fleet_ = ValueOrThrow(std::move(fleet));
  job->interrupt_ = std::move(interrupt);
  auto world = std::make_unique<Group>();
  world->job = job.get();
  world->rank = job->fleet_->rank();
  for (int i = 0; i < job->size(); ++i) world->ranks.push_back(i);
  world->communicator = &job->fleet_->communicator();
  job->groups_.push_back(std::move(world));
  return *TheJobs().all.emplace_back(std::move(job));
}

Group& Job::group(int id) {
  if (id < 0 || id >= static_cast<int>(groups_.size())) {
    ThrowIfError(InvalidArgument("there is no group ", id,
                                 "; new_group makes "
                                 "one, and 0 is the group of all ranks"));
  }
  return *groups_[id];
}

Group& Job::NewGroup(std::vector<int> ranks,
                     std::optional<std::chrono::milliseconds> timeout) {
  auto group = std::make_unique<Group>();
  group->job = this;
  group->id = static_cast<int>(groups_.size());
  group->ranks = ranks;
  group->own_timeout = timeout;
  group->rank = group->RankOf(fleet_->rank());
  Result<std::unique_ptr<comm::Communicator>> made = [&] {
    nb::gil_scoped_release release;
    return fleet_->world().NewGroup(std::move(ranks), deadline());
  }();
  group->owned = ValueOrThrow(std::move(made));
  group->communicator = group->owned.get();
  return *groups_.emplace_back(std::move(group));
}

void Job::Finish() {
  if (forked() || finished_.exchange(true)) return;
  // What was started and nobody waited for is still part of the program.
  for (auto& group : groups_) {
    if (group->communicator == nullptr) continue;
    // Another thread inside a call is not waited for.
    std::unique_lock lock(group->one_call, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    base::Future<> idle = group->communicator->Start(
        [](comm::Communicator&) { return Status(); });
    lock.unlock();
    static_cast<void>(idle.Wait(group->deadline()));
  }
  fleet_->Finish();
}

bool Job::End(int exit_status) {
  if (forked()) return true;
  if (exit_status == 0) Finish();
  if (!finished_ && size() > 1) {
    using cluster::LauncherWord;
    cluster::TellLauncher(broken() ? LauncherWord::kOthersFailed
                                   : LauncherWord::kFailed);
    Abort(Unavailable("rank ", fleet_->rank(), " ended with exit status ",
                      exit_status));
    return false;
  }
  groups_.clear();
  fleet_.reset();
  return true;
}

bool Job::broken() const {
  if (forked()) return false;
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group->communicator != nullptr &&
           !group->communicator->status().ok();
  });
}

void Job::Abort(const Status& why) {
  for (auto& group : groups_) {
    if (group->communicator != nullptr) group->communicator->Abort(why);
  }
}

Job* CurrentJob() { return TheJobs().current; }

Job& BeginJob(cluster::Role role) {
  Job* job = TheJobs().current;
  if (job != nullptr && job->size() > 1) return JobInUse();
  Job& begun = Job::Connect(std::move(role));
  TheJobs().current = &begun;
  // All ranks are here, so none is in a call of a job before this one.
  for (Job* old : std::exchange(TheJobs().left, {})) {
    if (old->forked()) continue;
    old->Abort(FailedPrecondition(
        "this process has left the job, and has begun another one"));
  }
  return begun;
}

void LeaveJob() {
  Job* job = std::exchange(TheJobs().current, nullptr);
  if (job == nullptr) return;
  TheJobs().left.push_back(job);
  nb::gil_scoped_release release;
  job->Finish();
}

void ForgetJob() { TheJobs().current = nullptr; }

void RequireRunning(const Group& group) {
  if (!group.job->finished()) [[likely]]
    return;
  ThrowIfError(FailedPrecondition(
      "group ", group.id,
      " is of a job that has ended: this process has left it"));
}

Group& GroupOf(nb::handle group) {
  if (group.is_none()) return JobInUse().group(0);
  Group* found = nullptr;
  if (nb::isinstance<Group>(group)) {
    found = nb::inst_ptr<Group>(group);
    RequireOwn(*found->job);
    RequireRunning(*found);
  } else if (PyLong_Check(group.ptr())) {
    found = &JobInUse().group(nb::cast<int>(group));
  } else {
    PyErr_Format(PyExc_TypeError,
                 "group must be None, a number or a Group, but is %s",
                 Py_TYPE(group.ptr())->tp_name);
    throw nb::python_error();
  }
  if (found->destroyed) {
    ThrowIfError(FailedPrecondition("group ", found->id, " was destroyed"));
  }
  return *found;
}

base::InterruptCheck MakeSignalCheck() {
  return [main_thread = PythonsMainThread()]() -> Status {
    if (!pthread_equal(pthread_self(), main_thread)) return OkStatus();
    if (!Py_IsInitialized()) return OkStatus();
    nb::gil_scoped_acquire gil;
    // Once raised it stays: who takes the answer for a peer's failure and tries
    // again is told again.
    if (PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0) {
      return OkStatus();
    }
    return Unavailable("a signal came to this process while it waited");
  };
}

}  // namespace fleet::python
