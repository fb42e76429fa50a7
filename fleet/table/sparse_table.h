// SPDX-License-Identifier: Apache-2.0

// Rows by key. A key is any 64 bits; its row is made when it is first asked
// for, and is its values and the optimizer's state side by side.
//
//   ASSIGN_OR_RETURN(auto table, SparseTable::Make(options));
//   RETURN_IF_ERROR(table->Pull(keys, rows));       // rows: keys.size() * dim
//   RETURN_IF_ERROR(table->Push(keys, gradients));
//
// Failures name the table. InvalidArgument where sizes do not fit; Unavailable
// when there is no memory or disk for a new row, in which case a part of the
// keys may have been treated. Thread-safe: a request takes the lock of each
// shard for its keys there, so two requests may mix, but a row is never seen
// half updated.

#ifndef FLEET_TABLE_SPARSE_TABLE_H_
#define FLEET_TABLE_SPARSE_TABLE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/table/key.h"
#include "fleet/table/options.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/turn.h"

namespace fleet::table {

class AllLocked;
struct KeyBatch;
struct LockedShard;
struct ShardSetting;
enum class SweepKind;

struct PullOptions {
  // Training makes rows and counts towards the entry rule. Otherwise nothing
  // changes, and a key without a row reads as its row would when new.
  bool training = true;
  // How often each key occurs in the batch, for the entry rule; empty: once.
  std::span<const uint32_t> counts;
  // Where its turns are added (turn.h), here and below; null: nowhere.
  Turns* turns = nullptr;
};

struct PushOptions {
  // For tables with show_click: how often each key was shown and clicked.
  // Empty: not at all.
  std::span<const float> shows;
  std::span<const float> clicks;
  Turns* turns = nullptr;
};

// What a base or delta save takes, beside all that changed.
enum class SaveFilter {
  kAllRows,
  // Where the table has show_click: rows with a score of base_threshold, a
  // score since the last delta save of delta_threshold, seen in the last
  // delta_keep_days.
  kByScore,
};

struct SaveOptions {
  SaveId id;  // see saved_table.h
  SaveFilter filter = SaveFilter::kAllRows;
  // Rows that change before they are written are put aside, until they take so
  // much memory; then requests that change rows wait for those that are
  // written. 0: a quarter of the table's, and not less than 64 MB.
  uint64_t max_kept_byte_size = 0;
  // Where the rows are written as text, too: one line each, key, tab, values
  // with commas, sorted inside a shard. Empty: nowhere.
  base::Path text_file;
  // BeginSave fills it with what belongs to the rows, but for candidates, which
  // WriteRows returns; null: nobody asks.
  TableCut* cut = nullptr;
};

struct SparseTableStats {
  uint64_t num_rows = 0;
  uint64_t num_candidates = 0;      // keys that the entry rule holds back
  uint64_t num_rows_in_memory = 0;  // fewer than num_rows with `disk`
  uint64_t byte_size = 0;           // memory that it takes
  uint64_t save_byte_size = 0;      // beside it, while a save is written
  uint64_t num_nonfinite = 0;       // gradients of a row with NaN or infinity
  uint64_t step = 0;
  uint64_t num_expired = 0;  // rows that Expire erased
};

class SparseTable final {
 public:
  // InvalidArgument for options that do not fit; Unimplemented for `disk`
  // without RocksDB.
  static Result<std::unique_ptr<SparseTable>> Make(
      const SparseTableOptions& options);

  // Fills rows[i * dim ...] with the row of keys[i].
  Status Pull(std::span<const Key> keys, std::span<float> rows,
              const PullOptions& options = {});

  // Applies the update rule to the row of each key, with its gradient. A key
  // that was never pulled gets its row first, where the entry rule admits all;
  // else it is left out. A key that occurs twice is updated twice.
  Status Push(std::span<const Key> keys, std::span<const float> gradients,
              const PushOptions& options = {});

