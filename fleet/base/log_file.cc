// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/log_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>

#include "fleet/base/bytes.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/log.h"

namespace fleet::base {
namespace {

// Before each record. A segment may lie over an older one, whose records have
// another tag.
struct RecordHead {
  uint64_t tag = 0;
  // So much of the segment was on the disk when the record was written. What is
  // not whole below that was damaged; above, it may be what the disk did not
  // get before the host failed, and pages reach it in any order.
  uint64_t synced = 0;
  uint32_t byte_size = 0;
  uint32_t crc = 0;  // of what is above and the record
};
constexpr uint64_t kTag = 0x676f6c7465656c66;  // "fleetlog"
constexpr uint64_t kMaxRecord = uint64_t{1} << 31;

uint64_t TagOf(uint64_t segment) { return kTag ^ (segment << 8); }

uint64_t Aligned(uint64_t byte_size) { return (byte_size + 7) / 8 * 8; }

uint64_t SizeInSegment(uint64_t record) {
  return sizeof(RecordHead) + Aligned(record);
}

uint32_t CrcOf(const RecordHead& head) {
  return Crc32c(BytesOf(head).first(offsetof(RecordHead, crc)));
}

Path PathOfSegment(const Path& folder, uint64_t number) {
  return folder / Concat("log.", number);
}

// The number in "PREFIX.N".
std::optional<uint64_t> NumberIn(std::string_view name,
                                 std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) {
    return std::nullopt;
  }
  return number;
}

// Writes all parts at `offset`; they are changed on the way.
Status WriteAll(int fd, std::span<iovec> parts, uint64_t offset,
                const Path& path) {
  while (!parts.empty()) {
    const auto count =
        static_cast<int>(std::min<size_t>(parts.size(), IOV_MAX));
    const ssize_t written =
        ::pwritev(fd, parts.data(), count, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, Concat("append to ", path.string()));
    }
    offset += static_cast<uint64_t>(written);
    auto rest = static_cast<size_t>(written);
    while (!parts.empty() && rest >= parts.front().iov_len) {
      rest -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (rest == 0) continue;
    parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + rest;
    parts.front().iov_len -= rest;
  }
  return OkStatus();
}

}  // namespace

struct LogFile::Segment {
  uint64_t number = 0;
  Path path;
  Descriptor file;
  uint64_t capacity = 0;
  // Guarded by the log's mutex_.
  uint64_t reserved =
      0;              // bytes of records, and of rooms that are not used yet
  int num_rooms = 0;  // that are not used yet

  Mutex appending;
  uint64_t end GUARDED_BY(appending) = 0;
  std::atomic<bool> unsynced = false;
  std::atomic<uint64_t> synced = 0;  // bytes, from the beginning on
};

uint64_t LogFile::SizeOfRecord(uint64_t byte_size) {
  return SizeInSegment(byte_size);
}

uint64_t LogFile::Room::segment() const { return segment_->number; }

Result<std::unique_ptr<LogFile>> LogFile::Open(const LogOptions& options) {
  RETURN_IF_ERROR(MakeFolders(options.folder));
  std::unique_ptr<LogFile> log(new LogFile(options));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListFolder(options.folder));
  MutexLock lock(log->mutex_);
  log->next_number_ = options.first;
  for (const std::string& name : names) {
    if (NumberIn(name, "spare.").has_value()) {
      log->spare_.push_back(options.folder / name);
    }
    const std::optional<uint64_t> number = NumberIn(name, "log.");
    if (!number.has_value()) continue;
    // One that was read; it goes when RemoveBefore says so.
    auto old = std::make_shared<Segment>();
    old->number = *number;
    old->path = options.folder / name;
    ASSIGN_OR_RETURN(old->capacity, FileSize(old->path));
    old->reserved = old->capacity;
    log->segments_[*number] = std::move(old);
    log->next_number_ = std::max(log->next_number_, *number + 1);
  }
  RETURN_IF_ERROR(log->BeginSegment(0));
  return log;
}

