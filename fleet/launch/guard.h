// SPDX-License-Identifier: Apache-2.0

// Two processes that look after each other, so that nothing a job started
// outlives it, at whatever depth and whoever is killed.
//
// The one that the user sees passes signals on and waits. The other, its child
// in a process group of its own, runs the job. Both adopt orphans
// (PR_SET_CHILD_SUBREAPER): what loses its parent becomes a child of the
// second, and if that one is gone, of the first. Whoever of the two is left
// ends all that is below it, and so needs no list.

#ifndef FLEET_LAUNCH_GUARD_H_
#define FLEET_LAUNCH_GUARD_H_

#include <functional>
#include <sys/types.h>

namespace fleet::launch {

// What the job's process finds out through descriptors, to be polled.
struct GuardedJob {
  // A signalfd with SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD,
  // which are blocked. Those that were ignored when fleetrun started (nohup)
  // stay ignored.
  int signals;
  // Readable once the first process is gone: end everything, nobody waits.
  int front_gone;
};

// Runs `job` in the second process and returns, in the first, the exit code
// that `job` returned; 128 + signal when the second one was killed. Called by a
// process with one thread.
int RunGuarded(const std::function<int(const GuardedJob&)>& job);

// In the child, between fork and exec: undoes what the guard set, and asks to
// be killed when `parent` dies. Async-signal-safe.
void LeaveGuard(pid_t parent);

// Sends `signal` to every process below this one.
void SignalDescendants(int signal);

// Kills everything below this process, direct children and what they started,
// and waits until nothing is left; for ten seconds at most, which only a
// process that hangs inside the kernel needs. False when one is left.
bool EndDescendants();

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_GUARD_H_