  // Adds to the rows, without a rule. Makes rows whatever the entry rule says.
  Status Add(std::span<const Key> keys, std::span<const float> deltas,
             Turns* turns = nullptr);
  // Adds for a worker of geo training: others are told by TakeChanges.
  Status AddFrom(int worker, std::span<const Key> keys,
                 std::span<const float> deltas, Turns* turns = nullptr);
  // The keys that workers other than this one added to since its last call,
  // each once; `max_keys` of them at most, the others stay for the next call.
  Result<std::vector<Key>> TakeChanges(int worker, size_t max_keys = SIZE_MAX,
                                       Turns* turns = nullptr);

  // Sets values; state stays.
  Status Assign(std::span<const Key> keys, std::span<const float> rows);

  // Synchronous training: gradients are summed by worker and key, and wait.
  // Apply then pushes each key's sum times `scale` (one over the number of
  // workers). Sums of workers are added in their order, whoever came first.
  // Shows and clicks are summed, too, and count as their sum. Those of the
  // workers `later` stay: they are of a later step.
  Status Accumulate(int worker, std::span<const Key> keys,
                    std::span<const float> gradients,
                    const PushOptions& options = {});
  Status ApplyAccumulated(double scale, const std::set<int>& later = {},
                          Turns* turns = nullptr);
  // What waits of a worker is left out.
  void DropAccumulated(int worker, Turns* turns = nullptr);

  // So many steps of training are over: the learning rate's schedule moves on.
  void EndStep(uint64_t count = 1, Turns* turns = nullptr);
  // For who does logged requests again: the step that their turns saw.
  void SetStep(uint64_t step);

  // From now on the rate is `rate` where it is told by that name (ToldRate).
  // Returns whether it is.
  bool SetRate(const std::string& name, double rate, Turns* turns = nullptr);

  // A day is over: rows that nobody asked for grow older, and those that were
  // unseen for at least `max_unseen_days` days are erased. With show_click its
  // own rules decide instead. FailedPrecondition where rows do not count days.
  // Returns how many were erased.
  Result<uint64_t> Shrink(uint32_t max_unseen_days, Turns* turns = nullptr);
  // An ExpiryPeriod has passed since the call before. If there were updates in
  // it, the table's clock moves on by that much, and rows are erased that no
  // training pull or update touched for time_to_live of that clock: no earlier,
  // and at most two periods later. Otherwise nobody trains, and time stands
  // still. Saves keep how long ago a row was touched. FailedPrecondition where
  // rows have no time to live. Returns how many were erased.
  Result<uint64_t> Expire(Turns* turns = nullptr);
  // For who does logged requests again: as one that found updates.
  Result<uint64_t> ExpireAgain();
  // Whether a pull changes more than a row's being there: what it counts, or
  // how long a row was not touched.
  bool PullsCount() const;
  Status Clear();

  // A save begins: what it writes are the rows of this moment, however they
  // change from here on. Requests wait no longer than for one another. A save
  // that has begun before and has not ended did not count.
  Status BeginSave(const SaveOptions& options);
  // Writes the rows of BeginSave's moment into `folder` (save_manifest.h): all
  // of them, or those that had changed since the last save that counts. Pulls
  // and pushes go on: no lock is held while bytes are written. A row that
  // changes before it is written is put aside first; where max_kept_byte_size
  // is reached, requests that change rows wait, half a minute at most: then the
  // save is given up and fails, as it does where there is no memory for a row.
  // Whether the save counts is known later, when all tables of all servers are
  // written: then EndSave. Until it counts, what was changed stays so.
  Result<WrittenTable> WriteRows(const base::Path& folder);
  void EndSave(bool counts);
  // BeginSave and WriteRows.
  Result<WrittenTable> WriteSave(const base::Path& folder,
                                 const SaveOptions& options);
  // Takes back what BeginSave and WriteRows left in a cut, but for turns, when
  // the rows of that save are loaded.
  Status TakeCut(const TableCut& cut);
  // A save of this table alone, which counts by its list (saved_table.h) where
  // the folder has no manifest.
  Result<SaveStats> Save(const base::Path& folder, const SaveOptions& options);
  // Replaces the rows by those that a save holds, whatever number of servers
  // wrote them, as far as they belong to server `server` of `num_servers`.
  // On failure the table is empty. Unavailable where memory is short, as for
  // Save.
  Result<LoadStats> Load(const SavedModel& model, uint32_t server,
                         uint32_t num_servers);
  // Loads the newest save in the folder that is whole.
  Result<LoadStats> Load(const base::Path& folder, uint32_t server,
                         uint32_t num_servers);
  // Loads into another table, which is what Load would make of this one.
  Result<std::unique_ptr<SparseTable>> LoadApart(const SavedModel& model,
                                                 uint32_t server,
                                                 uint32_t num_servers) const;
  // This table becomes what LoadApart made, at once; that one is of no more
  // use.
  void Take(SparseTable& loaded);
  SparseTableStats stats() const;
  const std::string& name() const { return options_.name; }
  size_t dim() const { return options_.dim; }
  const SparseTableOptions& options() const { return options_; }
  uint32_t num_shards() const { return options_.num_shards; }

