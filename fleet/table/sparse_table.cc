// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sparse_table.h"

#include <algorithm>
#include <utility>

#include "fleet/table/locked_shards.h"

namespace fleet::table {
namespace {

// Keys that are split by shard at a time: their order stays in the cache.
constexpr size_t kSplit = 16384;

}  // namespace

SparseTable::SparseTable(const SparseTableOptions& options)
    : options_(options),
      setting_(std::make_unique<ShardSetting>(options)),
      shards_(options.num_shards) {
  setting_->learning_rate = RateOfStep(options.update.learning_rate, 0);
}

SparseTable::~SparseTable() = default;

Result<std::unique_ptr<SparseTable>> SparseTable::Make(
    const SparseTableOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  auto table = std::make_unique<SparseTable>(options);
  std::vector<std::unique_ptr<ColdStore>> stores(options.num_shards);
  if (options.disk.has_value()) {
    const std::string& folder = options.disk->folder;
    RETURN_IF_ERROR(base::MakeFolders(folder));
    auto opened = OpenRocksDb(folder, options.num_shards,
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

template <typename Work>
Status SparseTable::ForEachShard(std::span<const Key> keys, Work work) {
  if (shards_.size() == 1) {
    base::MutexLock lock(shards_[0].mutex);
    return work(*shards_[0].rows, KeyBatch{keys.data(), nullptr, keys.size()});
  }
  const auto num_shards = static_cast<uint32_t>(shards_.size());
  std::vector<uint32_t> begin(num_shards + 1);
  std::vector<uint32_t> order(std::min(kSplit, keys.size()));
  std::vector<uint32_t> shard_of(order.size());
  for (size_t from = 0; from < keys.size(); from += kSplit) {
    const size_t n = std::min(kSplit, keys.size() - from);
    std::fill(begin.begin(), begin.end(), 0);
    for (size_t i = 0; i < n; ++i) {
      shard_of[i] = ShardOfHash(HashKey(keys[from + i]), num_shards);
      ++begin[shard_of[i] + 1];
    }
    for (uint32_t s = 0; s < num_shards; ++s) begin[s + 1] += begin[s];
    std::vector<uint32_t> end(begin.begin(), begin.end() - 1);
    for (size_t i = 0; i < n; ++i) {
      order[end[shard_of[i]]++] = static_cast<uint32_t>(from + i);
    }
    for (uint32_t s = 0; s < num_shards; ++s) {
      if (begin[s] == end[s]) continue;
      base::MutexLock lock(shards_[s].mutex);
      RETURN_IF_ERROR(
          work(*shards_[s].rows,
               KeyBatch{keys.data(), &order[begin[s]], end[s] - begin[s]}));
    }
  }
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
  return Named(ForEachShard(keys,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Pull(batch, options.training, counts,
                                                rows.data());
                            }),
               "pull", keys.size());
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
  return Named(ForEachShard(keys,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Push(batch, gradients.data(), shows,
                                                clicks);
                            }),
               "push", keys.size());
}

Status SparseTable::Add(std::span<const Key> keys,
                        std::span<const float> deltas) {
  RETURN_IF_ERROR(CheckSizes(keys, deltas.size(), "add"));
  return Named(ForEachShard(keys,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Add(batch, deltas.data());
                            }),
               "add", keys.size());
}

Status SparseTable::AddFrom(int worker, std::span<const Key> keys,
                            std::span<const float> deltas) {
  if (worker < 0 || worker >= setting_->options.num_geo_workers) {
    return InvalidArgument("table ", name(), ": geo worker ", worker, " of ",
                           setting_->options.num_geo_workers);
  }
  RETURN_IF_ERROR(CheckSizes(keys, deltas.size(), "add"));
  return Named(
      ForEachShard(keys,
                   [&](SparseShard& shard, const KeyBatch& batch) -> Status {
                     RETURN_IF_ERROR(shard.Add(batch, deltas.data()));
                     return shard.RecordChange(batch,
                                               static_cast<size_t>(worker));
                   }),
      "add", keys.size());
}

Result<std::vector<Key>> SparseTable::TakeChanges(int worker, size_t max_keys) {
  if (worker < 0 || worker >= setting_->options.num_geo_workers) {
    return InvalidArgument("table ", name(), ": geo worker ", worker, " of ",
                           setting_->options.num_geo_workers);
  }
  std::vector<Key> all;
  for (LockedShard& shard : shards_) {
    base::MutexLock lock(shard.mutex);
    const std::vector<Key> keys = shard.rows->TakeChanges(
        static_cast<size_t>(worker), max_keys - all.size());
    all.insert(all.end(), keys.begin(), keys.end());
  }
  return all;
}

Status SparseTable::Assign(std::span<const Key> keys,
                           std::span<const float> rows) {
  RETURN_IF_ERROR(CheckSizes(keys, rows.size(), "assign"));
  return Named(ForEachShard(keys,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Assign(batch, rows.data());
                            }),
               "assign", keys.size());
}

