// SPDX-License-Identifier: Apache-2.0

// Saves and loads of all tables, as a server does its part of them. A worker
// leads: it begins a save at every server, has all take the cut while nobody
// has a turn (Roster), waits until each has written its tables, brings what
// they wrote to server 0, whose manifest makes the save count, and tells all
// how it ended.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/ps/server_impl.h"

namespace fleet::ps {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// For a checkpoint that must be written before another load takes its place.
constexpr auto kTimeToWrite = std::chrono::seconds(60);

// How often one that waits for a worker's save looks whether the worker lives.
constexpr auto kLookAgain = std::chrono::milliseconds(100);

// A manifest names at most that much; what is larger was made up.
constexpr uint64_t kMaxManifestByteSize = uint64_t{4} << 30;

// One folder has one name here, however a worker writes it.
std::string Canonical(const std::string& folder) {
  std::error_code error;
  const base::Path path = std::filesystem::weakly_canonical(folder, error);
  return error ? folder : path.string();
}

}  // namespace

uint64_t PsServer::Impl::BuildsOn(const std::string& folder) {
  uint64_t since = 0;
  for (const ServerTable* table : tables_.All()) {
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

void PsServer::Impl::DropSave() {
  if (!save_.has_value()) return;
  if (save_->writer != nullptr) {
    save_->writer->GiveUp();
    tables_.EndSaves(false);
  }
  save_.reset();
  save_ended_.NotifyAll();
}

Status PsServer::Impl::WaitForOtherSave(uint64_t token, const Session& session,
                                        Deadline deadline) {
  // Server 0 lets one after the other begin; where another one still knows of
  // one before, that is over.
  while (options_.rank == 0 && save_.has_value() && save_->token != token &&
         save_->worker != session.worker && save_->writer != nullptr &&
         !roster_.IsGone(save_->worker, save_->incarnation)) {
    if (deadline.expired()) {
      return DeadlineExceeded("worker ", save_->worker, " saves to ",
                              save_->folder, ", and has not ended it");
    }
    (void)save_ended_.WaitUntil(saving_,
                                Earlier(deadline, Deadline::After(kLookAgain)));
  }
  if (save_.has_value() && save_->token != token) DropSave();
  return OkStatus();
}

Status PsServer::Impl::EndCheckpoint(Deadline deadline) {
  while (checkpoint_writer_ != nullptr) {
    if (!checkpoint_must_) {
      checkpoint_writer_->GiveUp();
      checkpoint_writer_.reset();
      tables_.EndSaves(false);
      return OkStatus();
    }
    if (!save_ended_.WaitUntil(saving_, deadline)) {
      return DeadlineExceeded("server ", options_.rank,
                              " is still writing down what was loaded");
    }
  }
  return OkStatus();
}

void PsServer::Impl::StopWriting() {
  base::MutexLock lock(saving_);
  writing_stopped_ = true;
  DropSave();
  if (checkpoint_writer_ == nullptr) return;
  checkpoint_writer_->GiveUp();
  checkpoint_writer_.reset();
  tables_.EndSaves(false);
  save_ended_.NotifyAll();
}

bool PsServer::Impl::HasSave() {
  if (save_.has_value() && roster_.IsGone(save_->worker, save_->incarnation)) {
    DropSave();
  }
  return save_.has_value();
}

bool PsServer::Impl::IsWriting() {
  base::MutexLock lock(saving_);
  if (checkpoint_writer_ != nullptr && !checkpoint_writer_->done()) return true;
  return save_.has_value() && save_->writer != nullptr &&
         !save_->writer->done();
}

Status PsServer::Impl::WaitUntilWritten(Deadline deadline) {
  while (true) {
    std::shared_ptr<TablesWriter> writer;
    {
      base::MutexLock lock(saving_);
      writer = checkpoint_writer_;
      if (writer == nullptr && save_.has_value()) writer = save_->writer;
    }
    if (writer == nullptr || writer->done()) return OkStatus();
    RETURN_IF_ERROR(writer->WaitUntilDone(deadline));
  }
}

Result<std::shared_ptr<TablesWriter>> PsServer::Impl::BeginWriting(
    const base::Path& folder, const table::SaveId& id, bool text,
    std::map<TableId, table::TableCut>* cuts) {
  if (writing_stopped_) {
    return Unavailable("server ", options_.rank, " is ending");
  }
  std::vector<TablesWriter::Table> tables;
  // NOLINTNEXTLINE: the lock is held.
  auto take = [&]() FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return TakeCuts(folder, id, text, cuts, tables);
  };
  const Status begun = base::CatchExceptions(take);
  if (!begun.ok()) {
    tables_.EndSaves(false);
    return begun;
  }
  return std::make_shared<TablesWriter>(folder, std::move(tables),
                                        options_.write_delay);
}

Status PsServer::Impl::TakeCuts(const base::Path& folder,
                                const table::SaveId& id, bool text,
                                std::map<TableId, table::TableCut>* cuts,
                                std::vector<TablesWriter::Table>& tables) {
  for (const auto& [table_id, table] : tables_.ById()) {
    table::TableCut* const cut = cuts == nullptr ? nullptr : &(*cuts)[table_id];
    tables.push_back({table_id, table->sparse.get(), table->dense.get()});
    if (table->dense != nullptr) {
      table->dense->BeginSave(id, cut);
      continue;
    }
    table::SaveOptions options{id};
    options.cut = cut;
    if (text) {
      const std::string name = base::FileNameOf(table->sparse->name());
      const base::Path texts = folder / (name + "_txt");
      RETURN_IF_ERROR(base::MakeFolders(texts));
      options.text_file =
          texts / base::Concat(name, ".block", options_.rank, ".txt");
    }
    RETURN_IF_ERROR(table->sparse->BeginSave(options));
  }
  return OkStatus();
}

void PsServer::Impl::SayWritten(const std::string& what,
                                const TablesWriter& writer) const {
  const table::SaveStats stats = writer.stats();
  const std::chrono::duration<double> waited = stats.waited;
  FLEET_LOG(INFO) << "server " << options_.rank << ": " << what << ", "
                  << stats.num_rows << " rows, is written; "
                  << stats.num_put_aside
                  << " rows changed meanwhile and were put aside, "
                  << stats.most_kept_byte_size
                  << " bytes at most; requests waited "
                  << static_cast<int64_t>(waited.count() * 1e3) << " ms";
}

PsServer::Impl::Answer PsServer::Impl::HandleBeginSave(Session& session,
                                                       const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  Saving begun;
  begun.token = in.U64();
  begun.worker = session.worker;
  begun.incarnation = session.incarnation;
  begun.folder = in.Text();
  RETURN_IF_ERROR(in.Finish());
  RETURN_IF_ERROR(base::MakeFolders(begun.folder));
  begun.folder = Canonical(begun.folder);
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(request.head.timeout_ms));
  base::MutexLock lock(saving_);
  do {
    RETURN_IF_ERROR(WaitForOtherSave(begun.token, session, deadline));
    RETURN_IF_ERROR(EndCheckpoint(deadline));
  } while (save_.has_value() && save_->token != begun.token);
  ASSIGN_OR_RETURN(const uint64_t highest,
                   table::HighestSaveNumber(begun.folder));
  session.text = channel::MessageWriter()
                     .U64(highest)
                     .U64(BuildsOn(begun.folder))
                     .Text(options_.job)
                     .Take();
  if (!save_.has_value()) save_ = std::move(begun);
  return BytesOf(session.text);
}

