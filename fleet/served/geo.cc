// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/geo.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fleet::served {

Result<std::unique_ptr<GeoRows>> GeoRows::Make(const ServedTable& table,
                                               int num_workers) {
  // The servers decide which keys get rows, how long they live and where they
  // lie; here are those that this worker uses.
  table::SparseTableOptions options = SparseOptions(table);
  options.entry = table::AdmitAll();
  options.count_unseen_days = false;
  options.time_to_live = {};
  options.show_click.reset();
  options.disk.reset();
  options.max_byte_size = 0;
  options.num_geo_workers = 0;
  options.num_shards = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<table::SparseTable> latest,
                   table::SparseTable::Make(options));
  return std::make_unique<GeoRows>(std::move(latest), table.spec.id,
                                   num_workers);
}

GeoRows::GeoRows(std::unique_ptr<table::SparseTable> latest, TableId id,
                 int num_workers)
    : latest_(std::move(latest)),
      id_(id),
      share_(1.0f / static_cast<float>(num_workers)) {}

Status GeoRows::MeetKeys(ps::PsClient& client, std::span<const Key> keys,
                         Deadline deadline) {
  RETURN_IF_ERROR(numbers_.Reserve(keys.size()));
  const size_t before = keys_.size();
  for (Key key : keys) {
    uint32_t* const number =
        numbers_.FindOrInsert(key, numbers_.Home(table::HashKey(key)));
    if (*number != table::KeyIndex::kNone) continue;
    *number = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
  }
  if (keys_.size() == before) return OkStatus();
  const std::span<const Key> met = std::span(keys_).subspan(before);
  old_.resize(keys_.size() * dim());
  changed_.resize(keys_.size());
  const std::span<float> rows(OldRow(before), met.size() * dim());
  Status pulled = client.Pull(id_, met, rows, {}, deadline);
  if (pulled.ok()) pulled = latest_->Assign(met, rows);
  if (pulled.ok()) return pulled;
  // Unknown again, so that the next call asks for them.
  for (Key key : met) numbers_.Erase(key);
  keys_.resize(before);
  old_.resize(before * dim());
  changed_.resize(before);
  return pulled;
}

Status GeoRows::Fetch(ps::PsClient& client, std::span<const Key> keys,
                      std::span<float> rows, bool training, Deadline deadline) {
  if (training) {
    RETURN_IF_ERROR(MeetKeys(client, keys, deadline));
    return latest_->Pull(keys, rows);
  }
  std::vector<Key> unknown;
  for (Key key : keys) {
    if (!Knows(key)) unknown.push_back(key);
  }
  table::PullOptions as_is;
  as_is.training = false;
  RETURN_IF_ERROR(latest_->Pull(keys, rows, as_is));
  if (unknown.empty()) return OkStatus();
  rows_.resize(unknown.size() * dim());
  ps::PsClient::PullOptions pull;
  pull.training = false;
  RETURN_IF_ERROR(client.Pull(id_, unknown, rows_, pull, deadline));
  const float* next = rows_.data();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (Knows(keys[i])) continue;
    std::copy_n(next, dim(), &rows[i * dim()]);
    next += dim();
  }
  return OkStatus();
}

Status GeoRows::Learn(std::span<const Key> keys,
                      std::span<const float> gradients) {
  if (keys.empty()) return OkStatus();
  const ps::ValuesOfKeys part{keys, gradients};
  merging_.Begin(std::span(&part, 1), dim(), 1);
  const size_t count = merging_.Reach(0, SIZE_MAX);
  const std::span<const Key> merged = merging_.keys(0, 0, count);
  for (Key key : merged) {
    const uint32_t* const number = numbers_.Find(key);
    if (number == nullptr) {
      return FailedPrecondition("table ", latest_->name(), ": a gradient of ",
                                key, ", which was not looked up");
    }
    if (changed_[*number]) continue;
    changed_[*number] = true;
    changes_.push_back(key);
  }
  RETURN_IF_ERROR(latest_->Push(merged, merging_.values(0, 0, count, sums_)));
  latest_->EndStep();
  return OkStatus();
}

