// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sparse_shard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <variant>

#include "fleet/base/check.h"
#include "fleet/table/row_copy.h"

namespace fleet::table {
namespace {

bool RowByRow(const optim::UpdateRule& rule) {
  // Powers are a row's own, and so are the norms of Lamb and Lars.
  return !optim::PowerNames(rule).empty() ||
         std::holds_alternative<optim::Lars>(rule);
}

}  // namespace

SparseShard::SparseShard(const ShardSetting& setting,
                         std::unique_ptr<ColdStore> cold)
    : setting_(&setting),
      layout_(setting.layout),
      cold_(std::move(cold)),
      touches_(layout_.done_steps != RowLayout::kAbsent ||
               layout_.unseen_days != RowLayout::kAbsent ||
               layout_.last_seen != RowLayout::kAbsent),
      row_by_row_(RowByRow(setting.options.update.rule)),
      zeros_(layout_.dim, 0.0f),
      arena_(layout_.stride),
      changes_for_(static_cast<size_t>(setting.options.num_geo_workers)) {
  TakeRate();
}

void SparseShard::TakeRate() {
  step_ = setting_->step;
  learning_rate_ = RateOfStep(setting_->options.update.learning_rate, step_);
}

void SparseShard::FillNew(Key key, float* row) const {
  const SparseTableOptions& options = setting_->options;
  const size_t dim = layout_.dim;
  FillRow(options.initializer, options.seed, key, std::span(row, dim));
  if (layout_.extended != RowLayout::kAbsent) {
    const size_t from = std::min(options.show_click->extended_from, dim);
    if (from < dim) std::fill(row + from, row + dim, 0.0f);
  }
  std::fill(row + dim, row + dim * (1 + layout_.num_state),
            static_cast<float>(optim::InitialState(options.update.rule)));
  std::fill(row + dim * (1 + layout_.num_state), row + layout_.stride, 0.0f);
  for (size_t i = 0; i < layout_.num_powers; ++i) {
    row[layout_.powers + i] =
        static_cast<float>(optim::PowerBase(options.update.rule, i));
  }
  if (layout_.done_steps != RowLayout::kAbsent) {
    StoreInteger(row, layout_.done_steps, static_cast<uint32_t>(step_));
  }
  Touch(row);
}

uint32_t SparseShard::MakeRow(Key key) {
  const uint32_t row = MakeBlankRow(key);
  FillNew(key, arena_.at(row));
  return row;
}

uint32_t SparseShard::MakeBlankRow(Key key) {
  const uint32_t row = arena_.Add();
  if (cut_ != nullptr) cut_->RowIsNew(row);
  if (changed_.size() * 64 <= row) changed_.resize(changed_.size() + 1024);
  if (cold_ != nullptr) {
    if (keys_.size() <= row) {
      keys_.resize(row + 1);
      flags_.resize(row + 1);
    }
    keys_[row] = key;
    flags_[row] = kUsed;
  }
  MarkChanged(row);
  return row;
}

bool SparseShard::Admits(Key key, uint32_t before, uint32_t count) const {
  const EntryRule& entry = setting_->options.entry;
  if (const auto* by_count = std::get_if<AdmitByCount>(&entry)) {
    return uint64_t{before} + count >= by_count->count;
  }
  if (const auto* chance = std::get_if<AdmitByProbability>(&entry)) {
    const uint64_t lot =
        HashKey(setting_->options.seed ^ 0xa0761d6478bd642f) ^ HashKey(key);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t drawn = HashKey(lot + before + i);
      if (static_cast<double>(drawn >> 11) * 0x1p-53 < chance->probability) {
        return true;
      }
    }
    return false;
  }
  return true;
}

Status SparseShard::CheckRoom() const {
  const uint64_t limit = setting_->options.max_byte_size;
  if (limit == 0) return OkStatus();
  const ShardCounters now = counters();
  if (now.byte_size * setting_->options.num_shards < limit) return OkStatus();
  return Unavailable("no memory for more rows: ", now.num_rows,
                     " rows of one of ", setting_->options.num_shards,
                     " shards take ", now.byte_size, " bytes, and the table ",
                     "may take ", limit);
}

