// SPDX-License-Identifier: Apache-2.0

// A log: records that are appended one after the other, and read back after the
// process or the host has died.
//
//   ASSIGN_OR_RETURN(auto log, LogFile::Open({.folder = folder}));
//   ASSIGN_OR_RETURN(LogFile::Room room, log->Reserve(byte_size));
//   ...                                  // do what the record will tell of
//   RETURN_IF_ERROR(log->Append(std::move(room), parts));
//   RETURN_IF_ERROR(log->Sync());        // to survive the host, too
//
// What was appended survives the death of the process, what was synced that of
// the host. It lies in segments, files named log.N, whose room on the disk is
// taken before it is needed: a disk that is full shows in Reserve, when nothing
// has been done yet. docs/table_format.md has the bytes.
//
// All failures name the file. After a failure of Append or Sync every later
// call fails too: what is on the disk is not known any more. Thread-safe.

#ifndef FLEET_BASE_LOG_FILE_H_
#define FLEET_BASE_LOG_FILE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::base {

struct LogOptions {
  Path folder;         // is made where it is missing
  uint64_t first = 1;  // the number of the first segment that is written
  uint64_t segment_byte_size = uint64_t{64} << 20;
};

class LogFile final {
  struct Segment;

 public:
  static Result<std::unique_ptr<LogFile>> Open(const LogOptions& options);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();

  // Room for one record. What the record did not use is given back when the
  // room is destroyed.
  class Room final {
   public:
    Room() = default;
    Room(Room&& other) noexcept { *this = std::move(other); }
    Room& operator=(Room&& other) noexcept {
      std::swap(log_, other.log_);
      std::swap(segment_, other.segment_);
      std::swap(byte_size_, other.byte_size_);
      std::swap(used_, other.used_);
      std::swap(phase_, other.phase_);
      return *this;
    }
    ~Room() {
      if (log_ != nullptr) log_->GiveBack(*this);
    }
    // How large the record may be.
    uint64_t byte_size() const { return byte_size_; }
    // The segment into which it goes.
    uint64_t segment() const;

   private:
    friend class LogFile;
    LogFile* log_ = nullptr;
    std::shared_ptr<Segment> segment_;
    uint64_t byte_size_ = 0;
    uint64_t used_ = 0;  // by the record, with what is around it
    size_t phase_ = 0;
  };

  // Room for several records that come later, and that the disk must not be
  // full for. Given back when it is destroyed. Of one thread at a time.
  class Hold final {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept {
      std::swap(log_, other.log_);
      std::swap(byte_size_, other.byte_size_);
      return *this;
    }
    ~Hold() {
      if (log_ != nullptr) log_->GiveBack(*this);
    }
    bool holds() const { return log_ != nullptr; }

   private:
    friend class LogFile;
    LogFile* log_ = nullptr;
    uint64_t byte_size_ = 0;
  };

  // What a record takes of a hold.
  static uint64_t SizeOfRecord(uint64_t byte_size);
  // Unavailable when the disk is full.
  Result<Hold> HoldRoom(uint64_t byte_size);
  // Unavailable when the disk is full, which it is not for what `hold` has.
  Result<Room> Reserve(uint64_t byte_size, Hold* hold = nullptr);
  // One record, of the bytes of all parts. InvalidArgument when that is more
  // than the room.
  Status Append(Room room, std::span<const std::span<const std::byte>> parts);
  // Returns when all that was appended before the call is on the disk. Callers
  // that come together share one write.
  Status Sync();

  // Later records go into a new segment, whose number is returned, or on into
  // the present one where the disk has no room. By then all rooms of older
  // segments are used or given back.
  Result<uint64_t> Rotate(Deadline deadline);
  // Returns when all rooms that were taken before the call are used or given
  // back, and what was appended to them is on the disk: before somebody writes
  // elsewhere what follows from it.
  Status Settle(Deadline deadline);
  // The segments before this one are not needed any more.
  Status RemoveBefore(uint64_t segment);

  // A write or Sync has failed, so that all later calls do.
  bool has_failed() const { return has_failed_; }

  // The number of the segment into which records go.
  uint64_t segment() const;
  // The bytes of all records in segments that are not removed.
  uint64_t byte_size() const;
  // The bytes on disk of these segments and of the next one.
  uint64_t disk_size() const;

 private:
  explicit LogFile(const LogOptions& options) : options_(options) {}
  Status BeginSegment(uint64_t least_byte_size) REQUIRES(mutex_);
  void GiveBack(Room& room);
  void GiveBack(const Hold& hold);
  Status Fail(const Status& why);

  const LogOptions options_;
  mutable Mutex mutex_;
  CondVar given_back_;
  Status failure_ GUARDED_BY(mutex_);
  std::shared_ptr<Segment> current_ GUARDED_BY(mutex_);
  // The bytes of all holds. The current segment always has room for them.
  uint64_t held_ GUARDED_BY(mutex_) = 0;
  uint64_t next_number_ GUARDED_BY(mutex_) = 1;
  // All that are not removed, by number.
  std::map<uint64_t, std::shared_ptr<Segment>> segments_ GUARDED_BY(mutex_);
  // Files of removed segments, whose room is used again: it costs less to write
  // over a block of the disk than to take one. As many as were in use at once.
  std::vector<Path> spare_ GUARDED_BY(mutex_);
  size_t most_segments_ GUARDED_BY(mutex_) = 0;
  // Rooms that are not used yet, by whether they were taken before or after
  // Settle began to wait; Settle turns the phase.
  size_t phase_ GUARDED_BY(mutex_) = 0;
  std::array<int, 2> num_rooms_ GUARDED_BY(mutex_) = {};

  std::atomic<bool> has_failed_ = false;
  std::atomic<uint64_t> num_appended_ = 0;
  Mutex settling_;  // taken before syncing_
  Mutex syncing_;   // taken before mutex_
  uint64_t num_synced_ GUARDED_BY(syncing_) = 0;
};

// The records of a log whose process has died.
class LogRecords final {
 public:
  // Reads the segments from `first` on. A record that was being written when
  // the process died, or that the disk did not get before the host failed, is
  // the end of its segment. DataLoss when a segment is missing or damaged:
  // something is no record that was one on the disk, as later ones tell.
  static Result<LogRecords> Read(const Path& folder, uint64_t first);
  LogRecords(LogRecords&&) noexcept = default;
  LogRecords& operator=(LogRecords&&) noexcept = default;

  // In the order in which they were appended to their segment; segments in the
  // order of their numbers. Each begins at a multiple of 8 bytes.
  const std::vector<std::span<const std::byte>>& all() const { return all_; }
  // Above the numbers of all segments in the folder.
  uint64_t next_segment() const { return next_segment_; }

 private:
  struct Unmap {
    size_t byte_size = 0;
    void operator()(const std::byte* bytes) const;
  };
  LogRecords() = default;
  Status ReadSegment(const Path& path, uint64_t number);

  std::vector<std::unique_ptr<const std::byte, Unmap>> files_;
  std::vector<std::span<const std::byte>> all_;
  uint64_t next_segment_ = 1;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_LOG_FILE_H_
