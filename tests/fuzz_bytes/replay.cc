// SPDX-License-Identifier: Apache-2.0

// Runs a target over files, for builds without libFuzzer:
//
//   replay_hello FOLDER...
//
// Exit code 0 when it came through all of them and took the seeds; else the
// last name that was written is that of the file that ended it.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/log.h"

#include "tests/fuzz_bytes/bytes.h"

int main(int argc, char** argv) {
  // Readers warn of what is damaged, which here is all.
  fleet::base::SetMinLogSeverity(fleet::base::LogSeverity::ERROR);
  size_t num_files = 0;
  for (int i = 1; i < argc; ++i) {
    const fleet::Result<std::vector<std::string>> names =
        fleet::base::ListFolder(argv[i]);
    if (!names.ok()) {
      std::fprintf(stderr, "%s\n", names.status().ToString().c_str());
      return 1;
    }
    for (const std::string& name : *names) {
      const fleet::base::Path path = fleet::base::Path(argv[i]) / name;
      const fleet::Result<std::string> bytes = fleet::base::ReadFile(path);
      if (!bytes.ok()) continue;
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);
      const auto* data = reinterpret_cast<const uint8_t*>(bytes->data());
      fleet::fuzz::num_taken = 0;
      (void)LLVMFuzzerTestOneInput(data, bytes->size());
      if (name.starts_with("seed-") && fleet::fuzz::num_taken == 0) {
        std::fprintf(stderr,
                     "%s is refused: has its format changed? seeds.cc writes "
                     "the seeds anew\n",
                     path.c_str());
        return 1;
      }
      // And what is left of it when it is cut or damaged, which may be either.
      for (const size_t part : {1, 2, 3}) {
        const size_t size = bytes->size() * part / 4;
        (void)LLVMFuzzerTestOneInput(data, size);
        std::string damaged = *bytes;
        if (size < damaged.size()) damaged[size] ^= 0x10;
        (void)LLVMFuzzerTestOneInput(
            reinterpret_cast<const uint8_t*>(damaged.data()), damaged.size());
      }
      ++num_files;
    }
  }
  std::printf("%zu files\n", num_files);
  return num_files == 0 ? 1 : 0;
}
