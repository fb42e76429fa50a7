// SPDX-License-Identifier: Apache-2.0

// Files into blocks of samples: one file here, a list of them by threads.

#ifndef FLEET_DATA_FILE_READER_H_
#define FLEET_DATA_FILE_READER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/data/multi_slot_parser.h"
#include "fleet/data/sample_block.h"
#include "fleet/data/stop_signal.h"

namespace fleet::data {

using base::Deadline;

struct ReadOptions {
  // Gets the file as its standard input; see pipe_command.h. Empty: the file is
  // read as it is.
  std::vector<std::string> command = {};
  // A line that is wrong is left out and counted. Off: it is an error.
  bool skip_bad_lines = false;
  // A longer line is an error in any case: then this is no such file.
  size_t max_line_bytes = size_t{64} << 20;
  // About the size of a block. So large that handing one on costs nothing.
  size_t block_bytes = size_t{1} << 20;
};

struct ReadStats {
  uint64_t num_lines = 0;
  uint64_t num_samples = 0;
  uint64_t num_bytes = 0;
  uint64_t num_skipped = 0;
  std::string first_skipped;  // what was wrong with it

  void Add(const ReadStats& other);
};

// Reads `path`, whose samples get the number `file`, and hands on its samples
// in order, in blocks; what `take` answers ends it. Failures of lines name
// file, line, slot and what was expected; of a command, the file and how it
// ended. `stats` also counts what was read before a failure.
Status ReadFile(const std::string& path, uint32_t file,
                const MultiSlotParser& parser, const ReadOptions& options,
                const StopSignal& stop,
                const std::function<Status(std::unique_ptr<SampleBlock>)>& take,
                ReadStats& stats);

// Threads that read a list of files, each one file at a time. The first failure
// ends all. Thread-safe.
class FileReaders final {
 public:
  struct Work {
    std::vector<std::string> files = {};
    std::shared_ptr<const MultiSlotParser> parser;
    ReadOptions options = {};
    int num_threads = 1;
    // A block of files[file]; blocks of one file come in order, from one
    // thread.
    std::function<Status(uint32_t file, std::unique_ptr<SampleBlock>)> take;
    // Called once, by the last thread, when all is read or has failed.
    std::function<void(const Status&)> done;
  };
  explicit FileReaders(Work work);
  FileReaders(const FileReaders&) = delete;
  FileReaders& operator=(const FileReaders&) = delete;
  // Stops and joins the threads.
  ~FileReaders();

  // Waits until all is read. DeadlineExceeded: not yet.
  Status Wait(Deadline deadline);
  // Ends reading with `why`, which is not ok.
  void Stop(Status why);
  ReadStats stats() const;

 private:
  void ReadFiles();

  const Work work_;
  StopSignal stop_;
  std::atomic<size_t> next_file_ = 0;
  mutable base::Mutex mutex_;
  base::CondVar ended_;
  ReadStats stats_ GUARDED_BY(mutex_);
  int num_reading_ GUARDED_BY(mutex_) = 0;  // threads that may still take
  int num_running_ GUARDED_BY(mutex_) = 0;  // and those that tell of the end
  Status outcome_ GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_FILE_READER_H_
