// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sparse_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fleet/base/cores.h"
#include "fleet/base/deadline.h"
#include "fleet/table/locked_shards.h"

namespace fleet::table {

using base::Deadline;

namespace {

// Keys that are split by shard at a time: as many as a request of a worker has.
// Their order is on the stack.
constexpr size_t kSplit = kKeysOfTurn;

// After so long without room for rows that change, a save is given up.
constexpr auto kTimeForSave = std::chrono::seconds(30);

// Says that somebody is inside of a shard.
class Inside final {
 public:
  explicit Inside(LockedShard& shard) : busy_(shard.busy) {
    busy_.store(true, std::memory_order_relaxed);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { busy_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool>& busy_;
};

SparseTableOptions WithShards(SparseTableOptions options) {
  if (options.num_shards == 0) {
    options.num_shards = ShardsOnCores(base::NumCores());
  }
  return options;
}

}  // namespace

SparseTable::SparseTable(const SparseTableOptions& options)
    : options_(WithShards(options)),
      setting_(std::make_unique<ShardSetting>(options_)),
      shards_(options_.num_shards) {
  if (options_.disk.has_value()) disk_folder_ = options_.disk->folder;
}

SparseTable::~SparseTable() {
  if (!disk_is_scratch_) return;
  shards_.clear();
  // Opening replaces what is there.
  (void)OpenRocksDb(disk_folder_, 1, 1);
}

Result<std::unique_ptr<SparseTable>> SparseTable::Make(
    const SparseTableOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  auto table = std::make_unique<SparseTable>(options);
  std::vector<std::unique_ptr<ColdStore>> stores(table->shards_.size());
  if (options.disk.has_value()) {
    const std::string& folder = options.disk->folder;
    RETURN_IF_ERROR(base::MakeFolders(folder));
    auto opened = OpenRocksDb(folder, table->options_.num_shards,
                              table->setting_->layout.stride + 1);
    RETURN_IF_ERROR(opened.status().WithContext("table " + options.name));
    stores = std::move(opened).value();
  }
  for (size_t i = 0; i < table->shards_.size(); ++i) {
    LockedShard& shard = table->shards_[i];
    base::MutexLock lock(shard.mutex);
    shard.rows =
        std::make_unique<SparseShard>(*table->setting_, std::move(stores[i]));
  }
  return table;
}

Status SparseTable::Named(const Status& status, const char* what,
                          size_t num_keys) const {
  if (status.ok()) return status;
  return status.WithContext(
      base::Concat("table ", name(), ": ", what, " (", num_keys, " keys)"));
}

Status SparseTable::CheckSizes(std::span<const Key> keys, size_t num_values,
                               const char* what) const {
  if (num_values == keys.size() * dim()) return OkStatus();
  return InvalidArgument("table ", name(), ": ", what, " of ", keys.size(),
                         " keys with ", num_values, " values, where a row has ",
                         dim());
}

void SparseTable::WaitForRoom(LockedShard& shard) {
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::At(begin + kTimeForSave);
  {
    base::MutexLock lock(shard.mutex);
    while (shard.full) {
      if (shard.room.WaitUntil(shard.mutex, deadline)) continue;
      shard.rows->GiveUpCut(DeadlineExceeded(
          "requests waited ", kTimeForSave.count(),
          " s for rows to be written, and the save was given up: is the disk "
          "slow?"));
      TellWhetherFull(shard);
    }
  }
  const std::chrono::nanoseconds waited =
      std::chrono::steady_clock::now() - begin;
  waited_ns_.fetch_add(waited.count(), std::memory_order_relaxed);
}

template <typename Work>
Status SparseTable::InShard(Access access, uint32_t index,
                            const KeyBatch& batch, size_t from, Turns* turns,
                            const Work& work) {
  LockedShard& shard = shards_[index];
  if (access == Access::kChanges && shard.full.load(std::memory_order_relaxed))
      [[unlikely]] {
    WaitForRoom(shard);
  }
  shard.num_waiting.fetch_add(1, std::memory_order_relaxed);
  base::MutexLock lock(shard.mutex);
  shard.num_waiting.fetch_sub(1, std::memory_order_relaxed);
  shard.num_requests.store(
      shard.num_requests.load(std::memory_order_relaxed) + 1,
      std::memory_order_relaxed);
  const Inside inside(shard);
  shard.rows->TakeStep();
  if (turns != nullptr) {
    turns->push_back({index, static_cast<uint32_t>(from), ++shard.num_turns,
                      shard.rows->step()});
  }
  Status done = work(*shard.rows, batch);
  if (shard.rows->cut() != nullptr) [[unlikely]] {
    TellWhetherFull(shard);
  }
  return done;
}

template <typename Work>
Status SparseTable::ForEachShard(Access access, std::span<const Key> keys,
                                 Turns* turns, const Work& work) {
  const auto num_shards = static_cast<uint32_t>(shards_.size());
  if (num_shards == 1 || keys.size() == 1) {
    const uint32_t shard =
        num_shards == 1 ? 0 : ShardOfHash(HashKey(keys[0]), num_shards);
    return InShard(access, shard, KeyBatch{keys.data(), nullptr, keys.size()},
                   0, turns, work);
  }
  for (size_t from = 0; from < keys.size(); from += kSplit) {
    RETURN_IF_ERROR(SplitByShard(
        access, keys, from, std::min(kSplit, keys.size() - from), turns, work));
  }
  return OkStatus();
}

template <typename Work>
Status SparseTable::SplitByShard(Access access, std::span<const Key> keys,
                                 size_t from, size_t count, Turns* turns,
                                 const Work& work) {
  const auto num_shards = static_cast<uint32_t>(shards_.size());
  std::array<uint8_t, kSplit> shard_of;
  std::array<uint32_t, kSplit> order;
  std::array<uint32_t, kMaxShards> end;  // in `order`, by shard
  std::fill_n(end.begin(), num_shards, 0);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t shard = ShardOfHash(HashKey(keys[from + i]), num_shards);
    shard_of[i] = static_cast<uint8_t>(shard);
    ++end[shard];
  }
  uint32_t sum = 0;
  for (uint32_t s = 0; s < num_shards; ++s) {
    sum += std::exchange(end[s], sum);
  }
  for (size_t i = 0; i < count; ++i) {
    order[end[shard_of[i]]++] = static_cast<uint32_t>(from + i);
  }
  auto visit = [&](uint32_t s) -> Status {
    const uint32_t begin = s == 0 ? 0 : end[s - 1];
    return InShard(access, s,
                   KeyBatch{keys.data(), &order[begin], end[s] - begin}, from,
                   turns, work);
  };
  // Those that others are in come last, so that threads do not go from shard to
  // shard one behind the other.
  std::array<uint8_t, kMaxShards> later;
  size_t num_later = 0;
  for (uint32_t s = 0; s < num_shards; ++s) {
    if (end[s] == (s == 0 ? 0 : end[s - 1])) continue;
    if (shards_[s].busy.load(std::memory_order_relaxed)) {
      later[num_later++] = static_cast<uint8_t>(s);
      continue;
    }
    RETURN_IF_ERROR(visit(s));
  }
  for (size_t i = 0; i < num_later; ++i) RETURN_IF_ERROR(visit(later[i]));
  return OkStatus();
}

Status SparseTable::Pull(std::span<const Key> keys, std::span<float> rows,
                         const PullOptions& options) {
  RETURN_IF_ERROR(CheckSizes(keys, rows.size(), "pull"));
  if (!options.counts.empty() && options.counts.size() != keys.size()) {
    return InvalidArgument("table ", name(), ": pull of ", keys.size(),
                           " keys with ", options.counts.size(), " counts");
  }
  const uint32_t* counts =
      options.counts.empty() ? nullptr : options.counts.data();
  return Named(ForEachShard(pull_access(), keys, options.turns,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Pull(batch, options.training, counts,
                                                rows.data());
                            }),
               "pull", keys.size());
}

SparseTable::Access SparseTable::pull_access() const {
  const RowLayout& layout = setting_->layout;
  const bool touches = layout.done_steps != RowLayout::kAbsent ||
                       layout.unseen_days != RowLayout::kAbsent ||
                       layout.last_seen != RowLayout::kAbsent;
  return touches || options_.disk.has_value() ? Access::kChanges
                                              : Access::kReads;
}

Status SparseTable::CheckShown(std::span<const Key> keys,
                               const PushOptions& options) const {
  if ((!options.shows.empty() && options.shows.size() != keys.size()) ||
      (!options.clicks.empty() && options.clicks.size() != keys.size())) {
    return InvalidArgument("table ", name(), ": push of ", keys.size(),
                           " keys with ", options.shows.size(), " shows and ",
                           options.clicks.size(), " clicks");
  }
  return OkStatus();
}

Status SparseTable::Push(std::span<const Key> keys,
                         std::span<const float> gradients,
                         const PushOptions& options) {
  RETURN_IF_ERROR(CheckSizes(keys, gradients.size(), "push"));
  RETURN_IF_ERROR(CheckShown(keys, options));
  const float* shows = options.shows.empty() ? nullptr : options.shows.data();
  const float* clicks =
      options.clicks.empty() ? nullptr : options.clicks.data();
  return Named(ForEachShard(Access::kChanges, keys, options.turns,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Push(batch, gradients.data(), shows,
                                                clicks);
                            }),
               "push", keys.size());
}

