// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/file_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/log.h"
#include "fleet/data/pipe_command.h"

namespace fleet::data {
namespace {

// Bytes of a file, or of what a command makes of it.
class ByteSource final {
 public:
  static Result<ByteSource> Open(const std::string& path,
                                 const std::vector<std::string>& command) {
    ByteSource source(path);
    struct stat facts;
    if (stat(path.c_str(), &facts) != 0) return ErrnoStatus(errno, path);
    if (S_ISDIR(facts.st_mode)) {
      return ErrnoStatus(EISDIR, path + ": a dataset reads files");
    }
    if (command.empty()) {
      source.fd_ = base::Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!source.fd_.valid()) return ErrnoStatus(errno, path);
      posix_fadvise(source.fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    } else {
      ASSIGN_OR_RETURN(source.process_, PipeProcess::Start(command, path));
    }
    return source;
  }

  // 0 at the end.
  Result<size_t> Read(std::span<char> into, const StopSignal& stop) {
    if (process_ != nullptr) {
      Result<size_t> count = process_->Read(into, stop);
      if (count.ok()) return count;
      return count.status().WithContext(path_);
    }
    while (true) {
      RETURN_IF_ERROR(stop.WaitReadable(fd_.get()));
      const ssize_t count = read(fd_.get(), into.data(), into.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return ErrnoStatus(errno, path_);
    }
  }

 private:
  explicit ByteSource(std::string path) : path_(std::move(path)) {}

  std::string path_;
  base::Descriptor fd_;
  std::unique_ptr<PipeProcess> process_;
};

// Memory in which lines come together.
class LineBuffer final {
 public:
  explicit LineBuffer(size_t byte_size)
      : bytes_(std::make_unique_for_overwrite<char[]>(byte_size)),
        capacity_(byte_size) {}

  std::span<char> room() { return {bytes_.get() + end_, capacity_ - end_}; }
  void Filled(size_t count) { end_ += count; }

  // The next line without its end; none when there is no whole one.
  bool Next(std::string_view& line) {
    const char* from = bytes_.get() + searched_;
    const void* found = std::memchr(from, '\n', end_ - searched_);
    if (found == nullptr) {
      searched_ = end_;
      return false;
    }
    const size_t stop =
        static_cast<size_t>(static_cast<const char*>(found) - bytes_.get());
    line = {bytes_.get() + begin_, stop - begin_};
    begin_ = searched_ = stop + 1;
    return true;
  }
  // What is left after the last whole line.
  std::string_view rest() const {
    return {bytes_.get() + begin_, end_ - begin_};
  }

  // Room behind the rest, which moves to the front.
  void MakeRoom() {
    const size_t size = end_ - begin_;
    if (size > capacity_ / 2) {
      auto larger = std::make_unique_for_overwrite<char[]>(capacity_ * 2);
      std::memcpy(larger.get(), bytes_.get() + begin_, size);
      bytes_ = std::move(larger);
      capacity_ *= 2;
    } else {
      std::memmove(bytes_.get(), bytes_.get() + begin_, size);
    }
    searched_ -= begin_;
    begin_ = 0;
    end_ = size;
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t capacity_;
  size_t begin_ = 0;     // of the next line
  size_t searched_ = 0;  // no line ends before it
  size_t end_ = 0;
};

// One file on its way through the parser.
class FileParse final {
 public:
  FileParse(const std::string& path, uint32_t file,
            const MultiSlotParser& parser, const ReadOptions& options,
            const std::function<Status(std::unique_ptr<SampleBlock>)>& take,
            ReadStats& stats)
      : path_(path),
        file_(file),
        parser_(parser),
        options_(options),
        take_(take),
        stats_(stats) {}

  Status Run(ByteSource& source, const StopSignal& stop) {
    LineBuffer buffer(size_t{512} << 10);
    std::string_view line;
    while (true) {
      ASSIGN_OR_RETURN(const size_t count, source.Read(buffer.room(), stop));
      if (count == 0) break;
      stats_.num_bytes += count;
      buffer.Filled(count);
      while (buffer.Next(line)) RETURN_IF_ERROR(TakeLine(line));
      if (buffer.rest().size() > options_.max_line_bytes) {
        return InvalidArgument(path_, ":", num_lines_ + 1,
                               ": a line of more than ",
                               options_.max_line_bytes, " bytes");
      }
      buffer.MakeRoom();
    }
    if (!buffer.rest().empty()) RETURN_IF_ERROR(TakeLine(buffer.rest()));
    return HandOn();
  }