LogFile::~LogFile() = default;

Status LogFile::BeginSegment(uint64_t least_byte_size) {
  auto segment = std::make_shared<Segment>();
  segment->number = next_number_;
  segment->capacity = std::max(options_.segment_byte_size, least_byte_size);
  segment->path = PathOfSegment(options_.folder, segment->number);
  const std::string path = segment->path.string();
  if (!spare_.empty()) {
    std::error_code error;
    std::filesystem::rename(spare_.back(), segment->path, error);
    if (error) return ErrnoStatus(error.value(), Concat("rename to ", path));
    spare_.pop_back();
  }
  segment->file =
      Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!segment->file.valid()) return ErrnoStatus(errno, "create " + path);
  const int error = ::posix_fallocate(segment->file.get(), 0,
                                      static_cast<off_t>(segment->capacity));
  if (error != 0) {
    // It is empty: nothing of it is missed.
    (void)::unlink(path.c_str());
    return ErrnoStatus(error, Concat("take ", segment->capacity,
                                     " bytes of the disk for ", path));
  }
  RETURN_IF_ERROR(SyncFolder(options_.folder));
  ++next_number_;
  segments_[segment->number] = segment;
  most_segments_ = std::max(most_segments_, segments_.size());
  current_ = std::move(segment);
  return OkStatus();
}

Result<LogFile::Hold> LogFile::HoldRoom(uint64_t byte_size) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  if (byte_size > current_->capacity - current_->reserved - held_) {
    RETURN_IF_ERROR(BeginSegment(byte_size + held_));
  }
  held_ += byte_size;
  Hold hold;
  hold.log_ = this;
  hold.byte_size_ = byte_size;
  return hold;
}

void LogFile::GiveBack(const Hold& hold) {
  MutexLock lock(mutex_);
  held_ -= hold.byte_size_;
}

Result<LogFile::Room> LogFile::Reserve(uint64_t byte_size, Hold* hold) {
  if (byte_size > kMaxRecord) {
    return InvalidArgument(options_.folder.string(), ": a record of ",
                           byte_size, " bytes");
  }
  const uint64_t size = SizeInSegment(byte_size);
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  const uint64_t from_hold =
      hold == nullptr ? 0 : std::min(size, hold->byte_size_);
  const uint64_t of_others = held_ - from_hold;
  if (size > current_->capacity - current_->reserved - of_others) {
    RETURN_IF_ERROR(BeginSegment(size + of_others));
  }
  held_ = of_others;
  if (hold != nullptr) hold->byte_size_ -= from_hold;
  current_->reserved += size;
  ++current_->num_rooms;
  ++num_rooms_[phase_];
  Room room;
  room.log_ = this;
  room.segment_ = current_;
  room.phase_ = phase_;
  room.byte_size_ = byte_size;
  return room;
}

void LogFile::GiveBack(Room& room) {
  {
    MutexLock lock(mutex_);
    room.segment_->reserved -= SizeInSegment(room.byte_size_) - room.used_;
    --room.segment_->num_rooms;
    --num_rooms_[room.phase_];
  }
  given_back_.NotifyAll();
  room.log_ = nullptr;
}

Status LogFile::Fail(const Status& why) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = why;
  has_failed_ = true;
  return why;
}