Status SparseTable::Add(std::span<const Key> keys,
                        std::span<const float> deltas, Turns* turns) {
  RETURN_IF_ERROR(CheckSizes(keys, deltas.size(), "add"));
  return Named(ForEachShard(Access::kChanges, keys, turns,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Add(batch, deltas.data());
                            }),
               "add", keys.size());
}

Status SparseTable::AddFrom(int worker, std::span<const Key> keys,
                            std::span<const float> deltas, Turns* turns) {
  if (worker < 0 || worker >= setting_->options.num_geo_workers) {
    return InvalidArgument("table ", name(), ": geo worker ", worker, " of ",
                           setting_->options.num_geo_workers);
  }
  RETURN_IF_ERROR(CheckSizes(keys, deltas.size(), "add"));
  return Named(
      ForEachShard(Access::kChanges, keys, turns,
                   [&](SparseShard& shard, const KeyBatch& batch) -> Status {
                     RETURN_IF_ERROR(shard.Add(batch, deltas.data()));
                     return shard.RecordChange(batch,
                                               static_cast<size_t>(worker));
                   }),
      "add", keys.size());
}

Result<std::vector<Key>> SparseTable::TakeChanges(int worker, size_t max_keys,
                                                  Turns* turns) {
  if (worker < 0 || worker >= setting_->options.num_geo_workers) {
    return InvalidArgument("table ", name(), ": geo worker ", worker, " of ",
                           setting_->options.num_geo_workers);
  }
  std::vector<Key> all;
  for (uint32_t i = 0; i < num_shards(); ++i) {
    RETURN_IF_ERROR(InShard(Access::kReads, i, KeyBatch{}, 0, turns,
                            [&](SparseShard& shard, const KeyBatch&) {
                              const std::vector<Key> keys =
                                  shard.TakeChanges(static_cast<size_t>(worker),
                                                    max_keys - all.size());
                              all.insert(all.end(), keys.begin(), keys.end());
                              return OkStatus();
                            }));
  }
  return all;
}

