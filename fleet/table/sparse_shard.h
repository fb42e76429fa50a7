// SPDX-License-Identifier: Apache-2.0

// A part of a sparse table: the rows of the keys that belong to it. Private to
// table/; what its functions mean is in sparse_table.h.
//
// Invariants:
//  1. An index value below kCandidate is the number of the key's row. One at
//     or above it is a key without a row, and how often it was pulled.
//  2. With a cold store, a key is in memory, on disk or both; when both, the
//     row in memory counts. keys_ and flags_ then belong to the rows' numbers.

#ifndef FLEET_TABLE_SPARSE_SHARD_H_
#define FLEET_TABLE_SPARSE_SHARD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/optim/update.h"
#include "fleet/table/cold_store.h"
#include "fleet/table/entering_keys.h"
#include "fleet/table/key.h"
#include "fleet/table/key_index.h"
#include "fleet/table/key_set.h"
#include "fleet/table/options.h"
#include "fleet/table/row_arena.h"
#include "fleet/table/row_layout.h"
#include "fleet/table/shard_cut.h"
#include "fleet/table/turn.h"

namespace fleet::table {

// Some of the keys of a request: keys[order[i]], or keys[i] where there is no
// order. What belongs to a key has the key's place in the request.
struct KeyBatch {
  const Key* keys;
  const uint32_t* order;  // may be null
  size_t count;

  size_t place(size_t i) const { return order == nullptr ? i : order[i]; }
};

// What all shards of a table know. Changed only between calls, but for the
// step.
struct ShardSetting {
  explicit ShardSetting(const SparseTableOptions& given)
      : options(given), layout(given) {}

  SparseTableOptions options;
  RowLayout layout;
  // A shard has that of the last TakeStep.
  std::atomic<uint64_t> step = 0;
  // Seconds of training that the table went through, as Expire counts them.
  uint32_t now = 0;
};

// What a sweep over all rows does with them.
enum class SweepKind {
  kErases,   // it erases some and leaves the others as they are
  kChanges,  // it may change those that stay
};

struct ShardCounters {
  uint64_t num_rows = 0;
  uint64_t num_candidates = 0;
  uint64_t num_rows_in_memory = 0;
  uint64_t byte_size = 0;
  uint64_t cut_byte_size = 0;  // beside byte_size, while a save is written
  uint64_t num_nonfinite = 0;
};

// One thread at a time.
class SparseShard final {
 public:
  // `setting` outlives the shard. `cold` may be null.
  SparseShard(const ShardSetting& setting, std::unique_ptr<ColdStore> cold);

  // It takes the place of `other` in the table of `setting`, whose layout is
  // that of its own.
  void Replace(const SparseShard& other, const ShardSetting& setting) {
    setting_ = &setting;
    num_nonfinite_ += other.num_nonfinite_;
    TakeRate();
  }

  // The step and its rate are those of the table from here on. Called before
  // the calls below that update rows or make up for missed steps.
  void TakeStep() {
    if (setting_->step != step_) TakeRate();
  }
  uint64_t step() const { return step_; }
  // Takes the step and its rate anew, when the rates of steps have changed.
  void TakeRate();

  Status Pull(const KeyBatch& batch, bool training, const uint32_t* counts,
              float* rows);
  Status Push(const KeyBatch& batch, const float* gradients, const float* shows,
              const float* clicks);
  Status Add(const KeyBatch& batch, const float* deltas);
  Status Assign(const KeyBatch& batch, const float* rows);

  Status Accumulate(size_t worker, const KeyBatch& batch,
                    const float* gradients, const float* shows,
                    const float* clicks);
  Status ApplyAccumulated(double scale, const std::set<int>& later);
  void DropAccumulated(size_t worker);

  // By that worker; those of others are told.
  Status RecordChange(const KeyBatch& batch, size_t worker);
  std::vector<Key> TakeChanges(size_t worker, size_t max_keys);

  // Adds the changes that workers of geo training are not told of; takes back
  // what is known beside the rows.
  void AddTo(TableCut& cut) const;
  Status AddCandidate(Key key, uint64_t count);
  Status AddChange(size_t worker, Key key);

