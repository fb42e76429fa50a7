// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/file_system.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "fleet/base/descriptor.h"

namespace fleet::base {
namespace {

// read() and write() take no more than about 2 GiB at a time on Linux; a
// rounder number keeps pages whole.
constexpr size_t kLargestTransfer = size_t{1} << 30;

// Parts of a file that the disk is told to begin with.
constexpr uint64_t kWriteOutSize = uint64_t{256} << 10;

Status PathError(int error_number, std::string_view what, const Path& path) {
  return ErrnoStatus(error_number, Concat(what, " ", path.string()));
}

Path FolderOf(const Path& path) {
  return path.has_parent_path() ? path.parent_path() : Path(".");
}

// Distinct for every call in every process that shares the folder.
Path TemporaryPath(const Path& path) {
  static std::atomic<uint64_t> counter{0};
  return FolderOf(path) / Concat(".", path.filename().string(), ".", ::getpid(),
                                 ".", counter.fetch_add(1), ".tmp");
}

}  // namespace

Status SyncFolder(const Path& folder) {
  const Descriptor descriptor(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.valid()) return PathError(errno, "open folder", folder);
  const int error = ::fsync(descriptor.get()) == 0 ? 0 : errno;
  // Some network file systems cannot sync a folder and say EINVAL.
  if (error != 0 && error != EINVAL) {
    return PathError(error, "sync folder", folder);
  }
  return OkStatus();
}

Result<AtomicFile> AtomicFile::Create(const Path& requested) {
  if (!requested.has_filename()) {
    return PathError(EISDIR, "write", requested);
  }
  Path path = requested;
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    path = std::filesystem::canonical(path, error);
    if (error) return PathError(error.value(), "follow link", requested);
  }
  struct stat old = {};
  const bool replaces = ::stat(path.c_str(), &old) == 0;
  if (replaces && S_ISDIR(old.st_mode)) return PathError(EISDIR, "write", path);
  if (replaces && !S_ISREG(old.st_mode)) {
    return InvalidArgument("write ", path.string(), ": not a plain file");
  }

  Path temporary = TemporaryPath(path);
  Descriptor descriptor(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!descriptor.valid()) return PathError(errno, "create", path);
  AtomicFile file(std::move(path), std::move(temporary), std::move(descriptor));
  if (replaces && ::fchmod(file.descriptor_.get(), old.st_mode & 07777) != 0) {
    return file.Fail(errno, "set permissions of");
  }
  return file;
}

AtomicFile::AtomicFile(Path path, Path temporary, Descriptor descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(std::move(descriptor)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::move(other.descriptor_);
    byte_size_ = other.byte_size_;
    failure_ = std::move(other.failure_);
  }
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (!descriptor_.valid()) return;
  (void)descriptor_.Close();
  ::unlink(temporary_.c_str());
}

// Room on a full disk is given back at once, not when the object dies.
Status AtomicFile::Fail(int error_number, std::string_view what) {
  failure_ = PathError(error_number, what, path_);
  Discard();
  return failure_;
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(failure_);
  if (!descriptor_.valid()) {
    return FailedPrecondition("append to ", path_.string(), " after Commit()");
  }
  const uint64_t before = byte_size_;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(),
                                    std::min(bytes.size(), kLargestTransfer));
    if (written < 0) {
      if (errno == EINTR) continue;
      return Fail(errno, "write");
    }
    byte_size_ += written;
    bytes = bytes.subspan(written);
  }
  // The disk begins with large files while the rest is still to come, so that
  // Commit() finds little left. Only a hint: a failure shows in fsync.
  const uint64_t begin = before / kWriteOutSize * kWriteOutSize;
  const uint64_t end = byte_size_ / kWriteOutSize * kWriteOutSize;
  if (begin < end) {
    (void)::sync_file_range(descriptor_.get(), static_cast<off_t>(begin),
                            static_cast<off_t>(end - begin),
                            SYNC_FILE_RANGE_WRITE);
  }
  return OkStatus();
}

Status AtomicFile::Commit() {
  RETURN_IF_ERROR(failure_);
  if (!descriptor_.valid()) {
    return FailedPrecondition("commit ", path_.string(), " twice");
  }
  if (::fsync(descriptor_.get()) != 0) return Fail(errno, "sync");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Fail(errno, "rename to");
  }
  // From here on the temporary name is gone and there is nothing to remove.
  if (descriptor_.Close() != 0) return PathError(errno, "close", path_);
  return SyncFolder(FolderOf(path_));
}

Status AtomicWriteFile(const Path& path, std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

Status AtomicWriteFile(const Path& path, std::string_view bytes) {
  return AtomicWriteFile(path, std::as_bytes(std::span(bytes)));
}

Result<std::string> ReadFile(const Path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid()) return PathError(errno, "read", path);
  struct stat info = {};
  if (::fstat(descriptor.get(), &info) != 0)
    return PathError(errno, "read", path);
  if (S_ISDIR(info.st_mode)) return PathError(EISDIR, "read", path);

  // The size is a first guess: the file may grow meanwhile, and files of /proc
  // say 0. One byte more shows the end without growing the buffer.
  std::string bytes(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t size = 0;
  while (true) {
    if (size == bytes.size()) bytes.resize(2 * bytes.size());
    const ssize_t count =
        ::read(descriptor.get(), bytes.data() + size,
               std::min(bytes.size() - size, kLargestTransfer));
    if (count < 0) {
      if (errno == EINTR) continue;
      return PathError(errno, "read", path);
    }
    if (count == 0) break;
    size += count;
  }
  bytes.resize(size);
  return bytes;
}

Result<uint64_t> FileSize(const Path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return PathError(errno, "stat", path);
  if (S_ISDIR(info.st_mode)) return PathError(EISDIR, "size of", path);
  return static_cast<uint64_t>(info.st_size);
}

bool Exists(const Path& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0;
}

Result<std::vector<std::string>> ListFolder(const Path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return PathError(error.value(), "list", folder);
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeFolders(const Path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return PathError(error.value(), "make folder", folder);
  if (!std::filesystem::is_directory(folder, error)) {
    return PathError(ENOTDIR, "make folder", folder);
  }
  return OkStatus();
}

Status Remove(const Path& path) {
  std::error_code error;
  if (std::filesystem::remove(path, error)) return OkStatus();
  return PathError(error ? error.value() : ENOENT, "remove", path);
}

}  // namespace fleet::base
