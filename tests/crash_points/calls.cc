// SPDX-License-Identifier: Apache-2.0

#include "tests/crash_points/calls.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

// The file behind a descriptor or a name.
using FileId = std::pair<dev_t, ino_t>;

// A change of a file's bytes that was not synced.
struct Change {
  FileId file;
  off_t offset = 0;
  std::string before;  // what lay there; shorter where the file ended
  off_t size = 0;      // of the change
  off_t file_size = 0;
};

// A change of names that was not synced.
struct NameChange {
  enum class Kind {
    kCreate,
    kRename,
    kRemove,
    kMakeFolder,
    kRemoveFolder
  } kind;
  std::string path;
  std::string to;      // of a rename
  std::string backup;  // what was there before, if anything
};

struct State {
  std::recursive_mutex mutex;
  bool armed = false;
  std::string folder;
  std::string backups;  // a folder beside it
  uint64_t num_backups = 0;
  uint64_t at = 0;
  bool torn = false;
  int disk = kDiskKeeps;
  std::mt19937_64 random;
  CrashReport* report = nullptr;
  std::map<FileId, int> files;  // descriptors of those that were written
  std::vector<Change> changes;
  std::vector<NameChange> names;
};

// Never freed: calls come until the process ends.
State& TheState() {
  static State* const state = new State;
  return *state;
}

template <typename F>
F Real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name) static const auto real = Real<decltype(&::name)>(#name)

std::string Link(const std::string& link) {
  char text[4096];
  const auto size = ::syscall(SYS_readlink, link.c_str(), text, sizeof(text));
  return size <= 0 ? "" : std::string(text, static_cast<size_t>(size));
}
std::string OfDescriptor(int fd) {
  return Link("/proc/self/fd/" + std::to_string(fd));
}
std::string Absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  const std::string base =
      folder == AT_FDCWD ? Link("/proc/self/cwd") : OfDescriptor(folder);
  return base + "/" + path;
}

bool IsOurs(const State& state, const std::string& path) {
  return state.armed && path.size() >= state.folder.size() &&
         path.compare(0, state.folder.size(), state.folder) == 0 &&
         (path.size() == state.folder.size() ||
          path[state.folder.size()] == '/');
}
std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}
bool IsThere(const std::string& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0;
}
std::string NewBackup(State& state) {
  // Several processes of a point may die, one after the other.
  return state.backups + "/" + std::to_string(::getpid()) + "." +
         std::to_string(state.num_backups++);
}

void RawRename(const std::string& from, const std::string& to) {
  (void)::syscall(SYS_rename, from.c_str(), to.c_str());
}
void RawUnlink(const std::string& path) {
  (void)::syscall(SYS_unlink, path.c_str());
}

// Names that were not synced, from the end back to the first that is kept.
void LoseNames(State& state) {
  size_t kept = 0;
  if (state.disk == kDiskMixes)
    kept = state.random() % (state.names.size() + 1);
  while (state.names.size() > kept) {
    const NameChange& change = state.names.back();
    switch (change.kind) {
      case NameChange::Kind::kCreate:
        RawUnlink(change.path);
        break;
      case NameChange::Kind::kRename:
        RawRename(change.to, change.path);
        if (!change.backup.empty()) RawRename(change.backup, change.to);
        break;
      case NameChange::Kind::kRemove:
        RawRename(change.backup, change.path);
        break;
      case NameChange::Kind::kMakeFolder:
        (void)::syscall(SYS_rmdir, change.path.c_str());
        break;
      case NameChange::Kind::kRemoveFolder:
        (void)::syscall(SYS_mkdir, change.path.c_str(), 0700);
        break;
    }
    state.names.pop_back();
  }
}

// Bytes that were not synced.
void LoseBytes(State& state) {
  std::map<FileId, off_t> sizes;  // of what is left
  for (size_t i = state.changes.size(); i-- > 0;) {
    const Change& change = state.changes[i];
    const int fd = state.files[change.file];
    off_t& size = sizes.try_emplace(change.file, 0).first->second;
    size = std::max(size, change.file_size);
    off_t keep = 0;
    if (state.disk == kDiskMixes && change.size > 0) {
      switch (state.random() % 3) {
        case 0:
          keep = change.size;
          break;
        case 1:
          keep = static_cast<off_t>(state.random() %
                                    static_cast<uint64_t>(change.size));
          break;
        default:
          break;
      }
    }
    size = std::max(size, keep > 0 ? change.offset + keep : 0);
    std::string before = change.before;
    before.resize(static_cast<size_t>(change.size));
    if (keep < change.size) {
      (void)::syscall(SYS_pwrite64, fd, before.data() + keep,
                      static_cast<size_t>(change.size - keep),
                      change.offset + keep);
    }
    // The first change of a file knows how long it was.
    bool is_first = true;
    for (size_t k = 0; k < i; ++k) {
      is_first = is_first && state.changes[k].file != change.file;
    }
    if (!is_first) continue;
    if (state.disk == kDiskLoses) size = change.file_size;
    (void)::syscall(SYS_ftruncate, fd, size);
  }
}

