// SPDX-License-Identifier: Apache-2.0

// Sparse tables from disk.

#include <algorithm>
#include <thread>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/table/locked_shards.h"
#include "fleet/table/page_memory.h"
#include "fleet/table/rows_file.h"
#include "fleet/table/sparse_table.h"

namespace fleet::table {
namespace {

// From so many rows in a shard on, its index is larger than the caches of a
// core.
constexpr uint64_t kManyRows = 1 << 16;

// How many rows of a file go into each shard, or nearly.
uint64_t RowsOfShard(const RowsHeader& header, uint32_t num_servers,
                     size_t num_shards) {
  return header.num_rows / (uint64_t{num_servers} * num_shards);
}

}  // namespace

Status SparseTable::TakeCut(const TableCut& cut) {
  AllLocked all(shards_);
  const auto shard_of = [&](Key key) -> SparseShard& {
    return all[ShardOfHash(HashKey(key), num_shards())];
  };
  for (const auto& [key, count] : cut.candidates) {
    RETURN_IF_ERROR(shard_of(key).AddCandidate(key, count));
  }
  for (size_t worker = 0; worker < cut.changes.size(); ++worker) {
    for (const Key key : cut.changes[worker]) {
      RETURN_IF_ERROR(shard_of(key).AddChange(worker, key));
    }
  }
  return OkStatus();
}

Result<LoadStats> SparseTable::Load(const base::Path& folder, uint32_t server,
                                    uint32_t num_servers) {
  ASSIGN_OR_RETURN(const SavedModel model,
                   FindModel(folder, CheckFiles::kByChecksum));
  return Load(model, server, num_servers);
}

// A thread takes part in loads: an exception must not leave a function that
// waits for it.
Result<LoadStats> SparseTable::Load(const SavedModel& model, uint32_t server,
                                    uint32_t num_servers) {
  return base::CatchExceptions(
      [&] { return LoadRows(model, server, num_servers); });
}

Result<std::unique_ptr<SparseTable>> SparseTable::LoadApart(
    const SavedModel& model, uint32_t server, uint32_t num_servers) const {
  SparseTableOptions options = options_;
  if (options.disk.has_value()) {
    // The two take turns.
    std::string& folder = options.disk->folder;
    if (disk_folder_ == folder) folder += ".loaded";
  }
  ASSIGN_OR_RETURN(std::unique_ptr<SparseTable> apart, Make(options));
  apart->disk_is_scratch_ = options.disk.has_value();
  RETURN_IF_ERROR(apart->Load(model, server, num_servers).status());
  return apart;
}

void SparseTable::Take(SparseTable& loaded)
    FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  // Nobody else knows of `loaded`, so that the order of locks is no matter.
  AllLocked theirs(loaded.shards_);
  AllLocked ours(shards_);
  setting_->step = loaded.setting_->step.load();
  setting_->now = loaded.setting_->now;
  setting_->options.update.learning_rate =
      loaded.setting_->options.update.learning_rate;
  for (size_t i = 0; i < shards_.size(); ++i) {
    loaded.shards_[i].rows->Replace(*shards_[i].rows, *setting_);
    std::swap(loaded.shards_[i].rows, shards_[i].rows);
  }
  std::swap(loaded.disk_folder_, disk_folder_);
}

