// SPDX-License-Identifier: Apache-2.0

// Files as batches: read into memory first, where they can be shuffled, or
// while they are used.
//
//   ASSIGN_OR_RETURN(auto dataset, InMemoryDataset::Make(options));
//   dataset->SetFiles(files);
//   RETURN_IF_ERROR(dataset->Load(interrupt));
//   dataset->LocalShuffle(seed);
//   auto pass = dataset->BeginPass({.batch_size = 1000});
//   while (*pass->Next(batch, deadline)) ...

#ifndef FLEET_DATA_DATASET_H_
#define FLEET_DATA_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/data/batch.h"
#include "fleet/data/exchange.h"
#include "fleet/data/file_reader.h"
#include "fleet/data/multi_slot_parser.h"
#include "fleet/data/slot.h"

namespace fleet::data {

struct DatasetOptions {
  std::vector<Slot> slots = {};  // in the order of the lines
  int num_threads = 1;           // that read; one file is read by one
  // "cat": files are read as they are, without a process.
  std::string pipe_command = "cat";
  // See MultiSlotParser.
  int num_texts = 0;
  bool skip_bad_lines = false;
  size_t max_line_bytes = size_t{64} << 20;
  // Queue: blocks of a megabyte that wait to be used; then readers wait.
  size_t max_waiting_blocks = 16;
};

struct PassOptions {
  size_t batch_size = 1;  // at least 1
  // What is left at the end and does not fill a batch is left out.
  bool drop_last = false;
};

// "its 3 samples do not fill a batch of 8, and what does not is dropped"
std::string FewerThanABatch(uint64_t num_samples, size_t batch_size);

// Options that were found good, and what they come to.
struct DatasetPlan {
  DatasetOptions options;
  std::shared_ptr<const MultiSlotParser> parser;
  ReadOptions read;
};
// InvalidArgument as CheckSlots, SplitCommand, and for sizes below 1.
Result<DatasetPlan> PlanDataset(DatasetOptions options);

// Samples in memory, in an order.
struct Samples {
  std::vector<std::string> files;  // by the number that samples have
  std::vector<std::shared_ptr<const SampleBlock>> blocks;
  std::vector<SampleView> order;
};

// Thread-safe. A pass goes on with the samples and the order that it began
// with, whatever happens to the dataset.
class InMemoryDataset final {
 public:
  static Result<std::unique_ptr<InMemoryDataset>> Make(DatasetOptions options);

  void SetFiles(std::vector<std::string> files);

  // Reads all files in place of what is in memory; samples are in the order of
  // the files, whatever the number of threads. Failures are ReadFile's; memory
  // is then as it was. FailedPrecondition while a preload runs, and before
  // SetFiles; no files are no samples.
  Status Load(const base::InterruptCheck& interrupt);
  // Loads in the background; `num_threads` of 0 are those of the options.
  Status Preload(int num_threads = 0);
  // FailedPrecondition when there is no preload.
  Status WaitPreloaded(const base::InterruptCheck& interrupt);

  void LocalShuffle(uint64_t seed);
  // All workers call it: each gets as many samples as the others, or one more,
  // taken at random from those of all, in random order. Every sample comes to
  // one worker once. Beyond the samples themselves it takes a few megabytes.
  // After a failure memory is empty.
  Status GlobalShuffle(Exchange& exchange, uint64_t seed, Deadline deadline);
  // Hands the values of these slots around among the samples at random, each
  // slot for itself: what a model loses by it is what the slots are worth.
  // InvalidArgument for a slot that there is not.
  Status ShuffleSlots(const std::vector<std::string>& slots, uint64_t seed);

  // Lets the memory go, as soon as no pass uses it.
  void Release();
  uint64_t num_samples() const;
  uint64_t byte_size() const;
  // What was counted in the last load.
  ReadStats stats() const;

  std::unique_ptr<BatchSource> BeginPass(const PassOptions& options) const;
  const DatasetOptions& options() const { return plan_.options; }

 private:
  struct Loading;

  explicit InMemoryDataset(DatasetPlan plan);
  std::shared_ptr<Loading> StartLoading(int num_threads) const REQUIRES(mutex_);
  Status FinishLoading(const std::shared_ptr<Loading>& loading,
                       const base::InterruptCheck& interrupt) EXCLUDES(mutex_);
  // What may be changed: a copy where a pass reads the old one.
  Samples& OwnLocked() REQUIRES(mutex_);

  const DatasetPlan plan_;
  mutable base::Mutex mutex_;
  std::vector<std::string> files_ GUARDED_BY(mutex_);
  bool has_files_ GUARDED_BY(mutex_) = false;  // SetFiles was called
  std::shared_ptr<Samples> samples_ GUARDED_BY(mutex_);
  std::shared_ptr<Loading> loading_ GUARDED_BY(mutex_);
  ReadStats stats_ GUARDED_BY(mutex_);
};

// Reads while batches are used; with one thread in the order of the files.
// Thread-safe.
class QueueDataset final {
 public:
  static Result<std::unique_ptr<QueueDataset>> Make(DatasetOptions options);

  void SetFiles(std::vector<std::string> files);
  // Begins to read. The pass does not need the dataset.
  std::unique_ptr<BatchSource> BeginPass(const PassOptions& options) const;
  const DatasetOptions& options() const { return plan_.options; }

 private:
  explicit QueueDataset(DatasetPlan plan);

  const DatasetPlan plan_;
  mutable base::Mutex mutex_;
  std::vector<std::string> files_ GUARDED_BY(mutex_);
};

}  // namespace fleet::data

#endif  // FLEET_DATA_DATASET_H_
