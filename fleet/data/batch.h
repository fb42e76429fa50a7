// SPDX-License-Identifier: Apache-2.0

// What a step is fed: the samples of a batch, slot by slot, in flat memory.

#ifndef FLEET_DATA_BATCH_H_
#define FLEET_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/data/sample_block.h"
#include "fleet/data/slot.h"

namespace fleet::data {

using base::Deadline;

// One slot of all samples of a batch.
struct Column {
  // The values of all samples, one behind the other; the other one is empty.
  std::vector<int64_t> ints;
  std::vector<float> floats;
  // Ragged: row offsets[i] is the first of sample i; the last is the number of
  // rows. Else empty.
  std::vector<int64_t> offsets;
};

// Used again, it keeps its memory. One thread at a time.
class Batch final {
 public:
  // `samples` were parsed with `slots`.
  void Fill(const std::vector<Slot>& slots,
            std::span<const SampleView> samples);

  size_t num_samples() const { return num_samples_; }
  const std::vector<Column>& columns() const { return columns_; }

  // Set by the source: the position of this batch, from 1, and the file of its
  // first sample, for messages.
  uint64_t number = 0;
  std::string file;

 private:
  void FillRagged(const Slot& slot, Column& column);
  void FillDense(const Slot& slot, Column& column);

  size_t num_samples_ = 0;
  std::vector<Column> columns_;
  std::vector<const uint32_t*> cursors_;  // by sample: where the next slot is
};

// Batches of one pass over a dataset. Thread-safe: each batch goes to one of
// those who ask.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills `batch` with what comes next; false at the end, and from then on.
  // DeadlineExceeded: nothing is there yet, and nothing is lost. Else what went
  // wrong in reading, or what Abort was given.
  virtual Result<bool> Next(Batch& batch, Deadline deadline) = 0;

  // Ends the pass: waiters and later calls answer `why`, which is not ok.
  virtual void Abort(Status why) = 0;

  virtual const std::vector<Slot>& slots() const = 0;

  // Why a pass that has ended well had no batch, for messages: "it has no
  // files". Of another pass it says nothing.
  virtual std::string WhyEmpty() const = 0;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_BATCH_H_
