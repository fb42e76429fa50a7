// SPDX-License-Identifier: Apache-2.0

// Runs some work once for each of its crash points (calls.h), and looks at what
// is left after each.

#ifndef FLEET_TESTS_CRASH_POINTS_POINTS_H_
#define FLEET_TESTS_CRASH_POINTS_POINTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"

#include "tests/crash_points/calls.h"

namespace fleet::crash_points {

// Memory that the processes of a point share.
struct Shared {
  CrashReport report;
  // Versions of what is written: up to which writing was begun, and which was
  // acknowledged last.
  uint64_t begun = 0;
  uint64_t done = 0;
  char failure[2000] = {};  // the first of a process
};

// One point: where, how and with which disk the process ends.
struct Point {
  base::Path folder;  // of this point, empty at first
  uint64_t at = 0;
  bool torn = false;
  CrashDisk disk = kDiskKeeps;
  uint64_t seed = 0;

  // Counts and ends the calls of this process from here on.
  void Arm(Shared& shared) const {
    CrashAt((folder / "files").c_str(), at, torn, disk, seed, &shared.report);
  }
  // Where all files are.
  base::Path files() const { return folder / "files"; }
};

// Runs `work` in a process of its own, whose failure is left in `shared`.
pid_t Start(Shared& shared, const std::function<Status()>& work);
// How a process ended.
enum class End { kWell, kFailed, kKilled };
End WaitFor(pid_t process);
// Start and WaitFor.
End Run(Shared& shared, const std::function<Status()>& work);

// Whether the work came to its end before the point did, or was ended there and
// what it left is right. Not ok: it is not right.
using TryPoint = std::function<Result<End>(const Point& point, Shared& shared)>;

struct Which {
  std::string only;     // a scenario; empty: all
  uint64_t at = 0;      // this point alone; 0: all
  uint64_t one_of = 1;  // points are left out; so many are drawn by the seed
  uint64_t seed = 1;
  int disk = -1;  // this one alone; -1: all
  bool verbose = false;
};

// Tries all points of a scenario, with whole and with torn writes, until the
// work comes to its end. Prints how many there were, and how to repeat one that
// failed. Returns how many failed.
struct Scenario {
  const char* name = "";
  bool every_disk = true;  // else only the one that keeps everything
  TryPoint try_point;
};
int TryAll(const Scenario& scenario, const Which& which);

// The scenarios.
Scenario Files();    // files of every kind that are replaced
Scenario Saves();    // two servers save two tables: bases, deltas
Scenario Log();      // a server with a log, killed and started again
Scenario LogSync();  // the same, acknowledged when it is on the disk
// The server that was started again is ended as well.
Scenario Recovery();
// Servers go on from the logs of another number of servers.
Scenario TakeOver();
// One of two servers is ended while they save, and started again.
Scenario SaveOfFirst();
Scenario SaveOfSecond();

}  // namespace fleet::crash_points

#endif  // FLEET_TESTS_CRASH_POINTS_POINTS_H_
