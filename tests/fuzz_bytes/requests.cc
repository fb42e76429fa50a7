// SPDX-License-Identifier: Apache-2.0

// What a worker sends to a server, message by message. By the first byte: 1,
// there is a log, and a server that is started again must take it and have the
// same tables; 2, two workers; 4, no hello before.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/ps/server.h"
#include "fleet/ps/wire.h"

#include "tests/fuzz_bytes/bytes.h"
#include "tests/fuzz_bytes/tables.h"

namespace {

namespace base = fleet::base;
namespace channel = fleet::channel;
namespace ps = fleet::ps;
namespace table = fleet::table;
using fleet::Status;
using fleet::base::Deadline;
using ps::Op;
using ps::RequestHead;

constexpr int kMaxMessages = 64;

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

std::unique_ptr<ps::PsServer> MakeServer(uint8_t mode, uint64_t epoch,
                                         const base::Path& folder) {
  ps::PsServerOptions options;
  options.num_workers = (mode & 2) != 0 ? 2 : 1;
  options.worker_grace = std::chrono::seconds(60);
  options.epoch = epoch;
  if ((mode & 1) != 0) {
    options.durability = ps::Durability::kLog;
    options.log_folder = (folder / "log").string();
    options.log_segment_byte_size = 1 << 16;
  }
  return std::make_unique<ps::PsServer>(options);
}

// Whether the message may be sent: workers are trusted with folders and with
// memory, and here they are not. One of a save or load gets a folder of ours.
bool Tame(std::string& message, const base::Path& folder) {
  auto head = base::LoadAt<RequestHead>(std::as_bytes(std::span(message)), 0);
  // It may wait, but not long.
  head.timeout_ms = std::min(head.timeout_ms, 2u);
  std::string body = message.substr(sizeof(head));
  if (head.op == Op::kCreate) {
    const auto specs = ps::DecodeTableSpecs(body);
    if (specs.ok() && !std::ranges::all_of(*specs, fleet::fuzz::IsSmall)) {
      return false;
    }
  }
  if (head.op == Op::kBeginSave || head.op == Op::kBeginLoad) {
    channel::MessageReader in(body);
    const uint64_t token = in.U64();
    (void)in.Text();
    channel::MessageWriter out;
    out.U64(token).Text((folder / "saves").string()).Raw(in.rest());
    body = out.Take();
  }
  message = std::string(base::TextOf(base::BytesOf(head))) + body;
  return true;
}

// One message and its answer. False when the server has ended the connection.
bool Ask(channel::Channel& channel, std::string_view message, Op op,
         bool& failed) {
  if (!channel.Send(std::as_bytes(std::span(message)), Soon()).ok()) {
    return false;
  }
  const auto reply = channel.RecvMessage(1 << 26, Soon());
  if (!reply.ok()) {
    FLEET_CHECK(reply.status().code() != fleet::StatusCode::kDeadlineExceeded,
                reply.status());
    return false;
  }
  const auto head = base::LoadAt<ps::ReplyHead>(std::span(*reply), 0);
  // What a worker did wrong is not the server's failure.
  FLEET_CHECK(head.code != static_cast<uint32_t>(fleet::StatusCode::kInternal),
              "an internal error as the answer to a request of kind ",
              static_cast<uint32_t>(op));
  if (head.code != 0) failed = true;
  if ((head.flags & ps::kReplyApart) != 0) {
    const auto rest = channel.RecvMessage(1 << 26, Soon());
    FLEET_CHECK(rest.ok() && rest->size() == head.count);
  }
  return true;
}

// All rows and values with their state.
std::map<std::string, std::string> Everything(ps::PsServer& server,
                                              const base::Path& folder) {
  FLEET_CHECK(base::MakeFolders(folder).ok());
  table::SaveId id;
  id.number = 1;
  for (uint32_t i = 0; i < 4; ++i) {
    if (table::SparseTable* sparse = server.sparse(ps::TableId{i})) {
      FLEET_CHECK(sparse->WriteSave(folder, {id}).ok());
      sparse->EndSave(false);
    }
    if (table::DenseTable* dense = server.dense(ps::TableId{i})) {
      FLEET_CHECK(dense->WriteSave(folder, id).ok());
    }
  }
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = base::ListFolder(folder).value();
  for (const std::string& name : names) {
    files[name] = base::ReadFile(folder / name).value();
  }
  return files;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  base::SetMinLogSeverity(base::LogSeverity::ERROR);
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  const base::Path& folder = fleet::fuzz::EmptyFolder();
  auto server = MakeServer(mode, 1, folder);
  FLEET_CHECK(server->OpenLog().ok());
  for (const ps::TableSpec& spec : fleet::fuzz::Specs()) {
    FLEET_CHECK(server->Create(spec).ok());
  }
  bool failed = false;
  {
    const auto channel = server->ConnectInProcess("worker 0");
    if ((mode & 4) == 0) {
      RequestHead head;
      head.op = Op::kHello;
      std::string hello(base::TextOf(base::BytesOf(head)));
      hello += channel::MessageWriter().U32(0).U32(0).U64(0).U64(0).Take();
      FLEET_CHECK(Ask(*channel, hello, Op::kHello, failed) && !failed);
    }
    for (int i = 0; i < kMaxMessages && !input.empty(); ++i) {
      std::string message = input.TakePart();
      Op op{};
      if (message.size() >= sizeof(RequestHead)) {
        if (!Tame(message, folder)) continue;
        op = base::LoadAt<Op>(std::as_bytes(std::span(message)), 0);
        // A row that was only pulled is not in the log.
        if (op == Op::kPull && (mode & 1) != 0) continue;
      }
      if (!Ask(*channel, message, op, failed)) break;
      if (!failed) ++fleet::fuzz::num_taken;
    }
  }
  if ((mode & 1) == 0) return 0;
  // A request that failed may have been done in part, which is not logged.
  std::map<std::string, std::string> before;
  if (!failed) before = Everything(*server, folder / "before");
  server.reset();
  server = MakeServer(mode, 2, folder);
  const Status opened = server->OpenLog();
  FLEET_CHECK(opened.ok(), opened);
  if (failed) return 0;
  const auto after = Everything(*server, folder / "after");
  FLEET_CHECK_EQ(after.size(), before.size());
  for (const auto& [name, bytes] : before) {
    FLEET_CHECK(after.at(name) == bytes, name, " is another one");
  }
  return 0;
}