Status LogFile::Append(Room room,
                       std::span<const std::span<const std::byte>> parts) {
  static constexpr std::array<std::byte, 8> kZeros{};
  Segment& segment = *room.segment_;
  RecordHead head;
  head.tag = TagOf(segment.number);
  head.synced = segment.synced;
  uint64_t byte_size = 0;
  for (const auto& part : parts) byte_size += part.size();
  if (byte_size > room.byte_size_) {
    return InvalidArgument(segment.path.string(), ": a record of ", byte_size,
                           " bytes in a room for ", room.byte_size_);
  }
  head.byte_size = static_cast<uint32_t>(byte_size);
  head.crc = CrcOf(head);
  std::vector<iovec> pieces;
  pieces.reserve(parts.size() + 2);
  pieces.push_back({&head, sizeof(head)});
  for (const auto& part : parts) {
    if (part.empty()) continue;
    head.crc = Crc32c(part, head.crc);
    pieces.push_back({const_cast<std::byte*>(part.data()), part.size()});
  }
  const uint64_t padding = Aligned(byte_size) - byte_size;
  if (padding != 0) {
    pieces.push_back({const_cast<std::byte*>(kZeros.data()), padding});
  }
  Status written;
  {
    MutexLock lock(segment.appending);
    written = WriteAll(segment.file.get(), pieces, segment.end, segment.path);
    if (written.ok()) {
      room.used_ = SizeInSegment(byte_size);
      segment.end += room.used_;
    }
    segment.unsynced = true;
    ++num_appended_;
  }
  return written.ok() ? written : Fail(written);
}

Status LogFile::Sync() {
  const uint64_t wanted = num_appended_;
  MutexLock lock(syncing_);
  std::vector<std::shared_ptr<Segment>> unsynced;
  uint64_t reached = 0;
  {
    MutexLock state(mutex_);
    RETURN_IF_ERROR(failure_);
    if (num_synced_ >= wanted) return OkStatus();
    reached = num_appended_;
    for (const auto& [number, segment] : segments_) {
      if (segment->unsynced.exchange(false)) unsynced.push_back(segment);
    }
  }
  for (const std::shared_ptr<Segment>& segment : unsynced) {
    uint64_t end = 0;
    {
      MutexLock appending(segment->appending);
      end = segment->end;
    }
    if (::fdatasync(segment->file.get()) != 0) {
      return Fail(ErrnoStatus(errno, Concat("sync ", segment->path.string())));
    }
    segment->synced = end;
  }
  num_synced_ = reached;
  return OkStatus();
}

Result<uint64_t> LogFile::Rotate(Deadline deadline) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  // Where the disk is full, older segments go all the same.
  (void)BeginSegment(held_);
  const uint64_t begun = current_->number;
  auto num_rooms = [&]() REQUIRES(mutex_) {
    int count = 0;
    for (const auto& [number, segment] : segments_) {
      if (number < begun) count += segment->num_rooms;
    }
    return count;
  };
  while (num_rooms() > 0) {
    if (deadline.expired()) {
      return DeadlineExceeded(options_.folder.string(), ": ", num_rooms(),
                              " records of older segments are not written");
    }
    given_back_.WaitUntil(mutex_, deadline);
  }
  return begun;
}

Status LogFile::Settle(Deadline deadline) {
  MutexLock one(settling_);
  {
    MutexLock lock(mutex_);
    const auto wait_for = [&](size_t phase) REQUIRES(mutex_) -> Status {
      while (num_rooms_[phase] > 0) {
        if (deadline.expired()) {
          return DeadlineExceeded(options_.folder.string(), ": ",
                                  num_rooms_[phase],
                                  " records are not written");
        }
        given_back_.WaitUntil(mutex_, deadline);
      }
      return OkStatus();
    };
    // Those that an earlier call did not wait for to the end.
    RETURN_IF_ERROR(wait_for(1 - phase_));
    phase_ = 1 - phase_;
    RETURN_IF_ERROR(wait_for(1 - phase_));
  }
  return Sync();
}

Status LogFile::RemoveBefore(uint64_t segment) {
  MutexLock lock(mutex_);
  while (!segments_.empty() && segments_.begin()->first < segment) {
    const Segment& old = *segments_.begin()->second;
    if (spare_.size() + segments_.size() <= most_segments_ &&
        old.capacity == options_.segment_byte_size) {
      const Path spare = options_.folder / Concat("spare.", old.number);
      std::error_code error;
      std::filesystem::rename(old.path, spare, error);
      if (error) {
        return ErrnoStatus(error.value(), Concat("rename ", old.path.string()));
      }
      spare_.push_back(spare);
    } else {
      RETURN_IF_ERROR(Remove(old.path));
    }
    segments_.erase(segments_.begin());
  }
  return OkStatus();
}

