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

std::vector<Key> GeoRows::Unknown(std::span<const Key> keys) const {
  std::vector<Key> unknown;
  for (Key key : keys) {
    if (!Knows(key)) unknown.push_back(key);
  }
  std::ranges::sort(unknown);
  const auto repeats = std::ranges::unique(unknown);
  unknown.erase(repeats.begin(), repeats.end());
  return unknown;
}

Status GeoRows::Meet(std::span<const Key> keys, std::span<const float> rows) {
  if (std::ranges::any_of(keys, [&](Key key) { return Knows(key); })) {
    std::vector<Key> fresh;
    std::vector<float> their_rows;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (Knows(keys[i])) continue;
      fresh.push_back(keys[i]);
      const std::span<const float> row = rows.subspan(i * dim(), dim());
      their_rows.insert(their_rows.end(), row.begin(), row.end());
    }
    return Meet(fresh, their_rows);
  }
  RETURN_IF_ERROR(numbers_.Reserve(keys.size()));
  RETURN_IF_ERROR(latest_->Assign(keys, rows));
  for (Key key : keys) {
    *numbers_.FindOrInsert(key, numbers_.Home(table::HashKey(key))) =
        static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
  }
  old_.insert(old_.end(), rows.begin(), rows.end());
  changed_.resize(keys_.size());
  return OkStatus();
}

