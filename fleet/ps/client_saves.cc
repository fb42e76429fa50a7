// SPDX-License-Identifier: Apache-2.0

// Saves and loads of all tables, as a worker leads them; what servers do is in
// server_saves.cc.

#include <algorithm>
#include <random>
#include <utility>

#include "fleet/base/log.h"
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

RequestHead HeadOf(Op op, TableId table = {}) {
  RequestHead head;
  head.op = op;
  head.table = table;
  return head;
}

// A save in which a server was started again is made anew, but somebody who
// kills servers shall not hold up a worker for ever.
constexpr int kSaveAttempts = 3;

}  // namespace

Status PsClient::Save(const std::string& folder, const SaveOptions& options,
                      Deadline deadline) {
  for (int left = kSaveAttempts - 1;; --left) {
    const uint64_t before = num_server_restarts();
    Status saved = SaveOnce(folder, options, deadline);
    if (saved.code() != StatusCode::kFailedPrecondition || left == 0 ||
        num_server_restarts() == before) {
      return saved;
    }
    FLEET_LOG(WARNING) << "worker " << options_.worker
                       << " saves again: " << saved;
  }
}

Status PsClient::SaveOnce(const std::string& folder, const SaveOptions& options,
                          Deadline deadline) {
  ASSIGN_OR_RETURN(BegunSave save, PrepareSave(folder, options, deadline));
  const Result<uint64_t> cut = BeginCut(deadline);
  Status outcome = cut.status();
  if (outcome.ok()) {
    outcome = CutSave(save, deadline);
    const Status ended = EndCut(*cut);
    if (outcome.ok()) outcome = ended;
  }
  if (outcome.ok()) return FinishSave(std::move(save), deadline);
  GiveUpSave(save);
  return outcome;
}

Result<PsClient::BegunSave> PsClient::BeginSave(const std::string& folder,
                                                const SaveOptions& options,
                                                Deadline deadline) {
  ASSIGN_OR_RETURN(BegunSave save, PrepareSave(folder, options, deadline));
  const Status cut = CutSave(save, deadline);
  if (cut.ok()) return save;
  GiveUpSave(save);
  return cut;
}

Status PsClient::FinishSave(BegunSave save, Deadline deadline) {
  Status written = WriteTables(save, deadline);
  if (written.ok()) {
    written = CommitSave(save.token, save.manifest, save.options.remove_older,
                         deadline);
  }
  if (!written.ok()) {
    GiveUpSave(save);
    return written;
  }
  // A server that was started again does not hear of it, and builds on the save
  // before.
  Status ended =
      EndSave(save.token, save.manifest, true, deadline)
          .WithContext(base::Concat("save ", save.manifest.number, " in ",
                                    save.folder, " counts, but"));
  if (ended.code() != StatusCode::kFailedPrecondition) return ended;
  FLEET_LOG(INFO) << ended;
  return OkStatus();
}

void PsClient::GiveUpSave(const BegunSave& save) {
  (void)EndSave(save.token, save.manifest, false,
                Deadline::After(kTimeToGiveUp));
}

Result<PsClient::BegunSave> PsClient::PrepareSave(const std::string& folder,
                                                  const SaveOptions& options,
                                                  Deadline deadline) {
  BegunSave save;
  save.token = NewToken();
  save.folder = folder;
  save.options = options;
  table::SaveManifest& manifest = save.manifest;
  std::vector<uint64_t> since(num_servers());
  RequestHead head = HeadOf(Op::kBeginSave);
  head.timeout_ms = MillisecondsUntil(deadline);
  const std::string body =
      channel::MessageWriter().U64(save.token).Text(folder).Take();
  const CallName name{"begin to save to", folder};
  const Deadline answer = WithTimeToAnswer(deadline);
  // One of the workers that save at a time is first at server 0, and the others
  // wait there.
  Status begun = RunOnFirst(name, head, body, answer);
  if (begun.ok()) {
    begun = RunOnAll(
        name, head, body, answer,
        [&](uint32_t server, std::span<const std::byte> bytes) -> Status {
          channel::MessageReader in(base::TextOf(bytes));
          const uint64_t highest = in.U64();
          since[server] = in.U64();
          const std::string job = in.Text();
          RETURN_IF_ERROR(in.Finish());
          manifest.number = std::max(manifest.number, highest + 1);
          if (server == 0) manifest.job = job;
          return OkStatus();
        });
  }
  if (!begun.ok()) {
    GiveUpSave(save);
    return begun;
  }
  const bool builds_on_one =
      since[0] != 0 && std::all_of(since.begin(), since.end(),
                                   [&](uint64_t s) { return s == since[0]; });
  if (options.kind == table::SaveKind::kDelta && builds_on_one) {
    manifest.kind = table::SaveKind::kDelta;
    manifest.since = since[0];
  }
  return save;
}

