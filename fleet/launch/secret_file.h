// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_LAUNCH_SECRET_FILE_H_
#define FLEET_LAUNCH_SECRET_FILE_H_

#include <string>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"
#include "fleet/channel/secret.h"

namespace fleet::launch {

// A secret in memory of this process, which others of its user can read as a
// file while it lives: an environment shows the way to it and not what it is,
// and nothing is left behind, whatever ends.
class SecretFile final {
 public:
  static Result<SecretFile> Make(const channel::Secret& secret);

  // For FLEET_SECRET_FILE of the processes of the job.
  const std::string& path() const { return path_; }

 private:
  SecretFile(base::Descriptor memory, std::string path)
      : memory_(std::move(memory)), path_(std::move(path)) {}

  base::Descriptor memory_;
  std::string path_;
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_SECRET_FILE_H_
