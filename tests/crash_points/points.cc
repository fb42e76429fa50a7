// SPDX-License-Identifier: Apache-2.0

#include "tests/crash_points/points.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/base/check.h"
#include "fleet/base/exceptions.h"

namespace fleet::crash_points {
namespace {

// In memory: that bytes reach a disk is what calls.h stands for.
base::Path NewFolder() {
  std::error_code error;
  const base::Path memory = "/dev/shm";
  std::string name = ((std::filesystem::is_directory(memory, error)
                           ? memory
                           : std::filesystem::temp_directory_path()) /
                      "fleet-crash-XXXXXX")
                         .string();
  FLEET_CHECK(::mkdtemp(name.data()) != nullptr);
  return name;
}

Shared* NewShared() {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FLEET_CHECK(memory != MAP_FAILED);
  return static_cast<Shared*>(memory);
}

// So many failures say what there is to say.
constexpr int kEnough = 50;

const char* NameOf(CrashDisk disk) {
  constexpr const char* kNames[] = {"keeps", "loses", "mixes"};
  return kNames[disk];
}

}  // namespace

pid_t Start(Shared& shared, const std::function<Status()>& work) {
  const pid_t process = ::fork();
  FLEET_CHECK(process >= 0);
  if (process > 0) return process;
  const Status done = base::CatchExceptions(work);
  if (!done.ok() && shared.failure[0] == '\0') {
    std::snprintf(shared.failure, sizeof(shared.failure), "%s",
                  done.ToString().c_str());
  }
  std::fflush(nullptr);
  ::_exit(done.ok() ? 0 : 1);
}

End WaitFor(pid_t process) {
  int status = 0;
  FLEET_CHECK(::waitpid(process, &status, 0) == process);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return End::kKilled;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::kWell
                                                       : End::kFailed;
}

End Run(Shared& shared, const std::function<Status()>& work) {
  return WaitFor(Start(shared, work));
}

int TryAll(const Scenario& scenario, const Which& which) {
  const base::Path root = NewFolder();
  Shared* const shared = NewShared();
  std::mt19937_64 random(which.seed);
  int num_failed = 0;
  uint64_t num_tried = 0;
  uint64_t num_points = 0;
  for (const CrashDisk disk : {kDiskKeeps, kDiskLoses, kDiskMixes}) {
    if (which.disk >= 0 && disk != which.disk) continue;
    if (disk != kDiskKeeps && !scenario.every_disk) continue;
    for (const bool torn : {false, true}) {
      bool at_end = false;
      for (uint64_t at = which.at == 0 ? 1 : which.at; !at_end; ++at) {
        const uint64_t seed = which.seed * 1'000'003 + at;
        at_end = which.at != 0;
        if (random() % which.one_of != 0 && which.at == 0) continue;
        const Point point{root / "point", at, torn, disk, seed};
        *shared = Shared();
        FLEET_CHECK(base::MakeFolders(point.files()).ok());
        const Result<End> end = scenario.try_point(point, *shared);
        std::filesystem::remove_all(point.folder);
        ++num_tried;
        if (end.ok() && *end == End::kWell) {
          at_end = true;
          num_points = std::max(num_points, at - 1);
        }
        if (which.verbose || !end.ok()) {
          std::printf("%s --at %llu --disk %d --seed %llu%s (%s): %s: %s\n",
                      scenario.name, static_cast<unsigned long long>(at), disk,
                      static_cast<unsigned long long>(which.seed),
                      torn ? ", torn" : "", NameOf(disk), shared->report.call,
                      end.ok() ? "right" : end.status().ToString().c_str());
          std::fflush(stdout);
        }
        num_failed += end.ok() ? 0 : 1;
        if (num_failed >= kEnough) at_end = true;
      }
    }
  }
  std::filesystem::remove_all(root);
  std::printf("%s: %llu points, %llu tried, %d not survived\n", scenario.name,
              static_cast<unsigned long long>(num_points),
              static_cast<unsigned long long>(num_tried), num_failed);
  // Else the processes of the next scenario print it as well.
  std::fflush(stdout);
  return num_failed;
}

}  // namespace fleet::crash_points

int main(int argc, char** argv) {
  using namespace fleet::crash_points;
  Which which;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (word == "--at") {
      which.at = std::strtoull(next(), nullptr, 10);
    } else if (word == "--one-of") {
      which.one_of = std::max<uint64_t>(1, std::strtoull(next(), nullptr, 10));
    } else if (word == "--seed") {
      which.seed = std::strtoull(next(), nullptr, 10);
    } else if (word == "--disk") {
      which.disk = std::atoi(next());
    } else if (word == "--verbose") {
      which.verbose = true;
    } else if (word.starts_with("-")) {
      std::fprintf(stderr,
                   "usage: crash_points [SCENARIO] [--at N] "
                   "[--one-of N] [--seed N] [--disk 0|1|2] [--verbose]\n");
      return 2;
    } else {
      which.only = word;
    }
  }
  int num_failed = 0;
  for (const Scenario& scenario :
       {Files(), Saves(), SaveOfFirst(), SaveOfSecond(), Log(), LogSync(),
        Recovery(), TakeOver()}) {
    if (!which.only.empty() && which.only != scenario.name) continue;
    num_failed += TryAll(scenario, which);
  }
  return num_failed == 0 ? 0 : 1;
}
