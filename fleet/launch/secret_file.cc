// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/secret_file.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/shared_memory.h"

namespace fleet::launch {

Result<SecretFile> SecretFile::Make(const channel::Secret& secret) {
  ASSIGN_OR_RETURN(base::Descriptor memory,
                   base::MakeConstantMemory("fleet-secret", secret.text()));
  if (fchmod(memory.get(), S_IRUSR) != 0) {
    return ErrnoStatus(errno, "memory for the job secret");
  }
  std::string path = base::Concat("/proc/", getpid(), "/fd/", memory.get());
  return SecretFile(std::move(memory), std::move(path));
}

}  // namespace fleet::launch