Status SparseTable::Accumulate(std::span<const Key> keys,
                               std::span<const float> gradients,
                               const PushOptions& options) {
  RETURN_IF_ERROR(CheckSizes(keys, gradients.size(), "push"));
  RETURN_IF_ERROR(CheckShown(keys, options));
  const float* shows = options.shows.empty() ? nullptr : options.shows.data();
  const float* clicks =
      options.clicks.empty() ? nullptr : options.clicks.data();
  return Named(ForEachShard(keys,
                            [&](SparseShard& shard, const KeyBatch& batch) {
                              return shard.Accumulate(batch, gradients.data(),
                                                      shows, clicks);
                            }),
               "push", keys.size());
}

Status SparseTable::ApplyAccumulated(double scale) {
  for (LockedShard& shard : shards_) {
    base::MutexLock lock(shard.mutex);
    RETURN_IF_ERROR(Named(shard.rows->ApplyAccumulated(scale), "apply", 0));
  }
  return OkStatus();
}

void SparseTable::EndStep(uint64_t count) {
  if (count == 0) return;
  AllLocked all(shards_);
  setting_->step += count;
  setting_->learning_rate =
      RateOfStep(setting_->options.update.learning_rate, setting_->step);
}

bool SparseTable::SetRate(const std::string& name, double rate) {
  AllLocked all(shards_);
  LearningRate& own = setting_->options.update.learning_rate;
  if (!TellRate(own, name, rate, setting_->step,
                setting_->options.count_missed_steps)) {
    return false;
  }
  setting_->learning_rate = RateOfStep(own, setting_->step);
  return true;
}

Result<uint64_t> SparseTable::Sweep(SweepKind kind,
                                    const std::function<bool(float*)>& gone) {
  const char* const what = kind == SweepKind::kErases ? "expire" : "shrink";
  uint64_t num_erased = 0;
  for (LockedShard& shard : shards_) {
    base::MutexLock lock(shard.mutex);
    RETURN_IF_ERROR(Named(shard.rows->Sweep(kind, gone, &num_erased), what, 0));
  }
  return num_erased;
}

Result<uint64_t> SparseTable::Shrink(uint32_t max_unseen_days) {
  const RowLayout& layout = setting_->layout;
  if (layout.unseen_days == RowLayout::kAbsent) {
    return FailedPrecondition("table ", name(),
                              ": shrink needs rows that count unseen days "
                              "(count_unseen_days or show_click)");
  }
  return Sweep(SweepKind::kChanges, [&](float* row) {
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

Result<uint64_t> SparseTable::Expire() {
  const RowLayout& layout = setting_->layout;
  if (layout.last_seen == RowLayout::kAbsent) {
    return FailedPrecondition("table ", name(),
                              ": its rows have no time to live");
  }
  const std::chrono::seconds time_to_live = setting_->options.time_to_live;
  const std::chrono::seconds period = ExpiryPeriod(time_to_live);
  {
    AllLocked all(shards_);
    bool trained = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
      trained = all[i].TakeTrained() || trained;
    }
    if (!trained) return 0;
    setting_->now += static_cast<uint32_t>(period.count());
  }
  // A row has the time at which a period began, and may have been touched at
  // the end of that period.
  const auto age = static_cast<uint64_t>((time_to_live + period).count());
  ASSIGN_OR_RETURN(const uint64_t num_erased,
                   Sweep(SweepKind::kErases, [&](const float* row) {
                     return LoadInteger(row, layout.last_seen) + age <=
                            setting_->now;
                   }));
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
    result.num_nonfinite += of_shard.num_nonfinite;
  }
  return result;
}

}  // namespace fleet::table