[[noreturn]] void End(State& state) {
  if (state.disk != kDiskKeeps) {
    LoseBytes(state);
    LoseNames(state);
  }
  (void)::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

// Counts a call; true when it is the one that is not made.
bool IsLast(State& state, const char* call, const std::string& path) {
  CrashReport& report = *state.report;
  ++report.num_calls;
  std::snprintf(report.call, sizeof(report.call), "%s %s", call,
                path.c_str() + std::min(path.size(), state.folder.size()));
  return report.num_calls == state.at;
}
void Count(State& state, const char* call, const std::string& path) {
  if (IsLast(state, call, path)) End(state);
}

FileId IdOf(int fd) {
  struct stat facts = {};
  (void)::fstat(fd, &facts);
  return {facts.st_dev, facts.st_ino};
}

// Remembers what [offset, offset + size) is before it is written to.
void Remember(State& state, int fd, off_t offset, off_t size) {
  if (state.disk == kDiskKeeps) return;
  struct stat facts = {};
  (void)::fstat(fd, &facts);
  Change change;
  change.file = {facts.st_dev, facts.st_ino};
  change.offset = offset;
  change.size = size;
  change.file_size = facts.st_size;
  int& mine = state.files.try_emplace(change.file, -1).first->second;
  if (mine < 0) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    mine = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0));
  }
  if (offset < facts.st_size) {
    change.before.resize(
        static_cast<size_t>(std::min(size, facts.st_size - offset)));
    (void)::syscall(SYS_pread64, mine, change.before.data(),
                    change.before.size(), offset);
  }
  state.changes.push_back(std::move(change));
}

void ForgetChanges(State& state, int fd) {
  const FileId id = IdOf(fd);
  std::erase_if(state.changes,
                [&](const Change& change) { return change.file == id; });
}

// A copy of what is at a path under another name, or nothing.
std::string Backup(State& state, const std::string& path) {
  if (state.disk == kDiskKeeps || !IsThere(path)) return "";
  const std::string backup = NewBackup(state);
  (void)::syscall(SYS_link, path.c_str(), backup.c_str());
  return backup;
}

void Note(State& state, const NameChange& change) {
  if (state.disk != kDiskKeeps) state.names.push_back(change);
}

// One write: all of it, or half of it and the end.
ssize_t Write(State& state, const char* call, int fd,
              const std::vector<iovec>& parts, off_t offset,
              const std::string& path) {
  size_t size = 0;
  for (const iovec& part : parts) size += part.iov_len;
  const bool last = IsLast(state, call, path);
  if (last && !state.torn) End(state);
  const off_t at =
      offset >= 0 ? offset : static_cast<off_t>(::syscall(SYS_lseek, fd, 0, 1));
  Remember(state, fd, at, static_cast<off_t>(last ? size / 2 : size));
  if (last) {
    size_t left = size / 2;
    off_t to = at;
    for (const iovec& part : parts) {
      const size_t piece = std::min(left, part.iov_len);
      (void)::syscall(SYS_pwrite64, fd, part.iov_base, piece, to);
      left -= piece;
      to += static_cast<off_t>(piece);
    }
    End(state);
  }
  return offset >= 0
             ? ::syscall(SYS_pwritev, fd, parts.data(), parts.size(), offset, 0)
             : ::syscall(SYS_writev, fd, parts.data(), parts.size());
}

template <typename Otherwise>
ssize_t WriteOr(const char* call, int fd, const std::vector<iovec>& parts,
                off_t offset, const Otherwise& otherwise) {
  State& state = TheState();
  if (!state.armed) return otherwise();
  const std::lock_guard lock(state.mutex);
  const std::string path = OfDescriptor(fd);
  if (!IsOurs(state, path)) return otherwise();
  return Write(state, call, fd, parts, offset, path);
}

