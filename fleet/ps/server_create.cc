// SPDX-License-Identifier: Apache-2.0

// How tables begin, new or with what was saved, and how rows end whose time is
// over.

#include <algorithm>
#include <utility>

#include "fleet/base/file_name.h"
#include "fleet/ps/server_impl.h"
#include "fleet/table/table_name.h"

namespace fleet::ps {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Status PsServer::Impl::Create(std::span<const TableSpec> specs) {
  base::MutexLock creating(creating_);
  NewTables made;    // the log tells of them
  NewTables loaded;  // a checkpoint has them
  for (const TableSpec& spec : specs) {
    RETURN_IF_ERROR(table::CheckTableName(spec.name()));
    const std::string name = base::Concat("table ", spec.name());
    const Result<bool> is_there = tables_.IsThere(spec);
    RETURN_IF_ERROR(is_there.status().WithContext(name));
    if (*is_there) continue;
    if (made.contains(spec.id) || loaded.contains(spec.id)) {
      return InvalidArgument(name, ": its id ", static_cast<uint32_t>(spec.id),
                             " comes twice");
    }
    bool has_values = false;
    ASSIGN_OR_RETURN(ServerTable table, MakeAndLoad(spec, &has_values));
    (has_values ? loaded : made).emplace(spec.id, std::move(table));
  }
  if (log_ != nullptr && !loaded.empty()) {
    // What was loaded may be gone when the log is read, so the log does not
    // tell of the tables before a checkpoint has them: one for all, since it
    // has all rows of the server.
    RETURN_IF_ERROR(WriteCheckpoint(true, &loaded).status());
  }
  base::LogFile::Room until_added;
  if (log_ != nullptr) {
    // A checkpoint that cuts the log has the tables, or its records are newer:
    // it waits for this room.
    ASSIGN_OR_RETURN(until_added, log_->Reserve(0, 0));
    // First the log: what comes for a table finds it there.
    for (const auto& [id, table] : made) {
      const std::span<const std::byte> body = BytesOf(table.spec);
      ASSIGN_OR_RETURN(base::LogFile::Room room, log_->Reserve(0, body.size()));
      RequestHead head;
      head.op = Op::kCreate;
      LoggedHead of;
      of.epoch = epoch_;
      RETURN_IF_ERROR(log_->Append(std::move(room), of, head, {}, {&body, 1}));
    }
    // On the disk before what comes for them: without the tables that is of no
    // use.
    if (!made.empty()) RETURN_IF_ERROR(log_->file().Sync());
  }
  made.merge(loaded);
  for (auto& [id, table] : made) {
    RETURN_IF_ERROR(tables_.Add(id, std::move(table)));
  }
  return OkStatus();
}

Result<ServerTable> PsServer::Impl::MakeAndLoad(const TableSpec& spec,
                                                bool* has_values) {
  const auto rank = static_cast<uint32_t>(options_.rank);
  const std::vector<std::string>& only = options_.load_only;
  const bool load =
      !options_.load_folder.empty() &&
      (only.empty() || std::ranges::find(only, spec.name()) != only.end());
  const table::SavedModel* model = nullptr;
  if (load) {
    ASSIGN_OR_RETURN(model, ModelToBeginWith());
  }
  Status loaded;
  if (load && model == nullptr) loaded = NotFound("nothing was saved");
  ASSIGN_OR_RETURN(ServerTable made, Make(spec));
  if (model != nullptr && made.sparse != nullptr) {
    loaded = made.sparse->Load(*model, rank, options_.num_servers).status();
  } else if (model != nullptr) {
    loaded = made.dense->Load(*model).status();
  }
  // A table that the saved model did not have begins new.
  if (!loaded.ok() && loaded.code() != StatusCode::kNotFound) return loaded;
  if (!loaded.ok() && options_.load_otherwise) {
    RETURN_IF_ERROR(
        options_.load_otherwise(made.sparse.get(), made.dense.get()));
  }
  if (loaded.ok() && model != nullptr) {
    made.saved = LastSave{model->folder.string(), model->number, options_.job};
  }
  *has_values =
      loaded.ok() ? model != nullptr : options_.load_otherwise != nullptr;
  return made;
}

Result<ServerTable> PsServer::Impl::Make(const TableSpec& spec) const {
  const auto rank = static_cast<uint32_t>(options_.rank);
  ServerTable made;
  made.spec = Encode(spec);
  if (const auto* sparse =
          std::get_if<table::SparseTableOptions>(&spec.table)) {
    table::SparseTableOptions options = *sparse;
    if (options.disk.has_value()) {
      // Servers of one host share the folder.
      options.disk->folder += base::Concat("/", base::FileNameOf(options.name),
                                           ".", rank, options_.disk_suffix);
    }
    if (!options.disk.has_value() && options.max_byte_size == 0) {
      options.max_byte_size = options_.max_table_byte_size;
    }
    ASSIGN_OR_RETURN(made.sparse, table::SparseTable::Make(options));
    return made;
  }
  const auto& dense = std::get<DenseSpec>(spec.table);
  table::DenseTableOptions options;
  options.name = dense.name;
  options.size = dense.size;
  options.part = table::PartOfServer(dense.size, rank, options_.num_servers,
                                     static_cast<uint32_t>(spec.id));
  options.update = dense.update;
  ASSIGN_OR_RETURN(made.dense, table::DenseTable::Make(options));
  return made;
}

Result<const table::SavedModel*> PsServer::Impl::ModelToBeginWith() {
  if (load_model_ == nullptr) load_model_ = options_.load_model;
  if (load_model_ == nullptr) {
    Result<table::SavedModel> found =
        table::FindModel(options_.load_folder, table::CheckFiles::kByChecksum);
    if (found.status().code() == StatusCode::kNotFound) return nullptr;
    RETURN_IF_ERROR(found.status());
    load_model_ =
        std::make_shared<const table::SavedModel>(std::move(found).value());
  }
  return load_model_.get();
}

Result<uint64_t> PsServer::Impl::ExpireRows(Deadline::TimePoint now) {
  base::MutexLock lock(expiring_);
  std::vector<std::pair<TableId, const ServerTable*>> due;
  for (const auto& [id, table] : tables_.ById()) {
    if (table->sparse == nullptr) continue;
    const auto time_to_live = table->sparse->options().time_to_live;
    if (time_to_live.count() == 0) continue;
    const auto [looked_at, is_new] = looked_at_.try_emplace(table, now);
    if (is_new) continue;
    if (now - looked_at->second >= table::ExpiryPeriod(time_to_live)) {
      due.emplace_back(id, table);
    }
  }
  // What is saved stands still, of all tables, and no row is erased that is not
  // written yet: it would be kept until then.
  if (due.empty() || !roster_.TryBeginOwnTurn()) return 0;
  if (IsWriting()) {
    roster_.EndOwnTurn();
    return 0;
  }
  uint64_t num_erased = 0;
  Status first;
  for (const auto& [id, table] : due) {
    looked_at_[table] = now;
    base::MutexLock whole(whole_tables_);
    const Result<uint64_t> erased = Expire(id, *table->sparse);
    if (erased.ok()) num_erased += *erased;
    if (first.ok()) first = erased.status();
  }
  roster_.EndOwnTurn();
  RETURN_IF_ERROR(first);
  return num_erased;
}

Result<uint64_t> PsServer::Impl::Expire(TableId id, table::SparseTable& table) {
  if (log_ == nullptr) return table.Expire();
  ASSIGN_OR_RETURN(base::LogFile::Room room,
                   log_->Reserve(table.num_shards(), 0));
  Logged logged;
  ASSIGN_OR_RETURN(const uint64_t num_erased, table.Expire(logged.Begin()));
  if (logged.of_table.empty()) return num_erased;  // nobody trains
  logged.Take(id, table.num_shards(), 0);
  RequestHead head;
  head.op = Op::kExpire;
  RETURN_IF_ERROR(AppendLog({}, head, std::move(room), logged));
  return num_erased;
}

}  // namespace fleet::ps