Status SparseTable::Assign(std::span<const Key> keys,
                           std::span<const float> rows) {
  RETURN_IF_ERROR(CheckSizes(keys, rows.size(), "assign"));
  return Named(ForEachShard(Access::kChanges, keys, nullptr,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Assign(batch, rows.data());
                            }),
               "assign", keys.size());
}

Status SparseTable::Accumulate(int worker, std::span<const Key> keys,
                               std::span<const float> gradients,
                               const PushOptions& options) {
  RETURN_IF_ERROR(CheckSizes(keys, gradients.size(), "push"));
  RETURN_IF_ERROR(CheckShown(keys, options));
  const float* shows = options.shows.empty() ? nullptr : options.shows.data();
  const float* clicks =
      options.clicks.empty() ? nullptr : options.clicks.data();
  return Named(ForEachShard(Access::kReads, keys, options.turns,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Accumulate(
                                  static_cast<size_t>(worker), batch,
                                  gradients.data(), shows, clicks);
                            }),
               "push", keys.size());
}

Status SparseTable::ApplyAccumulated(double scale, const std::set<int>& later,
                                     Turns* turns) {
  for (uint32_t i = 0; i < num_shards(); ++i) {
    RETURN_IF_ERROR(Named(InShard(Access::kChanges, i, KeyBatch{}, 0, turns,
                                  [&](SparseShard& shard, const KeyBatch&) {
                                    return shard.ApplyAccumulated(scale, later);
                                  }),
                          "apply", 0));
  }
  return OkStatus();
}

void SparseTable::DropAccumulated(int worker, Turns* turns) {
  for (uint32_t i = 0; i < num_shards(); ++i) {
    (void)InShard(Access::kReads, i, KeyBatch{}, 0, turns,
                  [&](SparseShard& shard, const KeyBatch&) {
                    shard.DropAccumulated(static_cast<size_t>(worker));
                    return OkStatus();
                  });
  }
}

void SparseTable::EndStep(uint64_t count, Turns* turns) {
  if (count == 0) return;
  // The next call in a shard sees it, and works out the rate.
  if (turns == nullptr) {
    setting_->step += count;
    return;
  }
  base::MutexLock lock(step_mutex_);
  setting_->step += count;
  turns->push_back({num_shards(), 0, ++num_step_turns_, 0});
}

void SparseTable::SetStep(uint64_t step) { setting_->step = step; }

void SparseTable::AddTurns(const AllLocked& all, Turns* turns) const {
  if (turns == nullptr) return;
  for (uint32_t i = 0; i < num_shards(); ++i) {
    turns->push_back({i, 0, ++all.num_turns(i), setting_->step});
  }
}

bool SparseTable::PullsCount() const {
  const RowLayout& layout = setting_->layout;
  return !std::holds_alternative<AdmitAll>(setting_->options.entry) ||
         layout.stride >
             layout.dim * (1 + layout.num_state) + layout.num_powers;
}

