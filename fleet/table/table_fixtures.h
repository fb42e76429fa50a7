// SPDX-License-Identifier: Apache-2.0

// For tests of this folder.

#ifndef FLEET_TABLE_TABLE_FIXTURES_H_
#define FLEET_TABLE_TABLE_FIXTURES_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status_matchers.h"

namespace fleet::table {

using testing::ElementsAre;
using testing::HasSubstr;

// A folder that is gone with the test.
class TemporaryFolder final {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "fleet-table-XXXXXX")
            .string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const base::Path& path() const { return path_; }

 private:
  base::Path path_;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_TABLE_FIXTURES_H_
