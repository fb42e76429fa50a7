// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/rows.h"

#include <algorithm>
#include <cstring>
#include <variant>

namespace fleet::served {
namespace {

// An id of the user's is 64 bits, whatever its sign.
std::span<const Key> AsKeys(std::span<const int64_t> ids) {
  return {reinterpret_cast<const Key*>(ids.data()), ids.size()};
}

bool HasPadding(std::span<const int64_t> ids, const LookupOptions& options) {
  if (options.padding == -1) return false;
  return std::find(ids.begin(), ids.end(), options.padding) != ids.end();
}

Status CheckIds(const ServedTable& table, std::span<const int64_t> ids,
                const LookupOptions& options) {
  if (!table.bounded) return OkStatus();
  // A negative id is a large one here, so that one comparison is enough.
  const auto bound = static_cast<uint64_t>(table.shape[0]);
  uint64_t largest = 0;
  for (int64_t id : ids) {
    largest = std::max(largest, static_cast<uint64_t>(id));
  }
  if (largest < bound) return OkStatus();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint64_t>(ids[i]) < bound) continue;
    if (options.padding != -1 && ids[i] == options.padding) continue;
    return InvalidArgument("table ", table.spec.name(), ": id ", ids[i],
                           " at place ", i, " of ", ids.size(),
                           " is not in [0, ", bound, ")");
  }
  return OkStatus();
}

