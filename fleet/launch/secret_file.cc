// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/secret_file.h"

#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fleet::launch {

Result<SecretFile> SecretFile::Make(const channel::Secret& secret) {
  base::Descriptor memory(
      memfd_create("fleet-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string_view text = secret.text();
  if (!memory.valid() ||
      write(memory.get(), text.data(), text.size()) !=
          static_cast<ssize_t>(text.size()) ||
      fchmod(memory.get(), S_IRUSR) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS,
            F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "memory for the job secret");
  }
  std::string path = base::Concat("/proc/", getpid(), "/fd/", memory.get());
  return SecretFile(std::move(memory), std::move(path));
}

}  // namespace fleet::launch