Status PsServer::Impl::CheckSave(uint64_t token) const {
  if (save_.has_value() && save_->token == token) return OkStatus();
  return FailedPrecondition(
      "server ", options_.rank,
      " knows nothing of this save: it was started again, or another worker "
      "has begun to save");
}

std::string PsServer::Impl::DescribeCut() {
  channel::MessageWriter out;
  out.Text(EncodeLedger()).U64(epoch_).U64(roster_.view());
  const std::map<int, uint64_t> incarnations = roster_.Incarnations();
  out.U32(static_cast<uint32_t>(incarnations.size()));
  for (const auto& [worker, incarnation] : incarnations) {
    out.U32(static_cast<uint32_t>(worker)).U64(incarnation);
  }
  return out.Take();
}

PsServer::Impl::Answer PsServer::Impl::HandleCutSave(Session& session,
                                                     const Request& request) {
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
  // One that writes down what was loaded may have begun since.
  RETURN_IF_ERROR(EndCheckpoint(
      Deadline::After(std::chrono::milliseconds(request.head.timeout_ms))));
  RETURN_IF_ERROR(CheckSave(token));
  if (save_->writer == nullptr) {
    save_->cut_answer = DescribeCut();
    Result<std::shared_ptr<TablesWriter>> writer =
        BeginWriting(save_->folder, id, text, nullptr);
    if (!writer.ok()) {
      DropSave();
      return writer.status();
    }
    save_->writer = std::move(writer).value();
  }
  session.text = save_->cut_answer;
  return BytesOf(session.text);
}

