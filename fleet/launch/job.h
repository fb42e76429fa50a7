// SPDX-License-Identifier: Apache-2.0

// The processes of one host from start to end.

#ifndef FLEET_LAUNCH_JOB_H_
#define FLEET_LAUNCH_JOB_H_

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/launcher_words.h"
#include "fleet/launch/guard.h"
#include "fleet/launch/listener.h"
#include "fleet/launch/plan.h"
#include "fleet/launch/ports.h"
#include "fleet/launch/process.h"
#include "fleet/launch/screen.h"
#include "fleet/launch/watch.h"

namespace fleet::launch {

struct JobOptions {
  std::string log_dir;
  std::chrono::milliseconds grace;         // between SIGTERM and SIGKILL
  std::chrono::milliseconds server_grace;  // for servers after the last worker
  // How often servers that fail may be started again, all together.
  int max_server_restarts = 0;
  // A worker that fails does not fail the job while others of this host run or
  // have ended well.
  bool go_on_without_lost_workers = false;
};

// How a job ended on this host.
struct JobEnd {
  int exit_code = 0;
  // Somebody wanted it to end; it is not to be started again.
  bool was_told = false;
  int num_server_restarts = 0;
};

// What processes run.
struct JobCommands {
  Command script;
  bool script_is_python = false;
  Command servers;
};

// Used by one thread, inside RunGuarded.
class LocalJob final {
 public:
  // All outlive the job.
  LocalJob(const LaunchPlan& plan, const GuardedJob& guard, HostWatch& hosts,
           JobOptions options);

  // Starts the processes, each with its own of `ports`. Those of servers that
  // may be started again stay open here, so that workers who come meanwhile
  // wait; the others are closed. When one cannot be started, the others are
  // ended.
  Status Start(JobCommands commands, cluster::Environment env,
               ReservedPorts ports);

  // Waits until all have ended, by themselves or because one failed, here or on
  // another host, or a signal came. With servers, the first host stays until
  // the workers of all hosts have ended. Tells the other hosts. Copies the
  // first worker's log to stdout, and tells failures and the end of servers on
  // stderr.
  JobEnd Wait();

 private:
  struct Running {
    const ProcessPlan* plan;
    std::string log_path;
    off_t log_begin;
    pid_t pid;
    bool ended = false;
    int wait_status = 0;
    // What it said first of its failure, or that of others.
    std::optional<cluster::LauncherWord> said;
    bool has_met = false;
    bool knows_of_loss = false;  // see LauncherWord::kLost
    // Whether this server logs, once it has said so; see LauncherWord::kLogs.
    std::optional<bool> logs;
    base::Descriptor listener;  // of a server that may be started again
    int num_starts = 0;

    // Whether it failed because another process did, as far as is known.
    bool fails_by_others() const;
  };
  enum class Phase {
    kRunning,
    kServersEnding,  // all workers have ended well; servers may take their time
    kFailing,        // one failed; a while for one that failed before it
    kEnding,         // all have been told to end
  };

  // Appends to the log of the process, as one that was started before it in
  // its place did.
  Status StartOne(Running& process, int listen_fd);
  // Whether the job can do without `failed`, which it then does: a server is
  // started again, a worker is lost.
  bool GoesOnWithout(Running& failed);
  bool RestartServer(Running& failed);

  void HandleSignals();
  // What launchers of other hosts told.
  void HandleHosts();
  void FailElsewhere(const JobFailure& failure);
  // Where the workers of this host, or of all hosts, have ended well, what
  // follows from it.
  void CheckWorkers();
  // Whether other hosts have to be heard although nothing runs here any more.
  bool WaitsForHosts() const;
  // Notes what processes said.
  void HearWords();
  // Notes who ended, and acts on it.
  void Reap();
  // Those that failed so far did so because of another process.
  bool OnlyByOthers() const;
  // Ends the job because of those in failed_.
  void Fail();
  // "rank 1 at 10.0.0.2:6070 (host b, process 7) failed: exit code 3 after 2 s"
  std::string Describe(const Running& failed) const;
  // That description with the end of its log.
  std::string Report(const Running& failed) const;
  // A warning where ranks ended well and never met: each trained for itself.
  void RemarkIfNeverMet() const;
  // A warning where servers lost what they had acknowledged.
  void RemarkIfLost() const;
  // Sends `signal` to those that run, and sets the time of SIGKILL.
  void End(int signal);
  void CheckDeadline();
  // Shows the rest of the log, unless told to end.
  void FinishScreen();
  bool AllEnded(bool workers_only) const;
  int PollPatience() const;

  const LaunchPlan& plan_;
  const GuardedJob& guard_;
  HostWatch& hosts_;
  const JobOptions options_;
  const std::chrono::steady_clock::time_point begin_;
  JobCommands commands_;
  cluster::Environment env_;
  std::vector<Running> running_;
  std::optional<WordListener> listener_;
  std::optional<LogOnScreen> screen_;
  Phase phase_ = Phase::kRunning;
  bool waits_for_culprit_ = false;  // of kFailing: longer than a moment
  bool told_workers_ended_ = false;
  bool servers_were_told_ = false;  // to end, after their grace
  // Links over which it has not been heard that workers ended.
  int num_hosts_waited_for_;
  base::Deadline phase_deadline_ = base::Deadline::Infinite();
  std::vector<const Running*> failed_;  // in the order of their ends
  JobEnd end_;
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_JOB_H_
