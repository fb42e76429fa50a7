// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/log_folder.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace fleet::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFolders = 1000;

Status Refused(const fs::path& path, const std::string& why) {
  return InvalidArgument("--log_dir: ", path.string(), ": ", why);
}

bool IsOfJob(const std::string& name) {
  return name == "endpoints.log" || name.starts_with("workerlog.") ||
         name.starts_with("serverlog.") || name.starts_with("heterlog.");
}

// "2026-11-16_13.05.22", local time, of the last change of `path`.
std::string TimeOf(const fs::path& path) {
  struct stat info = {};
  std::time_t seconds = std::time(nullptr);
  if (stat(path.c_str(), &info) == 0) seconds = info.st_mtime;
  std::tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d_%H.%M.%S", &local);
  return text;
}

// Moves what an earlier job left in `folder` to a folder of its own.
Status MoveEarlier(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsOfJob(entry.path().filename())) left.push_back(entry.path());
  }
  if (error) return Refused(folder, error.message());
  if (left.empty()) return OkStatus();
  // endpoints.log is written once, before the processes start.
  const std::string time = TimeOf(folder / "endpoints.log");
  fs::path target = folder / "earlier" / time;
  for (int i = 2; fs::exists(target, error); ++i) {
    target = folder / "earlier" / base::Concat(time, ".", i);
  }
  fs::create_directories(target, error);
  if (error) return Refused(target, error.message());
  for (const fs::path& path : left) {
    fs::rename(path, target / path.filename(), error);
    if (error) return Refused(path, error.message());
  }
  return OkStatus();
}

}  // namespace

LogFolder::LogFolder(std::string path, base::Descriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

Result<LogFolder> LogFolder::Take(const std::string& wanted) {
  for (int i = 0; i < kMaxFolders; ++i) {
    const std::string path = i == 0 ? wanted : base::Concat(wanted, ".", i);
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return Refused(path, error.message());
    const std::string lock_path = path + "/.lock";
    base::Descriptor lock(
        open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock.valid()) return Refused(lock_path, std::strerror(errno));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) continue;
      lock = base::Descriptor();
    }
    RETURN_IF_ERROR(MoveEarlier(path));
    return LogFolder(path, std::move(lock));
  }
  return Refused(wanted, base::Concat("it and the ", kMaxFolders - 1,
                                      " behind it are those of other jobs"));
}

}  // namespace fleet::launch