  // Whether there were updates since the last call of this.
  bool TakeTrained() { return std::exchange(trained_, false); }

  // Erases rows that `gone` names, after calling it once for each row. Workers
  // of geo training are told of them as of changes.
  Status Sweep(SweepKind kind, const std::function<bool(float* row)>& gone,
               uint64_t* num_erased);
  // Everything.
  Status Clear();

  // A save begins: what changed since the last save that counts is marked as
  // its. EndSave says whether it counts; if not, its marks count for the next.
  // A save that has not ended when another begins did not count.
  void BeginSave();
  void EndSave(bool counts);
  // The rows as they are now stay to be read until EndCut, or the next one:
  // a row that changes is put aside first. Unavailable where there is no memory
  // for it.
  Status BeginCut(const CutOptions& options);
  void EndCut();
  // Memory for rows that are put aside ran out, or somebody waited too long for
  // it: the cut is given up, and who reads it gets `why`.
  void GiveUpCut(const Status& why);
  // Null when there is none.
  const ShardCut* cut() const { return cut_.get(); }
  // The cut of that number. FailedPrecondition, or why it was given up, when it
  // is not there any more.
  Result<ShardCut*> CutOf(uint64_t number) const;
  // Some keys more of the cut are listed; true when all are.
  bool ListCut();
  void TakeFromCut(std::span<const KeyAndRow> pairs, Key* keys, float* rows) {
    cut_->Take(pairs, arena_, keys, rows);
  }
  const float* ContentInCut(uint32_t row) const {
    return cut_->Content(row, arena_);
  }
  // A row of the cut that had this score since the last delta is written, and
  // that counts no more.
  Status TakeScore(Key key, float score);
  // Keys that were erased since the last save that counts, as of BeginSave.
  // Some have a row again, which is marked.
  const std::vector<Key>& erased_in_save() const { return erased_in_save_; }
  // What is here is in a save that counts.
  void ClearMarks();
  // Room for so many more rows in memory, so that putting them there moves
  // nothing, and where it is. Then room in the index.
  Result<std::vector<std::span<std::byte>>> ReserveRows(size_t count);
  Status ReserveIndex(size_t count);
  // Puts whole rows (all of their floats) there, unmarked.
  Status PutRows(const KeyBatch& batch, const float* rows);
  // PutRows for some of `count` rows whose keys are mostly new. Nothing else
  // may be called, but Clear, before FinishAdding, which lets their keys be
  // found.
  Status AddRows(size_t count, const KeyBatch& batch, const float* rows);
  Status FinishAdding();
  Status EraseKeys(const KeyBatch& batch);

  ShardCounters counters() const;

  // The initial row, all of it.
  void FillNew(Key key, float* row) const;

 private:
  static constexpr size_t kBatch = 64;
  static constexpr uint32_t kCandidate = 0x80000000;
  static constexpr uint32_t kNoRow = KeyIndex::kNone;
  static constexpr size_t kNobody = SIZE_MAX;  // among workers

  enum class Missing {
    kLeave,   // no row for it
    kAdmit,   // as the entry rule says
    kSkip,    // a row only where the entry rule admits all
    kCreate,  // always a row
    kBlank,   // always a row, whose values the caller sets
  };

  // Pull for rows of kDim values; 0: of any number.
  template <size_t kDim>
  Status PullRows(const KeyBatch& batch, bool training, const uint32_t* counts,
                  float* rows);

  // The rows of keys [begin, begin + n) of the batch, kNoRow where there is
  // none.
  Status Locate(const KeyBatch& batch, size_t begin, size_t n, Missing missing,
                const uint32_t* counts, uint32_t* rows);
  // Brings those of the keys into memory that are on disk.
  Status FetchFromDisk(const KeyBatch& batch, size_t begin, size_t n);
  Status WriteToDisk(std::span<const uint32_t> rows);
  Result<bool> IsOnDisk(Key key);
  uint32_t MakeRow(Key key);
  uint32_t MakeBlankRow(Key key);
  bool Admits(Key key, uint32_t before, uint32_t count) const;
  Status CheckRoom() const;
  // What AddRows has left to do for some keys.
  Status Enter(std::span<const EnteringKeys::Entry> entries);
  // Rows leave memory until n more have room.
  Status MakeRoomInMemory(size_t n);
  void EraseFromMemory(Key key, uint32_t row);
  void RecordErased(std::span<const Key> keys);