template <typename Otherwise>
int OpenOr(int folder, const char* name, int flags, const Otherwise& open) {
  State& state = TheState();
  if (!state.armed || (flags & (O_CREAT | O_TRUNC)) == 0) return open();
  const std::lock_guard lock(state.mutex);
  const std::string path = Absolute(folder, name);
  if (!IsOurs(state, path)) return open();
  Count(state, "open", path);
  const bool is_new = !IsThere(path);
  if (!is_new && (flags & O_TRUNC) != 0) {
    struct stat facts = {};
    (void)::stat(path.c_str(), &facts);
    const int fd = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0));
    Remember(state, fd, 0, facts.st_size);
    (void)::syscall(SYS_close, fd);
  }
  const int fd = open();
  if (fd >= 0 && is_new) {
    Note(state, {NameChange::Kind::kCreate, path, "", ""});
  }
  return fd;
}

template <typename Otherwise>
int RenameOr(int from_folder, const char* from, int to_folder, const char* to,
             const Otherwise& rename) {
  State& state = TheState();
  if (!state.armed) return rename();
  const std::lock_guard lock(state.mutex);
  const std::string path = Absolute(from_folder, from);
  if (!IsOurs(state, path)) return rename();
  Count(state, "rename", path);
  const std::string target = Absolute(to_folder, to);
  const std::string backup = Backup(state, target);
  const int result = rename();
  if (result == 0) {
    Note(state, {NameChange::Kind::kRename, path, target, backup});
  }
  return result;
}

template <typename Otherwise>
int RemoveOr(const char* call, int folder, const char* name,
             const Otherwise& remove) {
  State& state = TheState();
  if (!state.armed) return remove();
  const std::lock_guard lock(state.mutex);
  const std::string path = Absolute(folder, name);
  if (!IsOurs(state, path)) return remove();
  Count(state, call, path);
  struct stat facts = {};
  const bool is_folder =
      ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  const std::string backup = is_folder ? "" : Backup(state, path);
  const int result = remove();
  if (result != 0) return result;
  if (is_folder) {
    Note(state, {NameChange::Kind::kRemoveFolder, path, "", ""});
  } else if (!backup.empty()) {
    Note(state, {NameChange::Kind::kRemove, path, "", backup});
  }
  return result;
}

template <typename Otherwise>
int MakeFolderOr(int folder, const char* name, const Otherwise& make) {
  State& state = TheState();
  if (!state.armed) return make();
  const std::lock_guard lock(state.mutex);
  const std::string path = Absolute(folder, name);
  if (!IsOurs(state, path)) return make();
  Count(state, "mkdir", path);
  const int result = make();
  if (result == 0) Note(state, {NameChange::Kind::kMakeFolder, path, "", ""});
  return result;
}

// The bytes of a file, or the names of a folder, are on the disk.
template <typename Otherwise>
int SyncOr(const char* call, int fd, const Otherwise& sync) {
  State& state = TheState();
  if (!state.armed) return sync();
  const std::lock_guard lock(state.mutex);
  const std::string path = OfDescriptor(fd);
  if (!IsOurs(state, path)) return sync();
  Count(state, call, path);
  const int result = sync();
  ForgetChanges(state, fd);
  std::erase_if(state.names, [&](const NameChange& change) {
    return FolderOf(change.path) == path;
  });
  return result;
}

// Room of a file beyond what it has.
template <typename Otherwise>
int ResizeOr(const char* call, int fd, off_t begin, off_t end,
             const Otherwise& resize) {
  State& state = TheState();
  if (!state.armed) return resize();
  const std::lock_guard lock(state.mutex);
  const std::string path = OfDescriptor(fd);
  if (!IsOurs(state, path)) return resize();
  Count(state, call, path);
  struct stat facts = {};
  (void)::fstat(fd, &facts);
  // What lies behind the new end is cut off.
  Remember(state, fd, begin, std::max<off_t>(end - begin, 0));
  return resize();
}

std::vector<iovec> OnePart(const void* bytes, size_t size) {
  return {{const_cast<void*>(bytes), size}};
}

int ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
}

}  // namespace

extern "C" {

void CrashAt(const char* folder, uint64_t at, int torn, int disk, uint64_t seed,
             CrashReport* report) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.folder = folder;
  state.backups = state.folder + ".before";
  (void)::syscall(SYS_mkdir, state.backups.c_str(), 0700);
  state.at = at;
  state.torn = torn != 0;
  state.disk = disk;
  state.random.seed(seed);
  state.report = report;
  report->num_calls = 0;
  state.armed = true;
}

// ---- libc's functions. Names and arguments are libc's.
// NOLINTBEGIN