Status GeoRows::Get(std::span<const Key> keys, std::span<float> rows,
                    bool training) {
  table::PullOptions options;
  options.training = training;
  return latest_->Pull(keys, rows, options);
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

Result<GeoRows::Changes> GeoRows::TakeOwnChanges() {
  Changes taken;
  taken.deltas.resize(changes_.size() * dim());
  RETURN_IF_ERROR(Get(changes_, taken.deltas, /*training=*/false));
  taken.keys.swap(changes_);
  for (size_t i = 0; i < taken.keys.size(); ++i) {
    const uint32_t number = *numbers_.Find(taken.keys[i]);
    float* const old = OldRow(number);
    float* const delta = &taken.deltas[i * dim()];
    for (size_t c = 0; c < dim(); ++c) {
      delta[c] = (delta[c] - old[c]) * share_;
      old[c] += delta[c];
    }
    changed_[number] = false;
  }
  return taken;
}

void GeoRows::ForgetUnknown(std::vector<Key>& keys) {
  std::erase_if(keys, [&](Key key) { return !Knows(key); });
  ++num_forgotten_;
}

Status GeoRows::TakeTheirChanges(std::span<const Key> keys,
                                 std::span<const float> rows) {
  deltas_.resize(keys.size() * dim());
  for (size_t i = 0; i < keys.size(); ++i) {
    float* const old = OldRow(*numbers_.Find(keys[i]));
    for (size_t c = 0; c < dim(); ++c) {
      const float from_server = rows[i * dim() + c];
      deltas_[i * dim() + c] = from_server - old[c];
      old[c] = from_server;
    }
  }
  return latest_->Add(keys, deltas_);
}

Status GeoRows::Settle(ps::PsClient& client, Deadline deadline) {
  if (keys_.empty()) return OkStatus();
  ps::PsClient::PullOptions pull;
  pull.training = false;
  RETURN_IF_ERROR(client.Pull(id_, keys_, old_, pull, deadline));
  return latest_->Assign(keys_, old_);
}

Result<GeoRows*> GeoSync::RowsOf(const ServedTable& table) {
  base::MutexLock lock(mutex_);
  std::unique_ptr<GeoRows>& rows = rows_[table.spec.id];
  if (rows == nullptr) {
    ASSIGN_OR_RETURN(rows, GeoRows::Make(table, options_.num_workers));
  }
  return rows.get();
}

Status GeoSync::Initialize(std::span<const DenseValues> values) {
  RETURN_IF_ERROR(Mode::Initialize(values));
  base::MutexLock lock(exchange_mutex_);
  sending_dense_.Drop();
  for (const DenseValues& each : values) {
    old_[each.table].assign(each.values.begin(), each.values.end());
  }
  return OkStatus();
}

Status GeoSync::MeetKeys(GeoRows& rows, std::span<const Key> keys) {
  std::vector<Key> unknown;
  uint64_t num_forgotten = 0;
  {
    base::MutexLock lock(mutex_);
    unknown = rows.Unknown(keys);
    num_forgotten = rows.num_forgotten();
  }
  std::vector<float> values;
  while (!unknown.empty()) {
    values.resize(unknown.size() * rows.dim());
    RETURN_IF_ERROR(client_.Pull(rows.id(), unknown, values, {}, deadline()));
    base::MutexLock lock(mutex_);
    if (rows.num_forgotten() == num_forgotten) {
      return rows.Meet(unknown, values);
    }
    num_forgotten = rows.num_forgotten();
    unknown = rows.Unknown(unknown);
  }
  return OkStatus();
}

Status GeoSync::Look(GeoRows& rows, std::span<const Key> keys,
                     std::span<float> into) {
  std::vector<Key> unknown;
  {
    base::MutexLock lock(mutex_);
    unknown = rows.Unknown(keys);
    RETURN_IF_ERROR(rows.Get(keys, into, /*training=*/false));
  }
  if (unknown.empty()) return OkStatus();
  const size_t dim = rows.dim();
  std::vector<float> values(unknown.size() * dim);
  ps::PsClient::PullOptions pull;
  pull.training = false;
  RETURN_IF_ERROR(client_.Pull(rows.id(), unknown, values, pull, deadline()));
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto at = std::ranges::lower_bound(unknown, keys[i]);
    if (at == unknown.end() || *at != keys[i]) continue;
    std::copy_n(&values[static_cast<size_t>(at - unknown.begin()) * dim], dim,
                &into[i * dim]);
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
  ASSIGN_OR_RETURN(GeoRows* const rows, RowsOf(*served));
  if (options.training) {
    RETURN_IF_ERROR(MeetKeys(*rows, batch->keys));
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(rows->Get(batch->keys, batch->rows, /*training=*/true));
  } else {
    RETURN_IF_ERROR(Look(*rows, batch->keys, batch->rows));
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
  ASSIGN_OR_RETURN(GeoRows* const rows, RowsOf(*served));
  base::MutexLock lock(mutex_);
  return rows->Learn(view.keys, view.rows);
}

Status GeoSync::OfferDense(std::span<const DenseGradient>) {
  return FailedPrecondition(
      "in geo mode dense parameters are updated by the worker's optimizer, and "
      "their gradients do not leave it");
}

Status GeoSync::ExchangeDense(std::span<const DenseValues> values) {
  // What the last exchange could not bring to the servers.
  RETURN_IF_ERROR(client_.GoOn(sending_dense_, deadline()));
  if (values.empty()) return OkStatus();
  for (const DenseValues& each : values) {
    if (old_[each.table].size() != each.values.size()) {
      return FailedPrecondition(
          "table ", static_cast<uint32_t>(each.table),
          " was not initialized: run the startup program first");
    }
  }
  const auto share = 1.0f / static_cast<float>(options_.num_workers);
  std::vector<DenseGradient> deltas;
  std::vector<DenseValues> from_servers;
  for (const DenseValues& each : values) {
    std::vector<float>& old = old_[each.table];
    std::vector<float>& delta = deltas_[each.table];
    delta.resize(old.size());
    for (size_t i = 0; i < old.size(); ++i) {
      delta[i] = (each.values[i] - old[i]) * share;
      old[i] += delta[i];
    }
    deltas.push_back({each.table, delta});
    from_servers.push_back({each.table, delta});
  }
  RETURN_IF_ERROR(client_.AddDenseMany(deltas, deadline(), &sending_dense_));
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

Status GeoSync::Exchange(std::span<const DenseValues> values) {
  ASSIGN_OR_RETURN(const uint64_t turn, client_.BeginTurn(deadline()));
  const Status exchanged = ExchangeAll(values);
  const Status ended = client_.EndTurn(turn, deadline());
  return exchanged.ok() ? ended : exchanged;
}

Status GeoSync::ExchangeAll(std::span<const DenseValues> values) {
  RETURN_IF_ERROR(ExchangeDense(values));
  std::vector<GeoRows*> tables;
  {
    base::MutexLock lock(mutex_);
    for (auto& [id, rows] : rows_) tables.push_back(rows.get());
  }
  for (GeoRows* const rows : tables) RETURN_IF_ERROR(ExchangeRows(*rows));
  base::MutexLock lock(mutex_);
  ++stats_.exchanges;
  ++stats_.pushes;
  ++stats_.pulls;
  return OkStatus();
}

Status GeoSync::ExchangeRows(GeoRows& rows) {
  Exchanged& last = exchanged_[rows.id()];
  RETURN_IF_ERROR(client_.GoOn(last.sending, deadline()));
  {
    base::MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(last.mine, rows.TakeOwnChanges());
  }
  if (!last.mine.keys.empty()) {
    RETURN_IF_ERROR(client_.Add(rows.id(), last.mine.keys, last.mine.deltas,
                                deadline(), &last.sending));
  }
  // The servers name a key once. Where they have, and its row did not come, any
  // row may be another now; so it may where a server has lost updates.
  bool any = std::exchange(last.missed_theirs, true);
  ASSIGN_OR_RETURN(std::vector<Key> theirs,
                   client_.TakeChanges(rows.id(), deadline()));
  const uint64_t lost = client_.num_lost_updates();
  any = any || std::exchange(last.lost_updates, lost) != lost;
  {
    base::MutexLock lock(mutex_);
    rows.ForgetUnknown(theirs);
    if (any) theirs = rows.keys();
  }
  if (!theirs.empty()) {
    std::vector<float> values(theirs.size() * rows.dim());
    ps::PsClient::PullOptions pull;
    pull.training = false;
    RETURN_IF_ERROR(client_.Pull(rows.id(), theirs, values, pull, deadline()));
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(rows.TakeTheirChanges(theirs, values));
  }
  last.missed_theirs = false;
  return OkStatus();
}

Status GeoSync::EndStep(std::span<const DenseValues> values, HeldValues*) {
  bool exchanges = false;
  {
    base::MutexLock lock(mutex_);
    ++stats_.steps;
    ++steps_since_;
    exchanges = steps_since_ >=
                options_.geo_steps * static_cast<uint64_t>(num_threads_);
    // Those of other threads that end meanwhile count for the next one.
    if (exchanges) steps_since_ = 0;
  }
  if (exchanges) {
    base::MutexLock lock(exchange_mutex_);
    RETURN_IF_ERROR(Exchange(values));
  }
  base::MutexLock lock(mutex_);
  stats_.staleness = steps_since_;
  stats_.max_staleness = std::max(stats_.max_staleness, steps_since_);
  return OkStatus();
}

Status GeoSync::Flush(std::span<const DenseValues> values) {
  base::MutexLock exchange(exchange_mutex_);
  {
    base::MutexLock lock(mutex_);
    steps_since_ = 0;
  }
  return Exchange(values);
}

Status GeoSync::Stop(std::span<const DenseValues> values) {
  {
    base::MutexLock lock(exchange_mutex_);
    RETURN_IF_ERROR(Exchange(values));
  }
  RETURN_IF_ERROR(client_.Barrier("last exchange", deadline()));
  base::MutexLock exchange(exchange_mutex_);
  RETURN_IF_ERROR(PullDense(values));
  for (const DenseValues& each : values) {
    old_[each.table].assign(each.values.begin(), each.values.end());
  }
  base::MutexLock lock(mutex_);
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
  SynchronizerStats stats = stats_;
  stats.lost_updates = client_.num_lost_updates();
  stats.server_restarts = client_.num_server_restarts();
  return stats;
}

}  // namespace fleet::served
