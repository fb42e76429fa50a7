// SPDX-License-Identifier: Apache-2.0

// A part of a dense parameter: values in a row, with the optimizer's state. A
// parameter is cut into blocks, and each server holds some neighbouring ones.

#ifndef FLEET_TABLE_DENSE_TABLE_H_
#define FLEET_TABLE_DENSE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/table/options.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/saved_table.h"

namespace fleet::table {

// Values of a block: servers hold whole blocks, and so do files, which is why
// any number of servers reads what any other number wrote.
inline constexpr uint64_t kDenseBlock = 1024;

// The values [begin, end) of a parameter.
struct DensePart {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  friend bool operator==(const DensePart&, const DensePart&) = default;
};

// What server `server` of `num_servers` holds of a parameter with `size`
// values; may be nothing. The parts of all servers are the whole. `spread`
// turns the servers, so that small parameters do not all lie on the first.
DensePart PartOfServer(uint64_t size, uint32_t server, uint32_t num_servers,
                       uint32_t spread = 0);

struct DenseTableOptions {
  std::string name;
  uint64_t size = 0;  // of the whole parameter
  DensePart part;     // begins at a block; ends at one or at `size`
  UpdateOptions update;
};

// Values are zero until Assign or Load. Failures name the table. Thread-safe.
class DenseTable final {
 public:
  static Result<std::unique_ptr<DenseTable>> Make(
      const DenseTableOptions& options);

  // The values from place `begin` of the part on.
  Status PullFrom(uint64_t begin, std::span<float> values) const;

  // All are of part().size() values; else InvalidArgument.
  Status Pull(std::span<float> values) const;
  // Applies the update rule.
  Status Push(std::span<const float> gradient);
  // Adds, without a rule (geo).
  Status Add(std::span<const float> delta);
  Status Assign(std::span<const float> values);

  // Synchronous training: gradients are summed and wait. Apply then pushes the
  // sum times `scale`, if there was one.
  Status Accumulate(std::span<const float> gradient);
  Status ApplyAccumulated(double scale);

  // So many steps of training are over: the learning rate's schedule moves on.
  void EndStep(uint64_t count = 1);

  // As for SparseTable.
  bool SetRate(const std::string& name, double rate);

  // As for SparseTable, but a delta has all values too, so that nothing depends
  // on whether a save counts; Load takes what belongs to part().
  Result<WrittenTable> WriteSave(const base::Path& folder,
                                 const SaveId& id) const;
  Result<SaveStats> Save(const base::Path& folder, const SaveId& id) const;
  Result<LoadStats> Load(const SavedModel& model);
  Result<LoadStats> Load(const base::Path& folder);
  Result<std::unique_ptr<DenseTable>> LoadApart(const SavedModel& model) const;
  void Take(DenseTable& loaded);

  // Whether Assign or Load has set values.
  bool initialized() const;
  uint64_t step() const;
  uint64_t num_nonfinite() const;
  uint64_t byte_size() const;

  const std::string& name() const { return options_.name; }
  const DensePart& part() const { return options_.part; }
  uint64_t size() const { return options_.size; }  // of the whole parameter

  explicit DenseTable(const DenseTableOptions& options);

 private:
  Status CheckSize(size_t size, const char* what) const;
  Status PushLocked(std::span<const float> gradient) REQUIRES(mutex_);
  size_t row_floats() const {
    return kDenseBlock * (1 + num_state_) + num_powers_;
  }

  const DenseTableOptions options_;
  const size_t num_state_;
  const size_t num_powers_;
  std::string layout_;

  mutable base::Mutex mutex_;
  std::vector<float> values_ GUARDED_BY(mutex_);
  std::vector<std::vector<float>> state_ GUARDED_BY(mutex_);
  std::vector<float> powers_ GUARDED_BY(mutex_);
  std::vector<float> waiting_ GUARDED_BY(mutex_);  // empty when nothing waits
  bool initialized_ GUARDED_BY(mutex_) = false;
  uint64_t step_ GUARDED_BY(mutex_) = 0;
  LearningRate learning_rate_ GUARDED_BY(mutex_);
  uint64_t num_nonfinite_ GUARDED_BY(mutex_) = 0;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_DENSE_TABLE_H_