PsServer::Impl::Answer PsServer::Impl::HandleSave(Session& session,
                                                  const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  RETURN_IF_ERROR(in.Finish());
  std::shared_ptr<TablesWriter> writer;
  {
    base::MutexLock lock(saving_);
    RETURN_IF_ERROR(CheckSave(token));
    writer = save_->writer;
  }
  if (writer == nullptr) {
    return FailedPrecondition("a table of a save that has no cut yet");
  }
  ASSIGN_OR_RETURN(
      const table::WrittenTable written,
      writer->Wait(
          request.head.table,
          Deadline::After(std::chrono::milliseconds(request.head.timeout_ms))));
  session.text = Encode(written.list);
  return BytesOf(session.text);
}

Status PsServer::Impl::HandleCommitSave(const Request& request) {
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

Status PsServer::Impl::HandleEndSave(const Request& request) {
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
  ended_save_ = token;
  if (!counts) {
    DropSave();
    return OkStatus();
  }
  tables_.EndSaves(true);
  for (ServerTable* table : tables_.All()) table->saved = saved;
  if (save_->writer != nullptr) {
    SayWritten(base::Concat("save ", saved.number), *save_->writer);
  }
  save_.reset();
  save_ended_.NotifyAll();
  if (options_.on_saved) options_.on_saved(saved);
  return OkStatus();
}

PsServer::Impl::Answer PsServer::Impl::HandleBeginLoad(Session& session,
                                                       const Request& request) {
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
  // What is being written stays until it is.
  RETURN_IF_ERROR(WaitForOtherSave(
      begun.token, session,
      Deadline::After(std::chrono::milliseconds(request.head.timeout_ms))));
  load_ = std::move(begun);
  return BytesOf(session.text);
}

Status PsServer::Impl::CheckLoad(uint64_t token) const {
  if (load_.has_value() && load_->token == token) return OkStatus();
  return FailedPrecondition(
      "server ", options_.rank,
      " knows nothing of this load: it was started again, or another worker "
      "has begun to load");
}

Status PsServer::Impl::HandleLoad(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  RETURN_IF_ERROR(CheckLoad(token));
  ASSIGN_OR_RETURN(const ServerTable* const table,
                   tables_.Find(request.head.table));
  ServerTable& loaded = load_->tables[request.head.table];
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

Status PsServer::Impl::HandleEndLoad(const Request& request) {
  RETURN_IF_ERROR(EndLoad(request));
  // What was loaded may be gone when the log is read.
  return log_ == nullptr ? OkStatus() : WriteCheckpoint(true).status();
}

Status PsServer::Impl::EndLoad(const Request& request) {
  channel::MessageReader in(base::TextOf(request.body));
  const uint64_t token = in.U64();
  const bool take = in.U8() != 0;
  RETURN_IF_ERROR(in.Finish());
  base::MutexLock lock(saving_);
  if (ended_load_ == token) return OkStatus();  // it came again
  RETURN_IF_ERROR(CheckLoad(token));
  if (take) RETURN_IF_ERROR(EndCheckpoint(Deadline::After(kTimeToWrite)));
  RETURN_IF_ERROR(CheckLoad(token));
  Loading loading = std::move(*load_);
  load_.reset();
  ended_load_ = token;
  if (!take) return OkStatus();
  const LastSave saved{loading.model.folder.string(), loading.model.number,
                       options_.job};
  for (auto& [id, loaded] : loading.tables) {
    ASSIGN_OR_RETURN(ServerTable* const table, tables_.Find(id));
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
