// SPDX-License-Identifier: Apache-2.0

// What the targets of this folder share: parts of an input, and a folder in
// memory for readers that want files.

#ifndef FLEET_TESTS_FUZZ_BYTES_BYTES_H_
#define FLEET_TESTS_FUZZ_BYTES_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/ps/table_spec.h"

// What libFuzzer, or replay.cc, calls with every input.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fleet::fuzz {

// How often the readers have taken an input and not refused it. Seeds are taken
// (replay.cc): one that is not, since the format has changed, tests little.
inline size_t num_taken = 0;

// An input, whose first byte chooses what the target does with the others.
class Input final {
 public:
  Input(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t TakeByte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  // A part, as AppendPart wrote it; of what is too short, what is there.
  std::string TakePart() {
    uint32_t size = 0;
    const size_t head = std::min(sizeof(size), rest_.size());
    std::memcpy(&size, rest_.data(), head);
    rest_.remove_prefix(head);
    const std::string part(rest_.substr(0, size));
    rest_.remove_prefix(part.size());
    return part;
  }
  bool empty() const { return rest_.empty(); }
  std::string rest() const { return std::string(rest_); }

 private:
  std::string_view rest_;
};

inline void AppendPart(std::string& input, std::string_view part) {
  base::Append(input, static_cast<uint32_t>(part.size()));
  input += part;
}

// An empty folder in memory, the same one each time.
inline const base::Path& EmptyFolder() {
  static const struct Folder {
    Folder() {
      std::error_code error;
      const base::Path memory = "/dev/shm";
      std::string name = ((std::filesystem::is_directory(memory, error)
                               ? memory
                               : std::filesystem::temp_directory_path()) /
                          "fleet-fuzz-XXXXXX")
                             .string();
      FLEET_CHECK(::mkdtemp(name.data()) != nullptr);
      path = name;
    }
    ~Folder() {
      std::error_code error;
      std::filesystem::remove_all(path, error);
    }
    base::Path path;
  } folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    std::filesystem::remove_all(entry.path());
  }
  return folder.path;
}

inline void Put(const base::Path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Makes the last line of a list or manifest, a checksum of the text before it,
// right.
inline void RepairEnd(std::string& text) {
  const size_t end = std::min(text.rfind("end "), text.size());
  text.resize(end);
  text += base::Concat("end ", base::Crc32c(text), "\n");
}

// Whether a target should make this table: a member of the job may ask for one
// that is as large as it likes, or lies in any folder.
inline bool IsSmall(const ps::TableSpec& spec) {
  constexpr uint64_t kMost = 1 << 16;
  if (const auto* dense = std::get_if<ps::DenseSpec>(&spec.table)) {
    return dense->size <= kMost;
  }
  const auto& sparse = std::get<table::SparseTableOptions>(spec.table);
  return sparse.dim <= 1024 && !sparse.disk.has_value() &&
         sparse.num_geo_workers <= 1024;
}

}  // namespace fleet::fuzz

#endif  // FLEET_TESTS_FUZZ_BYTES_BYTES_H_