  explicit SparseTable(const SparseTableOptions& options);
  ~SparseTable();

 private:
  // What a request does to rows that are there.
  enum class Access {
    kReads,
    kChanges,  // waits where a save has no room for more rows
  };
  // Calls work(shard, batch) with the lock held, for the keys of each shard.
  template <typename Work>
  Status ForEachShard(Access access, std::span<const Key> keys, Turns* turns,
                      const Work& work);
  // ForEachShard for keys [from, from + count), which are few.
  template <typename Work>
  Status SplitByShard(Access access, std::span<const Key> keys, size_t from,
                      size_t count, Turns* turns, const Work& work);
  template <typename Work>
  Status InShard(Access access, uint32_t index, const KeyBatch& batch,
                 size_t from, Turns* turns, const Work& work);
  // Pulls change rows that remember when they were touched, and which rows of
  // a disk's are in memory.
  Access pull_access() const;
  void WaitForRoom(LockedShard& shard);
  // The turns of a request that has the locks of all shards.
  void AddTurns(const AllLocked& all, Turns* turns) const;
  Status CheckSizes(std::span<const Key> keys, size_t num_values,
                    const char* what) const;
  Status CheckShown(std::span<const Key> keys,
                    const PushOptions& options) const;
  Status Named(const Status& status, const char* what, size_t num_keys) const;
  // A save that has begun.
  struct Saving {
    uint64_t number = 0;  // of this table's saves
    SaveOptions options;
    uint64_t step = 0;
    uint64_t time = 0;
  };
  class ShardFile;
  Status BeginSave(const SaveOptions& options, const AllLocked& all);
  Result<WrittenTable> WriteCut(const base::Path& folder, const Saving& saving);
  // Nobody reads the cuts of that save any more.
  void EndCuts(uint64_t number);
  Result<LoadStats> LoadRows(const SavedModel& model, uint32_t server,
                             uint32_t num_servers);
  Result<uint64_t> Expire(bool only_if_trained, Turns* turns);
  Result<uint64_t> Sweep(SweepKind kind, Turns* turns,
                         const std::function<bool(float*)>& gone);

  const SparseTableOptions options_;
  // What the shards know of the table; changed with all locks held, but for the
  // step.
  const std::unique_ptr<ShardSetting> setting_;
  std::vector<LockedShard> shards_;
  // Taken after those of shards; for steps that have turns.
  base::Mutex step_mutex_;
  uint64_t num_step_turns_ GUARDED_BY(step_mutex_) = 0;
  std::atomic<uint64_t> num_expired_ = 0;
  base::Mutex saving_mutex_;  // taken after those of shards
  Saving saving_ GUARDED_BY(saving_mutex_);
  // How long requests waited for saves.
  std::atomic<int64_t> waited_ns_ = 0;
  // With `disk`: where its rows are, and whether they go with the table.
  std::string disk_folder_;
  bool disk_is_scratch_ = false;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_SPARSE_TABLE_H_
