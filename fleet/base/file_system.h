// SPDX-License-Identifier: Apache-2.0

// Files, with one promise that matters: a file written through AtomicFile or
// AtomicWriteFile is seen either as it was or as it should be, also after a
// crash, a full disk or a lost power line.
//
// All failures name the path and carry the errno (status.h, ErrnoStatus):
// NotFound for what is absent, InvalidArgument for a path of the wrong kind,
// FailedPrecondition for missing rights, Unavailable for a full or failing
// disk. Free functions are thread-safe; an AtomicFile belongs to one thread at
// a time.

#ifndef FLEET_BASE_FILE_SYSTEM_H_
#define FLEET_BASE_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"

namespace fleet::base {

using Path = std::filesystem::path;

// A file under construction. Its bytes go to a temporary file in the same
// folder; Commit() puts it in place of `path` in one step. Until then, and
// when anything fails, what was at `path` stays whole. Destruction without
// Commit() removes the temporary file; only a killed process leaves one
// behind (named ".NAME.PID.N.tmp").
//
//   ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
//   RETURN_IF_ERROR(file.Append(header));
//   RETURN_IF_ERROR(file.Append(rows));
//   return file.Commit();
class AtomicFile final {
 public:
  // The folder of `path` must exist. An existing file gives its permissions to
  // the new one; a link is followed, so that the file it names is replaced.
  // InvalidArgument when `path` names something other than a plain file.
  static Result<AtomicFile> Create(const Path& path);

  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Adds bytes at the end. After a failure every later call fails too.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view bytes) {
    return Append(std::as_bytes(std::span(bytes)));
  }

  // Bytes to disk, then the name, then the folder. On success the file at the
  // path is the new one for good. FailedPrecondition when called twice.
  Status Commit();

  uint64_t byte_size() const { return byte_size_; }
  const Path& path() const { return path_; }

 private:
  AtomicFile(Path path, Path temporary, Descriptor descriptor);
  Status Fail(int error_number, std::string_view what);
  void Discard();

  Path path_;
  Path temporary_;
  Descriptor descriptor_;  // of nothing once committed, failed or moved from
  uint64_t byte_size_ = 0;
  Status failure_;
};

// Replaces the file at `path` by `bytes`, with AtomicFile's promises.
Status AtomicWriteFile(const Path& path, std::span<const std::byte> bytes);
Status AtomicWriteFile(const Path& path, std::string_view bytes);

// All bytes of a plain file.
Result<std::string> ReadFile(const Path& path);

Result<uint64_t> FileSize(const Path& path);

// Whether something is there, of whatever kind.
bool Exists(const Path& path);

// Names (without the folder) of what is in `folder`, sorted.
Result<std::vector<std::string>> ListFolder(const Path& folder);

// Makes a folder and the ones above it; fine when it is there already.
Status MakeFolders(const Path& folder);

// The names in a folder are on the disk: a file that was made or renamed is
// safe only then.
Status SyncFolder(const Path& folder);

// Removes one file or empty folder. NotFound when there is none.
Status Remove(const Path& path);

}  // namespace fleet::base

#endif  // FLEET_BASE_FILE_SYSTEM_H_
