// SPDX-License-Identifier: Apache-2.0

// Saves and loads of all tables, as a server does its part of them. A worker
// leads: it begins a save at every server, has each write its tables, brings
// what they wrote to server 0, whose manifest makes the save count, and tells
// all how it ended.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/ps/server.h"

namespace fleet::ps {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A manifest names at most that much; what is larger was made up.
constexpr uint64_t kMaxManifestByteSize = uint64_t{4} << 30;

// One folder has one name here, however a worker writes it.
std::string Canonical(const std::string& folder) {
  std::error_code error;
  const base::Path path = std::filesystem::weakly_canonical(folder, error);
  return error ? folder : path.string();
}

}  // namespace

uint64_t PsServer::BuildsOn(const std::string& folder) {
  uint64_t since = 0;
  for (const Table* table : AllTables()) {
    // All rows of one that was never saved are marked.
    if (!table->saved.has_value()) continue;
    const LastSave& saved = *table->saved;
    if (saved.folder != folder || saved.number == 0) return 0;
    if (since != 0 && since != saved.number) return 0;
    since = saved.number;
  }
  if (since == 0 || options_.rank != 0) return since;
  const Result<table::SavedModel> model = table::OpenModel(folder, since);
  if (!model.ok()) {
    FLEET_LOG(WARNING) << "server " << options_.rank << ": save " << since
                       << " cannot be built on, " << model.status();
    return 0;
  }
  return table::WantsNewBase(*model) ? 0 : since;
}

Result<std::span<const std::byte>> PsServer::HandleBeginSave(
    Session& session, const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  Saving begun;
  begun.token = in.U64();
  begun.folder = in.Text();
  RETURN_IF_ERROR(in.Finish());
  RETURN_IF_ERROR(base::MakeFolders(begun.folder));
  begun.folder = Canonical(begun.folder);
  base::MutexLock lock(saving_);
  ASSIGN_OR_RETURN(const uint64_t highest,
                   table::HighestSaveNumber(begun.folder));
  session.text = channel::MessageWriter()
                     .U64(highest)
                     .U64(BuildsOn(begun.folder))
                     .Text(options_.job)
                     .Text(EncodeLedger())
                     .Take();
  save_ = std::move(begun);
  return BytesOf(session.text);
}

Status PsServer::CheckSave(uint64_t token) const {
  if (save_.has_value() && save_->token == token) return OkStatus();
  return FailedPrecondition(
      "server ", options_.rank,
      " knows nothing of this save: it was started again, or another worker "
      "has begun to save");
}

Result<std::span<const std::byte>> PsServer::HandleSave(
    Session& session, const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  table::SaveId id;
  id.number = in.U64();
  id.kind = in.U8() == 0 ? table::SaveKind::kBase : table::SaveKind::kDelta;
  const bool text = in.U8() != 0;
  RETURN_IF_ERROR(in.Finish());
  id.server = static_cast<uint32_t>(options_.rank);
  id.num_servers = options_.num_servers;
  base::MutexLock lock(saving_);
  RETURN_IF_ERROR(CheckSave(token));
  const std::string& folder = save_->folder;
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  table::WrittenTable written;
  if (table->dense != nullptr) {
    ASSIGN_OR_RETURN(written, table->dense->WriteSave(folder, id));
  } else {
    if (text) {
      const std::string name = base::FileNameOf(table->sparse->name());
      const base::Path texts = base::Path(folder) / (name + "_txt");
      RETURN_IF_ERROR(base::MakeFolders(texts));
      RETURN_IF_ERROR(table->sparse->SaveText(
          texts / base::Concat(name, ".block", options_.rank, ".txt")));
    }
    ASSIGN_OR_RETURN(written, table->sparse->WriteSave(folder, {id}));
  }
  session.text = Encode(written.list);
  return BytesOf(session.text);
}

