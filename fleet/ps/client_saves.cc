// SPDX-License-Identifier: Apache-2.0

// Saves and loads of all tables, as a worker leads them; what servers do is in
// server_saves.cc.

#include <algorithm>
#include <random>
#include <utility>

#include "fleet/channel/message.h"
#include "fleet/ps/client.h"
#include "fleet/table/save_manifest.h"

namespace fleet::ps {
namespace {

// For telling that a save or a load is given up, which a server may never have
// begun.
constexpr auto kTimeToGiveUp = std::chrono::seconds(5);

// By it a server knows the save that it has begun.
uint64_t NewToken() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RequestHead HeadOf(Op op, TableId table = {}) {
  RequestHead head;
  head.op = op;
  head.table = table;
  return head;
}

}  // namespace

Status PsClient::Save(const std::string& folder, const SaveOptions& options,
                      Deadline deadline) {
  if (options.inside_of_cut) return SaveTables(folder, options, deadline);
  ASSIGN_OR_RETURN(const uint64_t cut, BeginCut(deadline));
  const Status saved = SaveTables(folder, options, deadline);
  const Status ended = EndCut(cut);
  return saved.ok() ? ended : saved;
}

Status PsClient::SaveTables(const std::string& folder,
                            const SaveOptions& options, Deadline deadline) {
  const uint64_t token = NewToken();
  Result<table::SaveManifest> begun =
      BeginSave(token, folder, options, deadline);
  Status written = begun.status();
  if (written.ok()) {
    written = WriteTables(token, folder, options, *begun, deadline);
  }
  if (written.ok()) {
    written = CommitSave(token, *begun, options.remove_older, deadline);
  }
  if (!written.ok()) {
    (void)EndSave(token, begun.ok() ? *begun : table::SaveManifest(), false,
                  Deadline::After(kTimeToGiveUp));
    return written;
  }
  // A server that does not hear of it builds on the save before.
  return EndSave(token, *begun, true, deadline)
      .WithContext(
          base::Concat("save ", begun->number, " in ", folder, " counts, but"));
}

Result<table::SaveManifest> PsClient::BeginSave(uint64_t token,
                                                const std::string& folder,
                                                const SaveOptions& options,
                                                Deadline deadline) {
  table::SaveManifest manifest;
  manifest.ledgers.resize(num_servers());
  std::vector<uint64_t> since(num_servers());
  RETURN_IF_ERROR(RunOnAll(
      {"begin to save to", folder}, HeadOf(Op::kBeginSave),
      channel::MessageWriter().U64(token).Text(folder).Take(), deadline,
      [&](uint32_t server, std::span<const std::byte> answer) -> Status {
        channel::MessageReader in(TextOf(answer));
        const uint64_t highest = in.U64();
        since[server] = in.U64();
        const std::string job = in.Text();
        manifest.ledgers[server] = in.Text();
        RETURN_IF_ERROR(in.Finish());
        manifest.number = std::max(manifest.number, highest + 1);
        if (server == 0) manifest.job = job;
        return OkStatus();
      }));
  const bool builds_on_one =
      since[0] != 0 && std::all_of(since.begin(), since.end(),
                                   [&](uint64_t s) { return s == since[0]; });
  if (options.kind == table::SaveKind::kDelta && builds_on_one) {
    manifest.kind = table::SaveKind::kDelta;
    manifest.since = since[0];
  }
  return manifest;
}

Status PsClient::WriteTables(uint64_t token, const std::string& folder,
                             const SaveOptions& options,
                             table::SaveManifest& manifest, Deadline deadline) {
  const std::string body =
      channel::MessageWriter()
          .U64(token)
          .U64(manifest.number)
          .U8(manifest.kind == table::SaveKind::kBase ? 0 : 1)
          .U8(options.text)
          .Take();
  for (const TableInfo& table : tables()) {
    RETURN_IF_ERROR(RunOnAll(
        {"save", base::Concat(table.name, " to ", folder)},
        HeadOf(Op::kSave, table.id), body, deadline,
        [&](uint32_t server, std::span<const std::byte> answer) -> Status {
          ASSIGN_OR_RETURN(table::SaveList list,
                           table::DecodeSaveList(TextOf(answer)));
          list.id.server = server;
          manifest.lists.push_back(std::move(list));
          return OkStatus();
        }));
  }
  return OkStatus();
}

Status PsClient::CommitSave(uint64_t token, const table::SaveManifest& manifest,
                            bool remove_older, Deadline deadline) {
  const std::string text = Encode(manifest);
  for (size_t at = 0; at < text.size(); at += kChunkByteSize) {
    RETURN_IF_ERROR(
        RunOnFirst({"end of saving"}, HeadOf(Op::kCommitSave),
                   channel::MessageWriter()
                       .U64(token)
                       .U64(at)
                       .U64(text.size())
                       .U8(remove_older)
                       .Text(std::string_view(text).substr(at, kChunkByteSize))
                       .Take(),
                   deadline));
  }
  return OkStatus();
}

Status PsClient::EndSave(uint64_t token, const table::SaveManifest& manifest,
                         bool counts, Deadline deadline) {
  return RunOnAll({"end of saving"}, HeadOf(Op::kEndSave),
                  channel::MessageWriter()
                      .U64(token)
                      .U8(counts)
                      .U64(manifest.number)
                      .Text(manifest.job)
                      .Take(),
                  deadline);
}

Status PsClient::Load(const std::string& folder, Deadline deadline) {
  ASSIGN_OR_RETURN(const uint64_t cut, BeginCut(deadline));
  const Status loaded = LoadTables(folder, deadline);
  const Status ended = EndCut(cut);
  return loaded.ok() ? ended : loaded;
}

Status PsClient::LoadTables(const std::string& folder, Deadline deadline) {
  const uint64_t token = NewToken();
  const Status read = ReadTables(token, folder, deadline);
  auto end = [&](bool take, Deadline until) {
    return RunOnAll({"end of loading", folder}, HeadOf(Op::kEndLoad),
                    channel::MessageWriter().U64(token).U8(take).Take(), until);
  };
  if (read.ok()) return end(true, deadline);
  (void)end(false, Deadline::After(kTimeToGiveUp));
  return read;
}

Status PsClient::ReadTables(uint64_t token, const std::string& folder,
                            Deadline deadline) {
  // The first server looks which save is whole, and all read that one.
  auto begin = [&](bool newest, uint64_t number) {
    return channel::MessageWriter()
        .U64(token)
        .Text(folder)
        .U8(newest)
        .U64(number)
        .Take();
  };
  uint64_t number = 0;
  RETURN_IF_ERROR(RunOnFirst(
      {"begin to load", folder}, HeadOf(Op::kBeginLoad), begin(true, 0),
      deadline, [&](uint32_t, std::span<const std::byte> answer) -> Status {
        channel::MessageReader in(TextOf(answer));
        number = in.U64();
        return in.Finish();
      }));
  RETURN_IF_ERROR(RunOnAll({"begin to load", folder}, HeadOf(Op::kBeginLoad),
                           begin(false, number), deadline));
  for (const TableInfo& table : tables()) {
    RETURN_IF_ERROR(
        RunOnAll({"load", base::Concat(table.name, " from ", folder)},
                 HeadOf(Op::kLoad, table.id),
                 channel::MessageWriter().U64(token).Take(), deadline));
  }
  return OkStatus();
}

}  // namespace fleet::ps