Status SparseShard::Locate(const KeyBatch& batch, size_t begin, size_t n,
                           Missing missing, const uint32_t* counts,
                           uint32_t* rows) {
  if (cold_ != nullptr) RETURN_IF_ERROR(FetchFromDisk(batch, begin, n));
  const bool admits_all =
      std::holds_alternative<AdmitAll>(setting_->options.entry);
  const bool creates = missing == Missing::kCreate ||
                       missing == Missing::kBlank ||
                       (admits_all && missing != Missing::kLeave);
  bool inserts = creates || missing == Missing::kAdmit;
  Status no_room;
  if (inserts) {
    no_room = CheckRoom();
    inserts = no_room.ok();
  }
  if (inserts) {
    // Nothing moves from here on.
    RETURN_IF_ERROR(index_.Reserve(n));
    RETURN_IF_ERROR(arena_.Reserve(n));
  }

  // Not earlier, while the batch before is copied: the cache has few places for
  // lines that are on their way, and its rows come first.
  size_t homes[kBatch];
  for (size_t i = 0; i < n; ++i) {
    homes[i] = index_.Home(HashKey(batch.keys[batch.place(begin + i)]));
    index_.Prefetch(homes[i]);
  }
  const bool updates = missing != Missing::kAdmit && missing != Missing::kLeave;
  const size_t touched_floats = updates ? layout_.stride : layout_.dim;
  for (size_t i = 0; i < n; ++i) {
    const size_t place = batch.place(begin + i);
    const Key key = batch.keys[place];
    uint32_t* value = inserts ? index_.FindOrInsert(key, homes[i])
                              : index_.Find(key, homes[i]);
    if (value != nullptr && *value < kCandidate) [[likely]] {
      rows[i] = *value;
      arena_.Prefetch(*value, touched_floats);
      if (updates) __builtin_prefetch(&changed_[*value / 64], 1);
      continue;
    }
    rows[i] = kNoRow;
    if (!inserts) {
      if (!no_room.ok() && (value == nullptr || creates)) return no_room;
      continue;
    }
    const bool is_new = *value == KeyIndex::kNone;
    const uint32_t before = is_new ? 0 : *value - kCandidate;
    const uint32_t count = counts == nullptr ? 1 : counts[place];
    if (cut_ != nullptr && !is_new) BeforeCandidateChanges(key, before);
    if (creates || Admits(key, before, count)) {
      if (!is_new) --num_candidates_;
      rows[i] = *value =
          missing == Missing::kBlank ? MakeBlankRow(key) : MakeRow(key);
    } else {
      if (is_new) {
        ++num_candidates_;
        if (cut_ != nullptr) BeforeCandidateChanges(key, std::nullopt);
      }
      const uint64_t seen =
          std::min<uint64_t>(uint64_t{before} + count, kCandidate - 2);
      *value = kCandidate + static_cast<uint32_t>(seen);
    }
  }
  if (cold_ != nullptr) {
    for (size_t i = 0; i < n; ++i) {
      if (rows[i] != kNoRow) flags_[rows[i]] |= kUsed;
    }
  }
  return OkStatus();
}

void SparseShard::EraseFromMemory(Key key, uint32_t row) {
  index_.Erase(key);
  if (cut_ != nullptr && IsInCut(row) && cut_->Keep(key, row)) return;
  arena_.Free(row);
}

void SparseShard::MarkChanged(uint32_t row) {
  changed_[row / 64] |= uint64_t{1} << (row % 64);
  if (cold_ != nullptr) flags_[row] |= kNotOnDisk;
}

void SparseShard::Touch(float* row) const {
  if (layout_.unseen_days != RowLayout::kAbsent) {
    StoreInteger(row, layout_.unseen_days, 0);
  }
  if (layout_.last_seen != RowLayout::kAbsent) {
    StoreInteger(row, layout_.last_seen, setting_->now);
  }
}

Status SparseShard::Pull(const KeyBatch& batch, bool training,
                         const uint32_t* counts, float* rows) {
  // A size that is known makes the copy of a row a few instructions.
  switch (layout_.dim) {
    case 8:
      return PullRows<8>(batch, training, counts, rows);
    case 16:
      return PullRows<16>(batch, training, counts, rows);
    case 32:
      return PullRows<32>(batch, training, counts, rows);
    case 64:
      return PullRows<64>(batch, training, counts, rows);
    default:
      return PullRows<0>(batch, training, counts, rows);
  }
}

