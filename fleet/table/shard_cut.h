// SPDX-License-Identifier: Apache-2.0

// The rows of a shard as they were at one moment, while the shard goes on to
// change: what a save writes. Private to table/.
//
// Invariants:
//  1. The content of a row of the cut that is not written yet is in the arena,
//     unchanged, or put aside here.
//  2. A row of the cut keeps its number, and nobody else gets that, until it is
//     written. Rows that are erased meanwhile are kept.
//  3. A key is listed once: by its place in the index, or, where it leaves the
//     index before that place is reached, when it leaves.

#ifndef FLEET_TABLE_SHARD_CUT_H_
#define FLEET_TABLE_SHARD_CUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/cold_store.h"
#include "fleet/table/key.h"
#include "fleet/table/key_set.h"
#include "fleet/table/page_memory.h"
#include "fleet/table/row_arena.h"
#include "fleet/table/sorted_keys.h"

namespace fleet::table {

// What a cut is to be.
struct CutOptions {
  uint64_t number = 0;        // of the table's cuts: a later one is another
  bool only_changed = false;  // rows that are marked as the save's
  bool candidates = false;    // with the keys that the entry rule holds back
  // Rows that may be put aside, and kept, before requests wait.
  uint64_t max_kept = UINT64_MAX;
};

// What of the cut is on disk.
struct ColdCut {
  std::unique_ptr<ColdSnapshot> rows;  // also of keys that are in memory, too
  uint64_t num_rows = 0;               // without those
  uint32_t first_mark = 0;  // marks from this one on: in no save that counts
};

// One thread at a time, as the shard.
class ShardCut final {
 public:
  // A cut of the rows below `arena.end()`; `num_rows` are listed at most.
  // Unavailable when there is no memory.
  static Result<std::unique_ptr<ShardCut>> Make(const CutOptions& options,
                                                const RowArena& arena,
                                                size_t num_rows, ColdCut cold);

  // Without memory: use Make.
  ShardCut(const CutOptions& options, const RowArena& arena)
      : options_(options), end_(arena.end()), aside_(arena.stride()) {}

  const CutOptions& options() const { return options_; }

  // A number that was free, or that nobody had at the cut, has a new row.
  void RowIsNew(uint32_t row) {
    if (row < end_) slot(row) = kOut;
  }
  bool Has(uint32_t row) const { return row < end_ && slot(row) != kOut; }

  // Whether the row, which is about to change, must be put aside first.
  bool Needs(Key key, uint32_t row) const {
    return row < end_ && slot(row) == kHere && !IsWritten(key);
  }
  // Unavailable when there is no memory.
  Status PutAside(uint32_t row, const float* content);
  // The key leaves the index, which had its row here. Returns whether its
  // number must be kept; it is given back by Take.
  bool Keep(Key key, uint32_t row);

  // Keys with hashes below this are listed. listed() when all are.
  uint64_t next_hash() const { return next_hash_; }
  bool listed() const { return listed_; }
  void List(Key key, uint32_t row) { list_.Add(key, row); }
  void ListedBelow(uint64_t hash) { next_hash_ = hash; }
  void AllListed() { listed_ = true; }
  SortedKeys TakeList() { return std::move(list_); }
  // A key without a row, and how often it was pulled.
  void ListCandidate(Key key, uint64_t count);
  // The key, whose hash is not below next_hash(), is about to be another kind
  // of candidate than at the cut, or none: it is listed now, if it was one.
  // Unavailable when there is no memory.
  Status CandidateChanges(Key key, std::optional<uint64_t> count);
  std::vector<std::pair<Key, uint64_t>> TakeCandidates() {
    return std::move(candidates_);
  }
  ColdCut TakeCold() { return std::move(cold_); }

  // Copies the contents of some neighbours of the list, which is taken in the
  // order of its keys. Numbers that need not be kept any more go to `arena`.
  void Take(std::span<const KeyAndRow> pairs, RowArena& arena, Key* keys,
            float* rows);
  // The content of one of the list that is not taken yet.
  const float* Content(uint32_t row, const RowArena& arena) const {
    const uint32_t at = slot(row) & ~kKept;
    return at == kHere ? arena.at(row) : aside_.at(at - 1);
  }
  // It is over, written or not: gives back all numbers.
  void End(RowArena& arena);

  // Rows that are put aside or kept, and not written yet.
  uint64_t num_kept() const { return aside_.size() + num_kept_; }
  bool full() const { return num_kept() >= options_.max_kept; }
  // Numbers of erased rows that are kept.
  uint64_t num_numbers_kept() const { return num_kept_; }
  uint64_t num_put_aside() const { return num_put_aside_; }  // ever
  uint64_t most_kept() const { return most_kept_; }
  size_t byte_size() const;

 private:
  // What is known of a row: nothing, the place (from 1) at which it was put
  // aside, with a bit where its number is kept; or it is not of the cut.
  static constexpr uint32_t kHere = 0;
  static constexpr uint32_t kKept = 0x80000000;
  static constexpr uint32_t kOut = 0xffffffff;

  uint32_t& slot(uint32_t row) const {
    return reinterpret_cast<uint32_t*>(slots_.data())[row];
  }
  // Keys are written in their order.
  bool IsWritten(Key key) const { return any_taken_ && key <= last_taken_; }
  void CountKept() { most_kept_ = std::max(most_kept_, num_kept()); }

  const CutOptions options_;
  const uint32_t end_;  // rows from this number on are later
  PageMemory slots_;    // zeros, and resident only where something was put
  RowArena aside_;
  SortedKeys list_;
  ColdCut cold_;
  std::vector<std::pair<Key, uint64_t>> candidates_;
  KeySet changed_candidates_;  // that are listed, or were none
  uint64_t next_hash_ = 0;
  bool listed_ = false;
  bool any_taken_ = false;
  Key last_taken_ = 0;
  uint64_t num_kept_ = 0;
  uint64_t num_put_aside_ = 0;
  uint64_t most_kept_ = 0;
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_SHARD_CUT_H_