  // Puts the row aside, where a cut needs it, before it changes.
  void BeforeChange(Key key, uint32_t row) {
    if (cut_ != nullptr) [[unlikely]] {
      PutAside(key, row);
    }
  }
  void PutAside(Key key, uint32_t row);
  // A key without a row, pulled so often before (none: it is new), is about to
  // be pulled again or to get one.
  void BeforeCandidateChanges(Key key, std::optional<uint64_t> count);
  // Whether the row is one of the cut's.
  bool IsInCut(uint32_t row) const {
    return cut_->Has(row) &&
           (!cut_->options().only_changed || IsMarked(in_save_, row));
  }

  // Makes up for steps that passed the row by.
  void CatchUp(float* row) const;
  void SetPowers(uint64_t step,
                 std::array<float, optim::kMaxPowers>& powers) const;
  void Touch(float* row) const;
  void MarkChanged(uint32_t row);
  // The rows' marks, a bit for each. There may be fewer than there are rows.
  using Marks = std::vector<uint64_t>;
  static bool IsMarked(const Marks& marks, uint32_t row) {
    return row / 64 < marks.size() && (marks[row / 64] >> (row % 64) & 1) != 0;
  }
  // Applies the rule to rows[i] with the gradient at gradients[i].
  void Update(const uint32_t* rows, const float* const* gradients, size_t n);
  void CountShows(float* row, Key key, float show, float click) const;
  size_t updated_columns(const float* row) const;
  optim::Slice<float> SliceOf(float* row, const float* gradient,
                              size_t columns) const;

  const ShardSetting* setting_;
  const RowLayout layout_;
  const std::unique_ptr<ColdStore> cold_;
  const bool touches_;     // rows remember more than values and state
  const bool row_by_row_;  // each row is an update of its own
  const std::vector<float> zeros_;

  uint64_t step_ = 0;
  double learning_rate_ = 0.0;

  KeyIndex index_;
  RowArena arena_;
  uint64_t num_candidates_ = 0;
  uint64_t num_nonfinite_ = 0;
  // Rows that changed since the last save began, and, while it has not ended,
  // those that changed before and are in no save that counts.
  Marks changed_;
  Marks in_save_;
  bool saving_ = false;  // between BeginSave and EndSave
  // From the first save or load on: a delta comes after one.
  bool records_erased_ = false;
  std::vector<Key> erased_;  // as changed_
  std::vector<Key> erased_in_save_;
  size_t num_distinct_erased_ = 0;        // when they were last looked through
  bool trained_ = false;                  // see TakeTrained
  std::optional<EnteringKeys> entering_;  // from AddRows to FinishAdding

  // With a cold store: of each row in memory.
  static constexpr uint8_t kUsed = 1;
  static constexpr uint8_t kNotOnDisk = 2;
  static constexpr uint8_t kLeaving = 4;
  std::vector<Key> keys_;
  std::vector<uint8_t> flags_;
  // A row on disk has the number of the save before which it changed, so that
  // EndSave need not write: from first_mark_ on it is in no save that counts,
  // and mark_ is that of the save that will begin next.
  uint32_t mark_ = 1;
  uint32_t first_mark_ = 1;
  uint32_t clock_hand_ = 0;
  uint64_t num_cold_rows_ = 0;  // on disk and not in memory

  std::unique_ptr<ShardCut> cut_;
  Status cut_given_up_;

  // Gradients of one worker that wait for ApplyAccumulated.
  struct Waiting {
    KeySet keys;
    std::vector<float> sums;
    // Shows and clicks of these keys; empty when nobody counted any.
    std::vector<float> shows;
    std::vector<float> clicks;

    void Reset();
  };
  Status AddTo(Waiting& waiting, const KeyBatch& batch, const float* gradients,
               const float* shows, const float* clicks) const;
  std::vector<Waiting> waiting_;  // by worker

  std::vector<KeySet> changes_for_;  // geo: by worker
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_SPARSE_SHARD_H_
