// SPDX-License-Identifier: Apache-2.0

// A part of a dense parameter: values in a row, with the optimizer's state. A
// parameter is cut into blocks, and each server holds some neighbouring ones.

#ifndef FLEET_TABLE_DENSE_TABLE_H_
#define FLEET_TABLE_DENSE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/table/options.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/turn.h"

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

  // All are of part().size() values; else InvalidArgument. Turns are added
  // where they are asked for (turn.h): a dense table has one part.
  Status Pull(std::span<float> values) const;
  // Applies the update rule.
  Status Push(std::span<const float> gradient, Turns* turns = nullptr);
  // Adds, without a rule (geo).
  Status Add(std::span<const float> delta, Turns* turns = nullptr);
  Status Assign(std::span<const float> values, Turns* turns = nullptr);

  // Synchronous training, as for SparseTable: gradients are summed by worker
  // and wait. Apply then pushes the sum of all, in the workers' order, times
  // `scale`, if there was one. What the workers `later` gave stays.
  Status Accumulate(int worker, std::span<const float> gradient,
                    Turns* turns = nullptr);
  Status ApplyAccumulated(double scale, const std::set<int>& later = {},
                          Turns* turns = nullptr);
  void DropAccumulated(int worker, Turns* turns = nullptr);

  // So many steps of training are over: the learning rate's schedule moves on.
  void EndStep(uint64_t count = 1, Turns* turns = nullptr);

  // As for SparseTable.
  bool SetRate(const std::string& name, double rate, Turns* turns = nullptr);

  // As for SparseTable, but a delta has all values too, so that nothing depends
  // on whether a save counts. An update changes all values: the first that
  // comes while they are written puts what is left aside, once. EndSave ends
  // one that is not written. Load takes what belongs to part().
  void BeginSave(const SaveId& id, TableCut* cut = nullptr);
  Result<WrittenTable> WriteRows(const base::Path& folder);
  void EndSave();
  Result<WrittenTable> WriteSave(const base::Path& folder, const SaveId& id,
                                 TableCut* cut = nullptr);
  Result<SaveStats> Save(const base::Path& folder, const SaveId& id);
  Result<LoadStats> Load(const SavedModel& model);
  Result<LoadStats> Load(const base::Path& folder);
  Result<std::unique_ptr<DenseTable>> LoadApart(const SavedModel& model) const;
  void Take(DenseTable& loaded);
  // After Load: what the table knew beside these values.
  void TakeCut(const TableCut& cut);

  // Whether Assign or Load has set values.
  bool initialized() const;
  uint64_t step() const;
  uint64_t num_nonfinite() const;
  uint64_t byte_size() const;
  uint64_t save_byte_size() const;  // beside it, while a save is written

  const std::string& name() const { return options_.name; }
  const DensePart& part() const { return options_.part; }
  uint64_t size() const { return options_.size; }  // of the whole parameter

  explicit DenseTable(const DenseTableOptions& options);

 private:
  // The table at the moment of a save, as far as it is not written yet.
  struct Cut {
    uint64_t number = 0;  // of this table's
    SaveId id;
    uint64_t step = 0;
    std::vector<float> powers;
    uint64_t next = 0;  // values before this one are written
    // From value `next_aside` on, where they were put aside; else they are in
    // the table.
    bool aside = false;
    uint64_t next_aside = 0;
    std::vector<float> values;
    std::vector<std::vector<float>> state;
  };

  // Values are about to change.
  void BeforeChange() REQUIRES(mutex_);
  // All values are about to be others.
  void EndCutForLoad() REQUIRES(mutex_);
  Result<WrittenTable> WriteCut(const base::Path& folder, uint64_t number);
  // The row of the block that begins at value `begin`. FailedPrecondition, or
  // why it was given up, when the cut is not there any more.
  Status TakeBlock(uint64_t number, uint64_t begin, std::vector<float>& row);
  Status CheckSize(size_t size, const char* what) const;
  Status PushLocked(std::span<const float> gradient) REQUIRES(mutex_);
  void AddTurn(Turns* turns) REQUIRES(mutex_);
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
  // By worker; empty where nothing waits.
  std::vector<std::vector<float>> waiting_ GUARDED_BY(mutex_);
  bool initialized_ GUARDED_BY(mutex_) = false;
  uint64_t step_ GUARDED_BY(mutex_) = 0;
  LearningRate learning_rate_ GUARDED_BY(mutex_);
  uint64_t num_nonfinite_ GUARDED_BY(mutex_) = 0;
  uint64_t num_turns_ GUARDED_BY(mutex_) = 0;  // that were asked for
  std::optional<Cut> cut_ GUARDED_BY(mutex_);
  uint64_t num_cuts_ GUARDED_BY(mutex_) = 0;
  Status cut_given_up_ GUARDED_BY(mutex_);
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_DENSE_TABLE_H_