bool SparseTable::SetRate(const std::string& name, double rate, Turns* turns) {
  AllLocked all(shards_);
  LearningRate& own = setting_->options.update.learning_rate;
  if (!TellRate(own, name, rate, setting_->step,
                setting_->options.count_missed_steps)) {
    return false;
  }
  for (size_t i = 0; i < shards_.size(); ++i) all[i].TakeRate();
  AddTurns(all, turns);
  return true;
}

Result<uint64_t> SparseTable::Sweep(SweepKind kind, Turns* turns,
                                    const std::function<bool(float*)>& gone) {
  const char* const what = kind == SweepKind::kErases ? "expire" : "shrink";
  uint64_t num_erased = 0;
  for (uint32_t i = 0; i < num_shards(); ++i) {
    RETURN_IF_ERROR(Named(InShard(Access::kChanges, i, KeyBatch{}, 0, turns,
                                  [&](SparseShard& shard, const KeyBatch&) {
                                    return shard.Sweep(kind, gone, &num_erased);
                                  }),
                          what, 0));
  }
  return num_erased;
}

Result<uint64_t> SparseTable::Shrink(uint32_t max_unseen_days, Turns* turns) {
  const RowLayout& layout = setting_->layout;
  if (layout.unseen_days == RowLayout::kAbsent) {
    return FailedPrecondition("table ", name(),
                              ": shrink needs rows that count unseen days "
                              "(count_unseen_days or show_click)");
  }
  return Sweep(SweepKind::kChanges, turns, [&](float* row) {
    const uint32_t days = LoadInteger(row, layout.unseen_days) + 1;
    StoreInteger(row, layout.unseen_days, days);
    if (!setting_->options.show_click.has_value()) {
      return days >= max_unseen_days;
    }
    const ShowClickOptions& options = *setting_->options.show_click;
    row[layout.show] *= static_cast<float>(options.fade);
    row[layout.click] *= static_cast<float>(options.fade);
    return Score(options, layout, row) < options.delete_threshold ||
           days > options.delete_after_unseen_days;
  });
}

Result<uint64_t> SparseTable::Expire(Turns* turns) {
  return Expire(true, turns);
}

Result<uint64_t> SparseTable::ExpireAgain() { return Expire(false, nullptr); }

Result<uint64_t> SparseTable::Expire(bool only_if_trained, Turns* turns) {
  const RowLayout& layout = setting_->layout;
  if (layout.last_seen == RowLayout::kAbsent) {
    return FailedPrecondition("table ", name(),
                              ": its rows have no time to live");
  }
  const std::chrono::seconds time_to_live = setting_->options.time_to_live;
  const std::chrono::seconds period = ExpiryPeriod(time_to_live);
  // A row has the time at which a period began, and may have been touched at
  // the end of that period.
  const auto age = static_cast<uint64_t>((time_to_live + period).count());
  auto gone = [&](const float* row) {
    return LoadInteger(row, layout.last_seen) + age <= setting_->now;
  };
  uint64_t num_erased = 0;
  {
    AllLocked all(shards_);
    bool trained = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
      trained = all[i].TakeTrained() || trained;
    }
    if (!trained && only_if_trained) return 0;
    setting_->now += static_cast<uint32_t>(period.count());
    AddTurns(all, turns);
    // Clock and rows change in one turn, so that it can be done again.
    for (size_t i = 0; i < shards_.size() && turns != nullptr; ++i) {
      RETURN_IF_ERROR(Named(all[i].Sweep(SweepKind::kErases, gone, &num_erased),
                            "expire", 0));
    }
  }
  if (turns == nullptr) {
    ASSIGN_OR_RETURN(num_erased, Sweep(SweepKind::kErases, nullptr, gone));
  }
  num_expired_.fetch_add(num_erased, std::memory_order_relaxed);
  return num_erased;
}

Status SparseTable::Clear() {
  AllLocked all(shards_);
  for (size_t i = 0; i < shards_.size(); ++i) {
    RETURN_IF_ERROR(Named(all[i].Clear(), "clear", 0));
  }
  return OkStatus();
}

SparseTableStats SparseTable::stats() const {
  AllLocked all(shards_);
  SparseTableStats result;
  result.step = setting_->step;
  result.num_expired = num_expired_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardCounters of_shard = all[i].counters();
    result.num_rows += of_shard.num_rows;
    result.num_candidates += of_shard.num_candidates;
    result.num_rows_in_memory += of_shard.num_rows_in_memory;
    result.byte_size += of_shard.byte_size;
    result.save_byte_size += of_shard.cut_byte_size;
    result.num_nonfinite += of_shard.num_nonfinite;
  }
  return result;
}

}  // namespace fleet::table