Status PsClient::CutSave(BegunSave& save, Deadline deadline) {
  table::SaveManifest& manifest = save.manifest;
  manifest.ledgers.resize(num_servers());
  manifest.epochs.resize(num_servers());
  RequestHead head = HeadOf(Op::kCutSave);
  head.timeout_ms = MillisecondsUntil(deadline);
  return RunOnAll(
      {"begin to save to", save.folder}, head,
      channel::MessageWriter()
          .U64(save.token)
          .U64(manifest.number)
          .U8(manifest.kind == table::SaveKind::kBase ? 0 : 1)
          .U8(save.options.text)
          .Take(),
      WithTimeToAnswer(deadline),
      [&](uint32_t server, std::span<const std::byte> answer) -> Status {
        channel::MessageReader in(base::TextOf(answer));
        manifest.ledgers[server] = in.Text();
        manifest.epochs[server] = in.U64();
        const uint64_t view = in.U64();
        std::map<uint32_t, uint64_t> incarnations;
        for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
          const uint32_t worker = in.U32();
          incarnations[worker] = in.U64();
        }
        // Server 0 gives incarnations, and is told of the others' epochs.
        if (server == 0) {
          manifest.view = view;
          manifest.incarnations = std::move(incarnations);
        }
        return in.Finish();
      });
}

Status PsClient::WriteTables(BegunSave& save, Deadline deadline) {
  const std::string body = channel::MessageWriter().U64(save.token).Take();
  for (const TableInfo& table : tables()) {
    RequestHead head = HeadOf(Op::kSave, table.id);
    head.timeout_ms = MillisecondsUntil(deadline);
    RETURN_IF_ERROR(RunOnAll(
        {"save", base::Concat(table.name, " to ", save.folder)}, head, body,
        WithTimeToAnswer(deadline),
        [&](uint32_t server, std::span<const std::byte> answer) -> Status {
          ASSIGN_OR_RETURN(table::SaveList list,
                           table::DecodeSaveList(base::TextOf(answer)));
          list.id.server = server;
          save.manifest.lists.push_back(std::move(list));
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
  Status read = ReadTables(token, folder, deadline);
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
  RequestHead head = HeadOf(Op::kBeginLoad);
  head.timeout_ms = MillisecondsUntil(deadline);
  const Deadline answer_by = WithTimeToAnswer(deadline);
  auto begin = [&](bool newest, uint64_t number) {
    return channel::MessageWriter()
        .U64(token)
        .Text(folder)
        .U8(newest)
        .U64(number)
        .Take();
  };
  uint64_t number = 0;
  RETURN_IF_ERROR(
      RunOnFirst({"begin to load", folder}, head, begin(true, 0), answer_by,
                 [&](uint32_t, std::span<const std::byte> answer) -> Status {
                   channel::MessageReader in(base::TextOf(answer));
                   number = in.U64();
                   return in.Finish();
                 }));
  RETURN_IF_ERROR(RunOnAll({"begin to load", folder}, head,
                           begin(false, number), answer_by));
  for (const TableInfo& table : tables()) {
    RETURN_IF_ERROR(
        RunOnAll({"load", base::Concat(table.name, " from ", folder)},
                 HeadOf(Op::kLoad, table.id),
                 channel::MessageWriter().U64(token).Take(), deadline));
  }
  return OkStatus();
}

}  // namespace fleet::ps