uint64_t LogFile::segment() const {
  MutexLock lock(mutex_);
  return current_->number;
}

uint64_t LogFile::byte_size() const {
  MutexLock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [number, segment] : segments_) sum += segment->reserved;
  return sum;
}

uint64_t LogFile::disk_size() const {
  MutexLock lock(mutex_);
  uint64_t sum = options_.segment_byte_size;
  for (const auto& [number, segment] : segments_) sum += segment->capacity;
  return sum;
}

void LogRecords::Unmap::operator()(const std::byte* bytes) const {
  (void)::munmap(const_cast<std::byte*>(bytes), byte_size);
}

Result<LogRecords> LogRecords::Read(const Path& folder, uint64_t first) {
  LogRecords records;
  if (!Exists(folder)) return records;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::vector<uint64_t> numbers;
  for (const std::string& name : names) {
    const std::optional<uint64_t> number = NumberIn(name, "log.");
    if (!number.has_value()) continue;
    records.next_segment_ = std::max(records.next_segment_, *number + 1);
    if (*number >= first) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  // They are removed from the first on, and each is there before the next.
  uint64_t expected = first > 0 || numbers.empty() ? first : numbers.front();
  const bool none_yet = first <= 1 && numbers.empty();
  for (const uint64_t number : numbers) {
    if (number != expected) break;
    ++expected;
  }
  if (!none_yet && (numbers.empty() || expected != records.next_segment_)) {
    return DataLoss(PathOfSegment(folder, expected).string(), " is missing");
  }
  for (const uint64_t number : numbers) {
    RETURN_IF_ERROR(records.ReadSegment(PathOfSegment(folder, number), number));
  }
  return records;
}

Status LogRecords::ReadSegment(const Path& path, uint64_t number) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found = {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0) {
    return ErrnoStatus(errno, Concat("open ", path.string()));
  }
  const auto byte_size = static_cast<size_t>(found.st_size);
  if (byte_size < sizeof(RecordHead)) return OkStatus();
  void* const mapped =
      ::mmap(nullptr, byte_size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) {
    return ErrnoStatus(errno, Concat("map ", path.string()));
  }
  files_.emplace_back(static_cast<const std::byte*>(mapped), Unmap{byte_size});
  const std::span<const std::byte> bytes(files_.back().get(), byte_size);
  const uint64_t tag = TagOf(number);
  // The record at `at`; nothing where there is none.
  RecordHead head;
  auto record_at = [&](size_t at) -> std::optional<std::span<const std::byte>> {
    head = LoadAt<RecordHead>(bytes, at);
    if (head.tag != tag) return std::nullopt;
    const size_t room = byte_size - at - sizeof(RecordHead);
    if (head.byte_size > room) return std::nullopt;
    const auto record = bytes.subspan(at + sizeof(RecordHead), head.byte_size);
    if (Crc32c(record, CrcOf(head)) != head.crc) return std::nullopt;
    return record;
  };
  const size_t last = byte_size - sizeof(RecordHead);
  size_t at = 0;
  while (at <= last) {
    const auto record = record_at(at);
    if (!record.has_value()) break;
    all_.push_back(*record);
    at += SizeInSegment(record->size());
  }
  // What follows had not reached the disk either, or it says that this had.
  size_t num_left_out = 0;
  for (size_t after = at + 8; after <= last; after += 8) {
    if (!record_at(after).has_value()) continue;
    if (head.synced > at) {
      return DataLoss(path.string(), ": damaged at byte ", at,
                      ", before a record at byte ", after);
    }
    ++num_left_out;
  }
  if (num_left_out > 0) {
    FLEET_LOG(WARNING) << path.string() << ": " << num_left_out
                       << " records behind byte " << at
                       << " are left out: what is before them did not reach "
                          "the disk when the host failed";
  }
  return OkStatus();
}

}  // namespace fleet::base