Status CheckCounts(const ServedTable& table, size_t num_ids, size_t num_values,
                   const char* what) {
  const size_t dim = DimOf(table);
  if (num_values == num_ids * dim) return OkStatus();
  return InvalidArgument("table ", table.spec.name(), ": ", num_ids,
                         " ids of rows with ", dim, " values, and ", num_values,
                         " values of ", what);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the loop moves them out.
void ServedTables::Add(std::vector<ServedTable> tables) {
  base::MutexLock lock(mutex_);
  for (ServedTable& table : tables) {
    const TableId id = table.spec.id;
    tables_.try_emplace(id, std::move(table));
  }
}

const ServedTable* ServedTables::Find(TableId id) const {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(id);
  return it == tables_.end() ? nullptr : &it->second;
}

Result<const ServedTable*> ServedTables::FindSparse(TableId id) const {
  const ServedTable* table = Find(id);
  if (table != nullptr && table->sparse) return table;
  return InvalidArgument(
      "table ", static_cast<uint32_t>(id),
      table == nullptr ? " is not one of this job's" : " is a dense one");
}

const table::SparseTableOptions& SparseOptions(const ServedTable& table) {
  return std::get<table::SparseTableOptions>(table.spec.table);
}

Status CheckLists(const ServedTable& table, std::span<const RowsOfIds> lists,
                  const LookupOptions& options) {
  for (const RowsOfIds& list : lists) {
    RETURN_IF_ERROR(
        CheckCounts(table, list.ids.size(), list.rows.size(), "rows"));
    RETURN_IF_ERROR(CheckIds(table, list.ids, options));
  }
  return OkStatus();
}

Status CheckLists(const ServedTable& table,
                  std::span<const GradientsOfIds> lists,
                  const LookupOptions& options) {
  for (const GradientsOfIds& list : lists) {
    RETURN_IF_ERROR(CheckCounts(table, list.ids.size(), list.gradients.size(),
                                "gradients"));
    RETURN_IF_ERROR(CheckIds(table, list.ids, options));
    for (size_t count : {list.shows.size(), list.clicks.size()}) {
      if (count == 0 || count == list.ids.size()) continue;
      return InvalidArgument("table ", table.spec.name(), ": ", list.ids.size(),
                             " ids with ", count, " shows or clicks");
    }
  }
  return OkStatus();
}

void RowBatch::Clear() {
  keys.clear();
  rows.clear();
  shows.clear();
  clicks.clear();
}

void RowBatch::Append(size_t dim, const GradientsOfIds& list,
                      const LookupOptions& options) {
  const bool shown = !list.shows.empty();
  if (!HasPadding(list.ids, options)) {
    const std::span<const Key> added = AsKeys(list.ids);
    keys.insert(keys.end(), added.begin(), added.end());
    rows.insert(rows.end(), list.gradients.begin(), list.gradients.end());
    shows.insert(shows.end(), list.shows.begin(), list.shows.end());
    clicks.insert(clicks.end(), list.clicks.begin(), list.clicks.end());
    return;
  }
  for (size_t i = 0; i < list.ids.size(); ++i) {
    if (list.ids[i] == options.padding) continue;
    keys.push_back(static_cast<Key>(list.ids[i]));
    const auto row = list.gradients.subspan(i * dim, dim);
    rows.insert(rows.end(), row.begin(), row.end());
    if (!shown) continue;
    shows.push_back(list.shows[i]);
    clicks.push_back(list.clicks[i]);
  }
}

RowView ViewOf(const RowBatch& batch) {
  return {batch.keys, batch.rows, batch.shows, batch.clicks};
}

RowView Join(size_t dim, std::span<const GradientsOfIds> lists,
             const LookupOptions& options, RowBatch& batch) {
  if (lists.size() == 1 && !HasPadding(lists[0].ids, options)) {
    return {AsKeys(lists[0].ids), lists[0].gradients, lists[0].shows,
            lists[0].clicks};
  }
  batch.Clear();
  for (const GradientsOfIds& list : lists) batch.Append(dim, list, options);
  return ViewOf(batch);
}

std::vector<ps::ValuesOfKeys> PartsOf(std::span<const GradientsOfIds> lists,
                                      const LookupOptions& options) {
  std::vector<ps::ValuesOfKeys> parts;
  parts.reserve(lists.size());
  for (const GradientsOfIds& list : lists) {
    if (!list.shows.empty() || HasPadding(list.ids, options)) return {};
    parts.push_back({AsKeys(list.ids), list.gradients});
  }
  return parts;
}

std::unique_ptr<RowBatch> BatchPool::Take() {
  base::MutexLock lock(mutex_);
  if (idle_.empty()) return std::make_unique<RowBatch>();
  std::unique_ptr<RowBatch> batch = std::move(idle_.back());
  idle_.pop_back();
  return batch;
}

void BatchPool::Give(std::unique_ptr<RowBatch> batch) {
  base::MutexLock lock(mutex_);
  idle_.push_back(std::move(batch));
}

void Collect(std::span<const RowsOfIds> lookups, const LookupOptions& options,
             std::vector<Key>& keys) {
  keys.clear();
  for (const RowsOfIds& lookup : lookups) {
    if (!HasPadding(lookup.ids, options)) {
      const std::span<const Key> added = AsKeys(lookup.ids);
      keys.insert(keys.end(), added.begin(), added.end());
      continue;
    }
    for (int64_t id : lookup.ids) {
      if (id != options.padding) keys.push_back(static_cast<Key>(id));
    }
  }
}

void Spread(size_t dim, std::span<const float> rows,
            std::span<const RowsOfIds> lookups, const LookupOptions& options) {
  const float* next = rows.data();
  for (const RowsOfIds& lookup : lookups) {
    float* to = lookup.rows.data();
    if (!HasPadding(lookup.ids, options)) {
      if (!lookup.rows.empty()) {
        std::memcpy(to, next, lookup.rows.size_bytes());
      }
      next += lookup.rows.size();
      continue;
    }
    for (int64_t id : lookup.ids) {
      if (id == options.padding) {
        std::fill_n(to, dim, 0.0f);
      } else {
        std::copy_n(next, dim, to);
        next += dim;
      }
      to += dim;
    }
  }
}

Status PullRows(ps::PsClient& client, const ServedTable& table,
                std::span<const RowsOfIds> lookups,
                const LookupOptions& options, BatchPool& pool,
                Deadline deadline) {
  RETURN_IF_ERROR(CheckLists(table, lookups, options));
  ps::PsClient::PullOptions pull;
  pull.training = options.training;
  pull.count = options.training && !std::holds_alternative<table::AdmitAll>(
                                       SparseOptions(table).entry);
  const bool padded = std::any_of(
      lookups.begin(), lookups.end(),
      [&](const RowsOfIds& lookup) { return HasPadding(lookup.ids, options); });
  if (!padded) {
    std::vector<ps::RowsOfKeys> parts;
    parts.reserve(lookups.size());
    for (const RowsOfIds& lookup : lookups) {
      parts.push_back({AsKeys(lookup.ids), lookup.rows});
    }
    return client.PullParts(table.spec.id, parts, pull, deadline);
  }
  const BatchPool::Lease batch(pool);
  Collect(lookups, options, batch->keys);
  batch->rows.resize(batch->keys.size() * DimOf(table));
  RETURN_IF_ERROR(
      client.Pull(table.spec.id, batch->keys, batch->rows, pull, deadline));
  Spread(DimOf(table), batch->rows, lookups, options);
  return OkStatus();
}

Status InitializeDense(ps::PsClient& client, bool is_first_worker,
                       std::span<const DenseValues> values, Deadline deadline) {
  if (is_first_worker) {
    for (const DenseValues& each : values) {
      RETURN_IF_ERROR(
          client.InitializeDense(each.table, each.values, deadline));
    }
  }
  RETURN_IF_ERROR(client.StartBarrier("first values", deadline));
  return values.empty() ? OkStatus() : client.PullDenseMany(values, deadline);
}

}  // namespace fleet::served