 private:
  Status TakeLine(std::string_view line) {
    ++num_lines_;
    ++stats_.num_lines;
    Status status = parser_.Parse(line, file_, *block_);
    if (!status.ok()) {
      status = status.WithContext(base::Concat(path_, ":", num_lines_));
      if (!options_.skip_bad_lines) return status;
      if (stats_.num_skipped++ == 0) stats_.first_skipped = status.message();
      return OkStatus();
    }
    if (block_->num_words() * sizeof(uint32_t) < options_.block_bytes) {
      return OkStatus();
    }
    return HandOn();
  }

  Status HandOn() {
    if (block_->num_samples() == 0) return OkStatus();
    stats_.num_samples += block_->num_samples();
    auto full = std::exchange(block_, NewBlock());
    full->Close();
    return take_(std::move(full));
  }

  // With room for the sample that goes beyond its size.
  std::unique_ptr<SampleBlock> NewBlock() const {
    return std::make_unique<SampleBlock>(options_.block_bytes +
                                         options_.block_bytes / 8);
  }

  const std::string& path_;
  const uint32_t file_;
  const MultiSlotParser& parser_;
  const ReadOptions& options_;
  const std::function<Status(std::unique_ptr<SampleBlock>)>& take_;
  ReadStats& stats_;
  uint64_t num_lines_ = 0;
  std::unique_ptr<SampleBlock> block_ = NewBlock();
};

}  // namespace

void ReadStats::Add(const ReadStats& other) {
  num_lines += other.num_lines;
  num_samples += other.num_samples;
  num_bytes += other.num_bytes;
  num_skipped += other.num_skipped;
  if (first_skipped.empty()) first_skipped = other.first_skipped;
}

Status ReadFile(const std::string& path, uint32_t file,
                const MultiSlotParser& parser, const ReadOptions& options,
                const StopSignal& stop,
                const std::function<Status(std::unique_ptr<SampleBlock>)>& take,
                ReadStats& stats) {
  ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path, options.command));
  return FileParse(path, file, parser, options, take, stats).Run(source, stop);
}

FileReaders::FileReaders(Work work) : work_(std::move(work)) {
  const size_t num_threads = std::max<size_t>(
      1, std::min(work_.files.size(),
                  static_cast<size_t>(std::max(work_.num_threads, 1))));
  {
    base::MutexLock lock(mutex_);
    num_reading_ = num_running_ = static_cast<int>(num_threads);
  }
  try {
    for (size_t i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { ReadFiles(); });
    }
  } catch (...) {
    stop_.Raise(Unavailable("no thread to read with"));
    throw;
  }
}

// Its threads are joined first: they are its last member.
FileReaders::~FileReaders() {
  stop_.Raise(Unavailable("the dataset was ended"));
}

void FileReaders::ReadFiles() {
  ReadStats stats;
  Status status;
  while (status.ok()) {
    const size_t file = next_file_++;
    if (file >= work_.files.size()) break;
    const auto number = static_cast<uint32_t>(file);
    status = ReadFile(
        work_.files[file], number, *work_.parser, work_.options, stop_,
        [&](std::unique_ptr<SampleBlock> block) {
          RETURN_IF_ERROR(stop_.status());
          return work_.take(number, std::move(block));
        },
        stats);
  }
  if (!status.ok()) stop_.Raise(status);
  bool last;
  {
    base::MutexLock lock(mutex_);
    stats_.Add(stats);
    if (outcome_.ok()) outcome_ = stop_.status();
    last = --num_reading_ == 0;
  }
  if (last) {
    // Nobody else changes it now.
    const ReadStats all = this->stats();
    if (all.num_skipped > 0) {
      FLEET_LOG(WARNING) << "dataset: " << all.num_skipped << " of "
                         << all.num_lines << " lines were left out, the first: "
                         << all.first_skipped;
    }
    if (work_.done) work_.done(stop_.status());
  }
  base::MutexLock lock(mutex_);
  --num_running_;
  ended_.NotifyAll();
}

Status FileReaders::Wait(Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (num_running_ > 0) {
    if (!ended_.WaitUntil(mutex_, deadline) && num_running_ > 0 &&
        deadline.expired()) {
      return DeadlineExceeded("dataset: files are still being read");
    }
  }
  return outcome_;
}

void FileReaders::Stop(Status why) { stop_.Raise(std::move(why)); }

ReadStats FileReaders::stats() const {
  base::MutexLock lock(mutex_);
  return stats_;
}

}  // namespace fleet::data