Status PsServer::HandleCommitSave(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  const uint64_t offset = in.U64();
  const uint64_t total = in.U64();
  const bool remove_older = in.U8() != 0;
  const std::string part = in.Text();
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  RETURN_IF_ERROR(CheckSave(token));
  if (save_->counts) return OkStatus();  // it came again
  std::string& text = save_->manifest;
  if (offset > text.size() || total > kMaxManifestByteSize ||
      part.size() > total - offset) {
    return InvalidArgument("a manifest of ", total, " bytes with ", part.size(),
                           " at ", offset);
  }
  text.resize(offset);
  text += part;
  if (text.size() < total) return OkStatus();
  ASSIGN_OR_RETURN(const table::SaveManifest manifest,
                   table::DecodeManifest(text));
  RETURN_IF_ERROR(table::WriteManifest(save_->folder, manifest));
  save_->counts = true;
  if (!remove_older || manifest.kind != table::SaveKind::kBase) {
    return OkStatus();
  }
  // The save counts, whatever becomes of older ones.
  const Status removed =
      table::RemoveSavesBefore(save_->folder, manifest.number);
  if (!removed.ok()) {
    FLEET_LOG(WARNING) << "server " << options_.rank << ": older saves stay, "
                       << removed;
  }
  return OkStatus();
}

Status PsServer::HandleEndSave(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  const bool counts = in.U8() != 0;
  LastSave saved;
  saved.number = in.U64();
  saved.job = in.Text();
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  if (ended_save_ == token) return OkStatus();  // it came again
  RETURN_IF_ERROR(CheckSave(token));
  saved.folder = save_->folder;
  save_.reset();
  ended_save_ = token;
  for (Table* table : AllTables()) {
    if (table->sparse != nullptr) table->sparse->EndSave(counts);
    if (counts) table->saved = saved;
  }
  if (counts && options_.on_saved) options_.on_saved(saved);
  return OkStatus();
}

Result<std::span<const std::byte>> PsServer::HandleBeginLoad(
    Session& session, const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  Loading begun;
  begun.token = in.U64();
  const std::string folder = Canonical(in.Text());
  const bool newest = in.U8() != 0;
  const uint64_t number = in.U64();
  RETURN_IF_ERROR(in.Finish());
  if (newest) {
    ASSIGN_OR_RETURN(begun.model,
                     table::FindModel(folder, table::CheckFiles::kByChecksum));
  } else {
    ASSIGN_OR_RETURN(begun.model, table::OpenModel(folder, number));
  }
  session.text = channel::MessageWriter().U64(begun.model.number).Take();
  base::MutexLock lock(saving_);
  load_ = std::move(begun);
  return BytesOf(session.text);
}

Status PsServer::CheckLoad(uint64_t token) const {
  if (load_.has_value() && load_->token == token) return OkStatus();
  return FailedPrecondition(
      "server ", options_.rank,
      " knows nothing of this load: it was started again, or another worker "
      "has begun to load");
}

Status PsServer::HandleLoad(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  RETURN_IF_ERROR(CheckLoad(token));
  ASSIGN_OR_RETURN(const Table* const table, Find(request.head.table));
  Table& loaded = load_->tables[request.head.table];
  if (table->dense != nullptr) {
    ASSIGN_OR_RETURN(loaded.dense, table->dense->LoadApart(load_->model));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(loaded.sparse,
                   table->sparse->LoadApart(
                       load_->model, static_cast<uint32_t>(options_.rank),
                       options_.num_servers));
  return OkStatus();
}

Status PsServer::HandleEndLoad(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  const bool take = in.U8() != 0;
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  if (ended_load_ == token) return OkStatus();  // it came again
  RETURN_IF_ERROR(CheckLoad(token));
  Loading loading = std::move(*load_);
  load_.reset();
  ended_load_ = token;
  if (!take) return OkStatus();
  const LastSave saved{loading.model.folder.string(), loading.model.number,
                       options_.job};
  for (auto& [id, loaded] : loading.tables) {
    ASSIGN_OR_RETURN(Table* const table, Find(id));
    if (loaded.dense != nullptr) {
      table->dense->Take(*loaded.dense);
    } else {
      table->sparse->Take(*loaded.sparse);
    }
    table->saved = saved;
  }
  if (options_.on_saved) options_.on_saved(saved);
  return OkStatus();
}

}  // namespace fleet::ps