Result<LoadStats> SparseTable::LoadRows(const SavedModel& model,
                                        uint32_t server, uint32_t num_servers) {
  const base::Path& folder = model.folder;
  ASSIGN_OR_RETURN(const std::vector<SaveList> lists, model.ListsOf(name()));
  const RowLayout& layout = setting_->layout;
  LoadStats stats;
  stats.number = lists.back().id.number;
  stats.step = lists.back().step;
  // Each server that saved had a clock of its own. Rows keep how long ago they
  // were touched when they were written.
  uint64_t now = 0;
  for (const SaveList& list : lists) now = std::max(now, list.time);

  AllLocked all(shards_);
  for (size_t i = 0; i < shards_.size(); ++i) {
    RETURN_IF_ERROR(Named(all[i].Clear(), "clear", 0));
  }
  setting_->now = static_cast<uint32_t>(now);
  setting_->step = stats.step;
  ForgetToldRates(setting_->options.update.learning_rate);
  for (size_t i = 0; i < shards_.size(); ++i) all[i].TakeRate();

  std::vector<std::vector<uint32_t>> places(shards_.size());
  std::vector<float> converted;
  // Rows of a base are new; those of deltas change rows that are there.
  bool base = true;
  uint32_t behind = 0;  // the clock of who wrote them
  auto finish_adding = [&]() -> Status {
    for (size_t i = 0; i < shards_.size(); ++i) {
      RETURN_IF_ERROR(all[i].FinishAdding());
    }
    return OkStatus();
  };
  // Before memory is taken for rows, and before the first is copied.
  auto check = [&](const RowsHeader& header) -> Status {
    if (header.table != name() || header.dim != dim()) {
      return InvalidArgument("rows of ", header.dim, " values of table ",
                             header.table, ", and table ", name(), " has ",
                             dim());
    }
    if (header.layout == layout.text && header.row_floats != layout.stride) {
      return DataLoss("rows of ", header.row_floats, " numbers, and a row '",
                      layout.text, "' has ", layout.stride);
    }
    return OkStatus();
  };
  auto take = [&](const RowsHeader& header, std::span<const Key> keys,
                  std::span<const float> rows) -> Status {
    const bool all_in_one = num_servers == 1 && shards_.size() == 1;
    for (auto& of_shard : places) of_shard.clear();
    for (size_t i = 0; i < keys.size() && !all_in_one; ++i) {
      if (num_servers > 1 && ServerOfKey(keys[i], num_servers) != server) {
        continue;
      }
      places[ShardOfHash(HashKey(keys[i]),
                         static_cast<uint32_t>(shards_.size()))]
          .push_back(static_cast<uint32_t>(i));
    }
    const bool erased = rows.empty();
    const uint64_t of_shard = RowsOfShard(header, num_servers, shards_.size());
    const bool many = base && of_shard >= kManyRows;
    if (erased || !many) RETURN_IF_ERROR(finish_adding());
    const float* whole = rows.data();
    if (!erased && header.layout != layout.text) {
      stats.values_only = true;
      converted.resize(keys.size() * layout.stride);
      for (size_t i = 0; i < keys.size(); ++i) {
        float* row = &converted[i * layout.stride];
        all[0].FillNew(keys[i], row);
        std::copy_n(&rows[i * header.row_floats], dim(), row);
        if (layout.extended != RowLayout::kAbsent) {
          StoreInteger(row, layout.extended, 1);
        }
      }
      whole = converted.data();
    } else if (!erased && layout.last_seen != RowLayout::kAbsent &&
               behind > 0) {
      converted.assign(rows.begin(), rows.end());
      for (size_t i = 0; i < keys.size(); ++i) {
        float* row = &converted[i * layout.stride];
        StoreInteger(row, layout.last_seen,
                     LoadInteger(row, layout.last_seen) + behind);
      }
      whole = converted.data();
    }
    for (size_t s = 0; s < places.size(); ++s) {
      KeyBatch batch{keys.data(), places[s].data(), places[s].size()};
      if (all_in_one) batch = {keys.data(), nullptr, keys.size()};
      if (batch.count == 0) continue;
      RETURN_IF_ERROR(erased ? all[s].EraseKeys(batch)
                      : many ? all[s].AddRows(of_shard, batch, whole)
                             : all[s].PutRows(batch, whole));
    }
    return OkStatus();
  };
  // The kernel zeroes pages before they are written to, which takes as long as
  // all the rest: another thread lets it.
  std::jthread populating;
  auto reserve = [&](const RowsHeader& header) -> Status {
    RETURN_IF_ERROR(check(header));
    // Most rows of a delta are there already.
    if (!base) return OkStatus();
    const uint64_t of_shard = RowsOfShard(header, num_servers, shards_.size());
    std::vector<std::span<std::byte>> memory;
    for (size_t i = 0; i < shards_.size(); ++i) {
      ASSIGN_OR_RETURN(const auto more, all[i].ReserveRows(of_shard));
      memory.insert(memory.end(), more.begin(), more.end());
    }
    populating = std::jthread([memory = std::move(memory)] {
      for (const auto& part : memory) PageMemory::Populate(part);
    });
    for (size_t i = 0; i < shards_.size(); ++i) {
      RETURN_IF_ERROR(all[i].ReserveIndex(of_shard + of_shard / 16));
    }
    return OkStatus();
  };
  auto read = [&]() -> Status {
    for (const SaveList& list : lists) {
      base = list.id.kind == SaveKind::kBase;
      behind = static_cast<uint32_t>(now - list.time);
      for (const SaveList::File& file : list.files) {
        const base::Path path = folder / file.name;
        ASSIGN_OR_RETURN(const uint64_t byte_size, base::FileSize(path));
        if (byte_size != file.byte_size) {
          return DataLoss(path.string(), ": ", byte_size,
                          " bytes, and its list says ", file.byte_size);
        }
        RETURN_IF_ERROR(ReadRows(path, take, reserve));
      }
    }
    return finish_adding();
  };
  const Status outcome = base::CatchExceptions(read);
  if (populating.joinable()) populating.join();
  if (!outcome.ok()) {
    for (size_t i = 0; i < shards_.size(); ++i) (void)all[i].Clear();
    return outcome.WithContext("load table " + name());
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    all[i].ClearMarks();
    stats.num_rows += all[i].counters().num_rows;
  }
  return stats;
}

}  // namespace fleet::table