Status GeoRows::SendChanges(ps::PsClient& client, Deadline deadline) {
  if (changes_.empty()) return OkStatus();
  const size_t dim = this->dim();
  rows_.resize(changes_.size() * dim);
  deltas_.resize(changes_.size() * dim);
  table::PullOptions as_is;
  as_is.training = false;
  RETURN_IF_ERROR(latest_->Pull(changes_, rows_, as_is));
  for (size_t i = 0; i < changes_.size(); ++i) {
    const float* const old = OldRow(*numbers_.Find(changes_[i]));
    for (size_t c = 0; c < dim; ++c) {
      deltas_[i * dim + c] = (rows_[i * dim + c] - old[c]) * share_;
    }
  }
  RETURN_IF_ERROR(client.Add(id_, changes_, deltas_, deadline));
  for (size_t i = 0; i < changes_.size(); ++i) {
    const uint32_t number = *numbers_.Find(changes_[i]);
    float* const old = OldRow(number);
    for (size_t c = 0; c < dim; ++c) old[c] += deltas_[i * dim + c];
    changed_[number] = false;
  }
  changes_.clear();
  return OkStatus();
}

Status GeoRows::TakeChanges(ps::PsClient& client, Deadline deadline) {
  ASSIGN_OR_RETURN(std::vector<Key> keys, client.TakeChanges(id_, deadline));
  // A row that was never here is asked for when it is needed.
  std::erase_if(keys, [&](Key key) { return !Knows(key); });
  if (keys.empty()) return OkStatus();
  const size_t dim = this->dim();
  deltas_.resize(keys.size() * dim);
  rows_.resize(keys.size() * dim);
  ps::PsClient::PullOptions pull;
  pull.training = false;
  RETURN_IF_ERROR(client.Pull(id_, keys, deltas_, pull, deadline));
  for (size_t i = 0; i < keys.size(); ++i) {
    float* const old = OldRow(*numbers_.Find(keys[i]));
    for (size_t c = 0; c < dim; ++c) {
      const float from_server = deltas_[i * dim + c];
      deltas_[i * dim + c] = from_server - old[c];
      old[c] = from_server;
    }
  }
  return latest_->Add(keys, deltas_);
}

Status GeoRows::Exchange(ps::PsClient& client, Deadline deadline) {
  RETURN_IF_ERROR(SendChanges(client, deadline));
  return TakeChanges(client, deadline);
}

Status GeoRows::Settle(ps::PsClient& client, Deadline deadline) {
  if (keys_.empty()) return OkStatus();
  ps::PsClient::PullOptions pull;
  pull.training = false;
  RETURN_IF_ERROR(client.Pull(id_, keys_, old_, pull, deadline));
  return latest_->Assign(keys_, old_);
}

Status GeoSync::AddTables(std::vector<ServedTable> tables) {
  tables_.Add(std::move(tables));
  return OkStatus();
}

Result<GeoRows*> GeoSync::RowsLocked(const ServedTable& table) {
  std::unique_ptr<GeoRows>& rows = rows_[table.spec.id];
  if (rows == nullptr) {
    ASSIGN_OR_RETURN(rows, GeoRows::Make(table, options_.num_workers));
  }
  return rows.get();
}

Status GeoSync::Initialize(std::span<const DenseValues> values) {
  RETURN_IF_ERROR(
      InitializeDense(client_, options_.worker == 0, values, deadline()));
  base::MutexLock lock(mutex_);
  for (const DenseValues& each : values) {
    old_[each.table].assign(each.values.begin(), each.values.end());
  }
  return OkStatus();
}

Status GeoSync::Fetch(TableId table, std::span<const RowsOfIds> lookups,
                      const LookupOptions& options) {
  ASSIGN_OR_RETURN(const ServedTable* const served, tables_.FindSparse(table));
  RETURN_IF_ERROR(CheckLists(*served, lookups, options));
  const BatchPool::Lease batch(pool_);
  Collect(lookups, options, batch->keys);
  batch->rows.resize(batch->keys.size() * DimOf(*served));
  {
    base::MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(GeoRows* const rows, RowsLocked(*served));
    RETURN_IF_ERROR(rows->Fetch(client_, batch->keys, batch->rows,
                                options.training, deadline()));
  }
  Spread(DimOf(*served), batch->rows, lookups, options);
  return OkStatus();
}

Status GeoSync::Offer(TableId table, std::span<const GradientsOfIds> gradients,
                      const LookupOptions& options) {
  ASSIGN_OR_RETURN(const ServedTable* const served, tables_.FindSparse(table));
  RETURN_IF_ERROR(CheckLists(*served, gradients, options));
  const BatchPool::Lease batch(pool_);
  const RowView view = Join(DimOf(*served), gradients, options, *batch);
  base::MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(GeoRows* const rows, RowsLocked(*served));
  return rows->Learn(view.keys, view.rows);
}