template <size_t kDim>
Status SparseShard::PullRows(const KeyBatch& batch, bool training,
                             const uint32_t* counts, float* rows) {
  const size_t dim = kDim == 0 ? layout_.dim : kDim;
  const bool admits_all =
      std::holds_alternative<AdmitAll>(setting_->options.entry);
  std::vector<float> initial;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(Locate(batch, begin, n,
                           training ? Missing::kAdmit : Missing::kLeave, counts,
                           located));
    for (size_t i = 0; i < n; ++i) {
      const size_t place = batch.place(begin + i);
      float* out = rows + place * dim;
      if (located[i] == kNoRow) {
        if (admits_all) {
          initial.resize(layout_.stride);
          FillNew(batch.keys[place], initial.data());
          std::memcpy(out, initial.data(), dim * sizeof(float));
        } else {
          std::fill(out, out + dim, 0.0f);
        }
        continue;
      }
      float* row = arena_.at(located[i]);
      if (touches_) {
        BeforeChange(batch.keys[place], located[i]);
        CatchUp(row);
        if (training) Touch(row);
        if (cold_ != nullptr) flags_[located[i]] |= kNotOnDisk;
      }
      std::memcpy(out, row, dim * sizeof(float));
    }
  }
  return OkStatus();
}

Status SparseShard::Assign(const KeyBatch& batch, const float* rows) {
  const size_t dim = layout_.dim;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(
        Locate(batch, begin, n, Missing::kCreate, nullptr, located));
    for (size_t i = 0; i < n; ++i) {
      float* row = arena_.at(located[i]);
      BeforeChange(batch.keys[batch.place(begin + i)], located[i]);
      CatchUp(row);
      Touch(row);
      MarkChanged(located[i]);
      std::memcpy(row, rows + batch.place(begin + i) * dim,
                  dim * sizeof(float));
    }
  }
  return OkStatus();
}

Status SparseShard::RecordChange(const KeyBatch& batch, size_t worker) {
  for (size_t other = 0; other < changes_for_.size(); ++other) {
    if (other == worker) continue;
    KeySet& changes = changes_for_[other];
    for (size_t i = 0; i < batch.count; ++i) {
      const Key key = batch.keys[batch.place(i)];
      RETURN_IF_ERROR(changes.Reserve(1));
      changes.Add(key, changes.Home(key));
    }
  }
  return OkStatus();
}

std::vector<Key> SparseShard::TakeChanges(size_t worker, size_t max_keys) {
  return changes_for_[worker].Take(max_keys);
}

void SparseShard::AddTo(TableCut& cut) const {
  cut.changes.resize(changes_for_.size());
  for (size_t worker = 0; worker < changes_for_.size(); ++worker) {
    const std::vector<Key>& keys = changes_for_[worker].keys();
    cut.changes[worker].insert(cut.changes[worker].end(), keys.begin(),
                               keys.end());
  }
}

Status SparseShard::AddCandidate(Key key, uint64_t count) {
  RETURN_IF_ERROR(index_.Reserve(1));
  uint32_t* const value = index_.FindOrInsert(key, index_.Home(HashKey(key)));
  if (*value != KeyIndex::kNone) return OkStatus();
  ++num_candidates_;
  *value = kCandidate +
           static_cast<uint32_t>(std::min<uint64_t>(count, kCandidate - 2));
  return OkStatus();
}

Status SparseShard::AddChange(size_t worker, Key key) {
  if (worker >= changes_for_.size()) {
    return DataLoss("changes for geo worker ", worker, " of ",
                    changes_for_.size());
  }
  KeySet& changes = changes_for_[worker];
  RETURN_IF_ERROR(changes.Reserve(1));
  changes.Add(key, changes.Home(key));
  return OkStatus();
}

ShardCounters SparseShard::counters() const {
  ShardCounters result;
  result.num_rows_in_memory = index_.size() - num_candidates_;
  result.num_rows = result.num_rows_in_memory + num_cold_rows_;
  result.num_candidates = num_candidates_;
  result.num_nonfinite = num_nonfinite_;
  result.byte_size = index_.byte_size() + arena_.byte_size() +
                     changed_.capacity() * 8 + erased_.capacity() * 8 +
                     in_save_.capacity() * 8 + erased_in_save_.capacity() * 8 +
                     keys_.capacity() * 8 + flags_.capacity();
  for (const Waiting& each : waiting_) {
    result.byte_size += each.keys.byte_size() + each.sums.capacity() * 4;
  }
  for (const KeySet& changes : changes_for_) {
    result.byte_size += changes.byte_size();
  }
  if (cut_ != nullptr) result.cut_byte_size = cut_->byte_size();
  return result;
}

}  // namespace fleet::table
