// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/server_tables.h"

#include <algorithm>

#include "fleet/ps/table_spec.h"

namespace fleet::ps {

const std::string& ServerTable::name() const {
  return sparse != nullptr ? sparse->name() : dense->name();
}

uint32_t ServerTable::num_shards() const {
  return sparse != nullptr ? sparse->num_shards() : 0;
}

ServerTables::ServerTables()
    : max_request_(sizeof(RequestHead) + kChunkByteSize + kMaxChunkKeys * 20) {}

Status ServerTables::Add(TableId id, ServerTable table) {
  base::MutexLock lock(mutex_);
  if (tables_.contains(id)) {
    return InvalidArgument("table ", table.name(), ": its id ",
                           static_cast<uint32_t>(id), " is taken");
  }
  if (table.sparse != nullptr) {
    max_request_ = std::max<uint64_t>(
        max_request_,
        sizeof(RequestHead) + table.sparse->dim() * sizeof(float) + 64);
  }
  tables_[id] = std::move(table);
  return OkStatus();
}

Result<ServerTable*> ServerTables::Find(TableId id) {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(id);
  if (it != tables_.end()) return &it->second;
  return NotFound("no table with id ", static_cast<uint32_t>(id));
}

Result<table::DenseTable*> ServerTables::FindDense(TableId id) {
  ASSIGN_OR_RETURN(ServerTable* const table, Find(id));
  if (table->dense != nullptr) return table->dense.get();
  return InvalidArgument("table ", table->name(), " is not dense");
}

Result<bool> ServerTables::IsThere(const TableSpec& spec) {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(spec.id);
  if (it == tables_.end()) return false;
  if (it->second.spec == Encode(spec)) return true;
  return FailedPrecondition("its id ", static_cast<uint32_t>(spec.id),
                            " is that of another table, or of this one with "
                            "other options");
}

std::vector<ServerTable*> ServerTables::All() {
  base::MutexLock lock(mutex_);
  std::vector<ServerTable*> all;
  all.reserve(tables_.size());
  for (auto& [id, table] : tables_) all.push_back(&table);
  return all;
}

std::vector<std::pair<TableId, ServerTable*>> ServerTables::ById() {
  base::MutexLock lock(mutex_);
  std::vector<std::pair<TableId, ServerTable*>> all;
  all.reserve(tables_.size());
  for (auto& [id, table] : tables_) all.emplace_back(id, &table);
  return all;
}

void ServerTables::EndSaves(bool counts) {
  for (ServerTable* table : All()) {
    if (table->sparse != nullptr) {
      table->sparse->EndSave(counts);
    } else {
      table->dense->EndSave();
    }
  }
}

std::vector<TableInfo> ServerTables::Describe() const {
  base::MutexLock lock(mutex_);
  std::vector<TableInfo> all;
  for (const auto& [id, table] : tables_) {
    TableInfo described;
    described.id = id;
    described.name = table.name();
    if (table.sparse != nullptr) {
      described.dim = table.sparse->dim();
    } else {
      described.dense = true;
      described.size = table.dense->size();
      described.begin = table.dense->part().begin;
      described.end = table.dense->part().end;
      described.initialized = table.dense->initialized();
    }
    all.push_back(std::move(described));
  }
  return all;
}

PsServerHoldings ServerTables::holdings() {
  PsServerHoldings all;
  for (const ServerTable* table : All()) {
    ++all.num_tables;
    if (table->dense != nullptr) {
      all.byte_size += table->dense->byte_size();
      all.save_byte_size += table->dense->save_byte_size();
      all.num_nonfinite += table->dense->num_nonfinite();
      continue;
    }
    const table::SparseTableStats stats = table->sparse->stats();
    all.num_rows += stats.num_rows;
    all.byte_size += stats.byte_size;
    all.save_byte_size += stats.save_byte_size;
    all.num_nonfinite += stats.num_nonfinite;
    all.num_expired += stats.num_expired;
  }
  return all;
}

void ServerTables::NoteRate(const std::string& name, double rate) {
  base::MutexLock lock(mutex_);
  rates_[name] = rate;
}

void ServerTables::NoteRatesIfNew(std::map<std::string, double> rates) {
  base::MutexLock lock(mutex_);
  rates_.merge(rates);
}

std::map<std::string, double> ServerTables::rates() const {
  base::MutexLock lock(mutex_);
  return rates_;
}

}  // namespace fleet::ps