#define FLEET_OPEN(name)                                    \
  int name(const char* path, int flags, ...) {              \
    REAL(name);                                             \
    va_list arguments;                                      \
    va_start(arguments, flags);                             \
    const int mode = ModeOf(flags, arguments);              \
    va_end(arguments);                                      \
    return OpenOr(AT_FDCWD, path, flags,                    \
                  [&] { return real(path, flags, mode); }); \
  }
FLEET_OPEN(open)
FLEET_OPEN(open64)

#define FLEET_OPENAT(name)                                          \
  int name(int folder, const char* path, int flags, ...) {          \
    REAL(name);                                                     \
    va_list arguments;                                              \
    va_start(arguments, flags);                                     \
    const int mode = ModeOf(flags, arguments);                      \
    va_end(arguments);                                              \
    return OpenOr(folder, path, flags,                              \
                  [&] { return real(folder, path, flags, mode); }); \
  }
FLEET_OPENAT(openat)
FLEET_OPENAT(openat64)

ssize_t write(int fd, const void* bytes, size_t size) {
  REAL(write);
  return WriteOr("write", fd, OnePart(bytes, size), -1,
                 [&] { return real(fd, bytes, size); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  REAL(writev);
  return WriteOr("writev", fd, {parts, parts + count}, -1,
                 [&] { return real(fd, parts, count); });
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  REAL(pwrite);
  return WriteOr("pwrite", fd, OnePart(bytes, size), offset,
                 [&] { return real(fd, bytes, size, offset); });
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  REAL(pwrite64);
  return WriteOr("pwrite", fd, OnePart(bytes, size), offset,
                 [&] { return real(fd, bytes, size, offset); });
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  REAL(pwritev);
  return WriteOr("pwritev", fd, {parts, parts + count}, offset,
                 [&] { return real(fd, parts, count, offset); });
}
ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) {
  REAL(pwritev64);
  return WriteOr("pwritev", fd, {parts, parts + count}, offset,
                 [&] { return real(fd, parts, count, offset); });
}

int ftruncate(int fd, off_t size) noexcept {
  REAL(ftruncate);
  struct stat facts = {};
  (void)::fstat(fd, &facts);
  return ResizeOr("ftruncate", fd, size, facts.st_size,
                  [&] { return real(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int fallocate(int fd, int mode, off_t offset, off_t size) {
  REAL(fallocate);
  return ResizeOr("fallocate", fd, offset, offset,
                  [&] { return real(fd, mode, offset, size); });
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
  return fallocate(fd, mode, offset, size);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  REAL(posix_fallocate);
  return ResizeOr("fallocate", fd, offset, offset,
                  [&] { return real(fd, offset, size); });
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) {
  return posix_fallocate(fd, offset, size);
}

int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return RenameOr(AT_FDCWD, from, AT_FDCWD, to, [&] { return real(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder,
             const char* to) noexcept {
  REAL(renameat);
  return RenameOr(from_folder, from, to_folder, to,
                  [&] { return real(from_folder, from, to_folder, to); });
}

int unlink(const char* path) noexcept {
  REAL(unlink);
  return RemoveOr("unlink", AT_FDCWD, path, [&] { return real(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  REAL(unlinkat);
  return RemoveOr("unlink", folder, path,
                  [&] { return real(folder, path, flags); });
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  return RemoveOr("rmdir", AT_FDCWD, path, [&] { return real(path); });
}
int remove(const char* path) noexcept {
  REAL(remove);
  return RemoveOr("remove", AT_FDCWD, path, [&] { return real(path); });
}
int link(const char* from, const char* to) noexcept {
  REAL(link);
  State& state = TheState();
  if (!state.armed) return real(from, to);
  const std::lock_guard lock(state.mutex);
  const std::string path = Absolute(AT_FDCWD, to);
  if (!IsOurs(state, path)) return real(from, to);
  Count(state, "link", path);
  const int result = real(from, to);
  if (result == 0) Note(state, {NameChange::Kind::kCreate, path, "", ""});
  return result;
}
int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  return MakeFolderOr(AT_FDCWD, path, [&] { return real(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  REAL(mkdirat);
  return MakeFolderOr(folder, path, [&] { return real(folder, path, mode); });
}

int fsync(int fd) {
  REAL(fsync);
  return SyncOr("fsync", fd, [&] { return real(fd); });
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return SyncOr("fdatasync", fd, [&] { return real(fd); });
}

int close(int fd) {
  REAL(close);
  State& state = TheState();
  if (!state.armed) return real(fd);
  const std::lock_guard lock(state.mutex);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) {
    const std::string path = OfDescriptor(fd);
    if (IsOurs(state, path)) Count(state, "close", path);
  }
  return real(fd);
}

// NOLINTEND

}  // extern "C"