Status GeoSync::OfferDense(std::span<const DenseGradient>) {
  return FailedPrecondition(
      "in geo mode dense parameters are updated by the worker's optimizer, and "
      "their gradients do not leave it");
}

Status GeoSync::ExchangeDenseLocked(std::span<const DenseValues> values) {
  if (values.empty()) return OkStatus();
  const auto share = 1.0f / static_cast<float>(options_.num_workers);
  std::vector<DenseGradient> deltas;
  std::vector<DenseValues> from_servers;
  for (const DenseValues& each : values) {
    std::vector<float>& old = old_[each.table];
    if (old.size() != each.values.size()) {
      return FailedPrecondition(
          "table ", static_cast<uint32_t>(each.table),
          " was not initialized: run the startup program first");
    }
    std::vector<float>& delta = deltas_[each.table];
    delta.resize(old.size());
    for (size_t i = 0; i < old.size(); ++i) {
      delta[i] = (each.values[i] - old[i]) * share;
      old[i] += delta[i];
    }
    deltas.push_back({each.table, delta});
    from_servers.push_back({each.table, delta});
  }
  RETURN_IF_ERROR(client_.AddDenseMany(deltas, deadline()));
  // The memory of the deltas takes what comes.
  RETURN_IF_ERROR(client_.PullDenseMany(from_servers, deadline()));
  for (const DenseValues& each : values) {
    std::vector<float>& old = old_[each.table];
    const std::vector<float>& server = deltas_[each.table];
    for (size_t i = 0; i < old.size(); ++i) {
      each.values[i] += server[i] - old[i];
    }
    old = server;
  }
  return OkStatus();
}

Status GeoSync::ExchangeLocked(std::span<const DenseValues> values) {
  steps_since_ = 0;
  ASSIGN_OR_RETURN(const uint64_t turn, client_.BeginTurn(deadline()));
  const Status exchanged = ExchangeAllLocked(values);
  const Status ended = client_.EndTurn(turn, deadline());
  return exchanged.ok() ? ended : exchanged;
}

Status GeoSync::ExchangeAllLocked(std::span<const DenseValues> values) {
  RETURN_IF_ERROR(ExchangeDenseLocked(values));
  for (auto& [id, rows] : rows_) {
    RETURN_IF_ERROR(rows->Exchange(client_, deadline()));
  }
  ++stats_.exchanges;
  ++stats_.pushes;
  ++stats_.pulls;
  return OkStatus();
}

Status GeoSync::EndStep(std::span<const DenseValues> values,
                        HeldValues*) {
  base::MutexLock lock(mutex_);
  ++stats_.steps;
  ++steps_since_;
  const auto period = options_.geo_steps * static_cast<uint64_t>(num_threads_);
  if (steps_since_ >= period) RETURN_IF_ERROR(ExchangeLocked(values));
  stats_.staleness = steps_since_;
  stats_.max_staleness = std::max(stats_.max_staleness, steps_since_);
  return OkStatus();
}

Status GeoSync::PullDense(std::span<const DenseValues> values) {
  if (values.empty()) return OkStatus();
  return client_.PullDenseMany(values, deadline());
}

Status GeoSync::Flush(std::span<const DenseValues> values) {
  base::MutexLock lock(mutex_);
  return ExchangeLocked(values);
}

Status GeoSync::Stop(std::span<const DenseValues> values) {
  {
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(ExchangeLocked(values));
  }
  RETURN_IF_ERROR(client_.Barrier("last exchange", deadline()));
  base::MutexLock lock(mutex_);
  RETURN_IF_ERROR(PullDense(values));
  for (const DenseValues& each : values) {
    old_[each.table].assign(each.values.begin(), each.values.end());
  }
  for (auto& [id, rows] : rows_) {
    RETURN_IF_ERROR(rows->Settle(client_, deadline()));
  }
  return OkStatus();
}

void GeoSync::BeginThreads(int count) {
  base::MutexLock lock(mutex_);
  num_threads_ = std::max(count, 1);
}

void GeoSync::EndThread() {
  base::MutexLock lock(mutex_);
  num_threads_ = std::max(num_threads_ - 1, 1);
}

SynchronizerStats GeoSync::stats() const {
  base::MutexLock lock(mutex_);
  return stats_;
}

}  // namespace fleet::served
