// SPDX-License-Identifier: Apache-2.0

#ifndef FLEET_TESTING_TEMPORARY_FOLDER_H_
#define FLEET_TESTING_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fleet/base/file_system.h"
#include "fleet/testing/testing.h"

namespace fleet::testing {

// A folder that is gone with the test.
class TemporaryFolder final {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "fleet-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const base::Path& path() const { return path_; }

 private:
  base::Path path_;
};

}  // namespace fleet::testing

#endif  // FLEET_TESTING_TEMPORARY_FOLDER_H_
