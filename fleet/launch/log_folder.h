// SPDX-License-Identifier: Apache-2.0

// The folder with the logs of one job. Jobs that run at the same time have one
// each, and the logs of a job that has ended stay apart from those of the next.

#ifndef FLEET_LAUNCH_LOG_FOLDER_H_
#define FLEET_LAUNCH_LOG_FOLDER_H_

#include <string>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"

namespace fleet::launch {

// The job's own while this object lives.
class LogFolder final {
 public:
  // Takes the folder `wanted`, which is made where there is none; where the
  // job of another launcher has it, `wanted`.1, or the first that is free of
  // those behind it. What an earlier job left there (logs, endpoints.log, notes
  // of servers) goes to earlier/TIME inside of it, TIME being when that job
  // began. InvalidArgument where the folder cannot be made or written.
  static Result<LogFolder> Take(const std::string& wanted);

  const std::string& path() const { return path_; }

 private:
  LogFolder(std::string path, base::Descriptor lock);

  std::string path_;
  // A lock of the file .lock, which ends with this process at the latest.
  // Invalid on a file system without locks.
  base::Descriptor lock_;
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_LOG_FOLDER_H_
