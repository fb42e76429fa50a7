// SPDX-License-Identifier: Apache-2.0

// Writes the inputs with which fuzzing begins, by what our own writers make:
//
//   fuzz_seeds tests/fuzz_bytes/corpus

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/channel/hello.h"
#include "fleet/channel/message.h"
#include "fleet/cluster/membership_protocol.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"
#include "fleet/program/wire.h"
#include "fleet/ps/client.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/server.h"
#include "fleet/saved/model_file.h"
#include "fleet/saved/tensor_file.h"
#include "fleet/table/rows_file.h"

#include "tests/fuzz_bytes/bytes.h"
#include "tests/fuzz_bytes/segment.h"
#include "tests/fuzz_bytes/tables.h"

namespace fleet::fuzz {
namespace {

using base::Deadline;
using base::Path;
using ps::PsClient;
using ps::TableId;

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

void Check(const Status& status) { FLEET_CHECK(status.ok(), status); }

class Corpus final {
 public:
  explicit Corpus(Path folder) : folder_(std::move(folder)) {}

  void Add(const std::string& target, const std::string& name, uint8_t mode,
           std::string_view bytes) {
    const Path folder = folder_ / target;
    Check(base::MakeFolders(folder));
    Put(folder / ("seed-" + name),
        static_cast<char>(mode) + std::string(bytes));
  }

 private:
  Path folder_;
};

// Passes messages on and remembers them.
class Recorder final : public channel::Channel {
 public:
  struct Messages {
    base::Mutex mutex;
    std::string sent GUARDED_BY(mutex);  // without hellos and beats
    // By connection, in the order in which they were opened.
    std::vector<std::string> received GUARDED_BY(mutex);
  };
  Recorder(std::unique_ptr<channel::Channel> real, Messages& messages)
      : Channel(real->peer()), real_(std::move(real)), messages_(messages) {
    base::MutexLock lock(messages_.mutex);
    number_ = messages_.received.size();
    messages_.received.emplace_back();
  }

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   Deadline deadline) override {
    std::string message;
    for (const channel::ConstBytes& part : parts) {
      message += base::TextOf(part);
    }
    const auto op = base::LoadAt<ps::Op>(std::as_bytes(std::span(message)), 0);
    if (op != ps::Op::kHello && op != ps::Op::kBeat) {
      base::MutexLock lock(messages_.mutex);
      AppendPart(messages_.sent, message);
    }
    return real_->SendParts(parts, deadline);
  }
  Result<uint64_t> NextSize(Deadline deadline) override {
    return real_->NextSize(deadline);
  }
  Status Recv(channel::MutableBytes into, Deadline deadline) override {
    RETURN_IF_ERROR(real_->Recv(into, deadline));
    base::MutexLock lock(messages_.mutex);
    AppendPart(messages_.received[number_], base::TextOf(into));
    return OkStatus();
  }
  void Abort(Status why) override { real_->Abort(std::move(why)); }

 private:
  std::unique_ptr<channel::Channel> real_;
  Messages& messages_;
  size_t number_ = 0;
};

// What a worker does with a server; each call of `after` ends a part of it.
void Train(PsClient& client, const std::string& folder,
           const std::function<void(const char*)>& after) {
  const std::vector<ps::Key> keys = {1, 2, 3};
  std::vector<float> rows(6);
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  const std::vector<float> ones = {1, 1, 1};
  std::vector<float> dense(10, 0.5f);
  const std::vector<ps::DenseValues> values = {{TableId{1}, dense}};
  const std::vector<ps::DenseGradient> of_dense = {{TableId{1}, dense}};
  after("connect");
  Check(client.CreateTables(Specs(), Soon()));
  after("create");
  Check(client.InitializeDense(TableId{1}, dense, Soon()));
  Check(client.Refresh(Soon()));
  Check(client.Pull(TableId{0}, keys, rows, {}, Soon()));
  Check(client.Push(TableId{0}, keys, gradients, Soon(), 1));
  Check(client.ExchangeDense(of_dense, values, Soon(), 1));
  after("push");
  Check(client.Pull(TableId{2}, keys, rows, {.count = true}, Soon()));
  Check(client.PushShown(TableId{2}, keys, gradients, ones, ones, Soon()));
  Check(client.Shrink(TableId{2}, 3, Soon()).status());
  Check(client.Stats(TableId{2}, Soon()).status());
  after("shown");
  Check(client.Add(TableId{3}, keys, gradients, Soon()));
  Check(client.TakeChanges(TableId{3}, Soon()).status());
  after("geo");
  Check(client.Accumulate(TableId{0}, keys, gradients, Soon()));
  Check(client.FinishStep(of_dense, values, Soon()));
  Check(client.IdleStep(Soon()).status());
  Check(client.SetRate("rate", 0.25, Soon()));
  after("step");
  Check(client.Barrier("all", Soon()));
  Check(client.AllGather("gather", "some bytes", Soon()).status());
  const uint64_t turn = client.BeginTurn(Soon()).value();
  Check(client.EndTurn(turn, Soon()));
  after("barrier");
  Check(client.Save(folder, {}, Soon()));
  Check(client.Push(TableId{0}, keys, gradients, Soon()));
  Check(client.Save(folder, {.kind = table::SaveKind::kDelta}, Soon()));
  after("save");
  Check(client.Load(folder, Soon()));
  after("load");
}

// Requests and replies of each part, as inputs.
void AddMessages(Corpus& corpus, const Path& folder) {
  ps::PsServer server({.num_workers = 1});
  for (const ps::TableSpec& spec : Specs()) Check(server.Create(spec));
  Recorder::Messages messages;
  auto client = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        return std::make_unique<Recorder>(server.ConnectInProcess("worker 0"),
                                          messages);
      },
      {}, Soon());
  Check(client.status());
  Train(**client, (folder / "saves").string(), [&](const char* name) {
    base::MutexLock lock(messages.mutex);
    for (const int mode : {0, 1}) {
      corpus.Add("requests", base::Concat(name, ".", mode),
                 static_cast<uint8_t>(mode), messages.sent);
    }
    // What is loaded was saved before.
    if (std::string_view(name) != "save") messages.sent.clear();
    std::string heard;  // since the connections were opened
    for (const std::string& connection : messages.received) {
      AppendPart(heard, connection);
    }
    corpus.Add("replies", name, 0, heard);
  });
  Check((*client)->Stop(Soon()));
}

void AddLogs(Corpus& corpus, const Path& folder) {
  for (const bool checkpoint : {false, true}) {
    ps::PsServerOptions options;
    options.num_workers = 1;
    options.durability = ps::Durability::kLog;
    options.log_folder = (folder / base::Concat("log.", checkpoint)).string();
    options.log_segment_byte_size = 1 << 16;
    options.checkpoint_byte_size = 1;
    ps::PsServer server(options);
    Check(server.OpenLog());
    auto client = PsClient::Connect(
        1,
        [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return server.ConnectInProcess("worker 0");
        },
        {}, Soon());
    Check(client.status());
    std::string bytes;
    Train(**client, (folder / "saves").string(), [&](const char* name) {
      if (std::string_view(name) == "shown" && checkpoint) {
        Check(server.CheckpointIfDue());
      }
      if (std::string_view(name) != "barrier") return;
      if (checkpoint) {
        const Path log = options.log_folder;
        AppendPart(bytes, base::ReadFile(log / ps::kCheckpointFile).value());
        const auto decoded = ps::DecodeCheckpoint(
            base::ReadFile(log / ps::kCheckpointFile).value());
        Check(decoded.status());
        const Path files = log / decoded->folder;
        const std::vector<std::string> names = base::ListFolder(files).value();
        for (const std::string& name : names) {
          AppendPart(bytes, name);
          AppendPart(bytes, base::ReadFile(files / name).value());
        }
      } else {
        AppendPart(bytes, "");
      }
      AppendPart(bytes, "");  // no more files
      const std::string parts = PartsOf(options.log_folder);
      corpus.Add("server_log", checkpoint ? "checkpoint" : "log", 0,
                 bytes + parts);
      corpus.Add("log_records", checkpoint ? "short" : "long", 1, parts);
      std::string whole;
      Input input(reinterpret_cast<const uint8_t*>(parts.data()), parts.size());
      corpus.Add("log_records", checkpoint ? "short.raw" : "long.raw", 0,
                 SegmentOf(input));
    });
    Check((*client)->Stop(Soon()));
  }
}

void AddSaves(Corpus& corpus, const Path& folder) {
  std::array<std::string, 2> manifests;
  for (const uint64_t number : {1, 2}) {
    table::SaveManifest manifest;
    manifest.number = number;
    manifest.job = "a job";
    manifest.ledgers = {"ledger\x01", ""};
    if (number == 2) {
      manifest.kind = table::SaveKind::kDelta;
      manifest.since = 1;
    }
    table::SaveList list;
    list.table = "emb";
    list.id = {number, manifest.kind, 0, 2};
    list.step = 12;
    list.time = 3600;
    const std::string bytes = number == 1 ? "rows" : "";
    list.files = {{base::Concat("emb.", number, ".0-of-1.0.rows"), bytes.size(),
                   base::Crc32c(bytes)}};
    manifest.lists = {list};
    manifests[number - 1] = Encode(manifest);
    corpus.Add("save_list", base::Concat("sent.", number), 2,
               table::Encode(list));
    if (number == 2) continue;
    list.id = {number, manifest.kind, 0, 1};
    Check(table::WriteSaveList(folder, list));
    corpus.Add("save_list", "file", 1,
               base::ReadFile(folder / "emb.1.0-of-1.list").value());
  }
  std::string both;
  for (const std::string& manifest : manifests) AppendPart(both, manifest);
  corpus.Add("manifest", "base", 0, both.substr(0, 4 + manifests[0].size()));
  corpus.Add("manifest", "delta", 1, both);

  table::SparseTableOptions options;
  options.name = "emb";
  options.dim = 4;
  options.num_shards = 1;
  options.update.rule = optim::Adam{};
  for (const int kind : {0, 8, 16}) {
    if (kind == 8) options.time_to_live = std::chrono::seconds(100);
    if (kind == 16) options.show_click.emplace();
    auto made = table::SparseTable::Make(options);
    Check(made.status());
    const std::vector<table::Key> keys = {1, 2, 3, 4, 5};
    const std::vector<float> rows(20, 0.25f);
    Check((*made)->Assign(keys, rows));
    Check((*made)->Save(folder, {.id = {.number = 1}}).status());
    const std::string bytes =
        base::ReadFile(folder / "emb.1.0-of-1.0.rows").value();
    for (const int mode : {0, 1, 3}) {
      corpus.Add("rows_file", base::Concat("rows.", kind + mode),
                 static_cast<uint8_t>(kind + mode), bytes);
    }
  }
  table::RowsHeader header;
  header.table = "emb";
  header.layout = "values 4";
  header.dim = header.row_floats = 4;
  header.num_rows = 1;
  header.num_erased = 2;
  const Path path = folder / "erased.rows";
  auto writer = table::RowsWriter::Create(path, header);
  Check(writer.status());
  Check(writer->AddRow(1, std::vector<float>(4)));
  Check(writer->AddErased(2));
  Check(writer->AddErased(3));
  Check(writer->Commit());
  corpus.Add("rows_file", "erased", 1, base::ReadFile(path).value());
  table::DenseTableOptions dense;
  dense.name = "fc.w";
  dense.size = 1100;
  dense.part = {0, 1100};
  dense.update.rule = optim::Adam{};
  auto made = table::DenseTable::Make(dense);
  Check(made.status());
  Check((*made)->Assign(std::vector<float>(1100, 0.5f)));
  Check((*made)->Save(folder, {.number = 1}).status());
  corpus.Add("rows_file", "dense", 5,
             base::ReadFile(folder / "fc.w.1.0-of-1.0.rows").value());
}

void AddDescriptions(Corpus& corpus) {
  ps::ServerInfo info;
  info.num_servers = info.num_workers = 1;
  info.local_name = "local";
  info.tables = {
      {.id = TableId{0}, .name = "emb", .dim = 2},
      {.id = TableId{1}, .name = "fc.w", .dense = true, .size = 10, .end = 10}};
  corpus.Add("replies", "server", 1, Encode(info));
  const ps::LaneRecord lane{1, 7, {{TableId{0}, 3}, {TableId{1}, 4}}};
  corpus.Add("replies", "hello", 2,
             Encode(ps::HelloAnswer{1, 2, true, {lane}, "12 updates"}));
  corpus.Add("replies", "ledger", 3, Encode(ps::Ledger{{{0, 5, {lane}}}}));
  ps::Goodbye goodbye{0, 5, {{TableId{0}, {"emb", 12}}}};
  corpus.Add("replies", "goodbyes", 4, Encode(std::vector{goodbye}));
  for (const ps::TableSpec& spec : Specs()) {
    corpus.Add("replies", "spec." + spec.name(), 5, ps::Encode(spec));
  }
}

void AddHellos(Corpus& corpus) {
  const auto hello = channel::MakeHello({}, false);
  Check(hello.status());
  channel::Hello fixed = *hello;
  fixed.nonce = {};
  const channel::HelloBytes bytes = channel::Encode(fixed);
  const std::string text(base::TextOf(bytes));
  const auto proof =
      channel::MakeProof("", channel::Side::kCaller, bytes, bytes);
  Check(proof.status());
  corpus.Add("hello", "open", 0, text + std::string(base::TextOf(*proof)));
  fixed.has_secret = fixed.encrypts = fixed.by_tls = true;
  corpus.Add("hello", "closed", 1,
             std::string(base::TextOf(channel::Encode(fixed))) +
                 std::string(base::TextOf(*proof)));
}

void AddMembership(Corpus& corpus) {
  using channel::MessageWriter;
  std::string calls;
  uint64_t number = 0;
  const auto call = [&](uint8_t caller, uint8_t operation,
                        MessageWriter& arguments) {
    calls += static_cast<char>(caller);
    AppendPart(calls, MessageWriter()
                          .U64(number++)
                          .U8(operation)
                          .Raw(arguments.Take())
                          .Take());
  };
  call(0, 1, MessageWriter().Text("key").Text("value"));
  call(1, 2, MessageWriter().Text("key"));
  call(0, 3, MessageWriter().Texts({"key", "other"}));
  call(1, 4, MessageWriter().Text("count").U64(7));
  call(1, 5, MessageWriter().Text("key").OptionalText("value").Text("new"));
  call(0, 6, MessageWriter().Text("all").U32(0).U32(2));
  call(1, 6, MessageWriter().Text("all").U32(1).U32(2));
  MessageWriter nothing;
  call(0, 7, nothing);
  call(2, 1, MessageWriter().Text("other").Text("value"));
  corpus.Add("membership", "store", 0, calls);
  corpus.Add("membership", "reply", 1,
             MessageWriter()
                 .U64(0)
                 .Failure(Unavailable("rank 1 died"))
                 .Text("value")
                 .Take());
  cluster::JoinRequest join;
  join.rank = 1;
  join.process = "process 4711 on host-b";
  join.meeting_name = "place";
  join.view = {2, {"10.0.0.1:9000", "10.0.0.2:9000"}};
  corpus.Add("membership", "join", 2, Encode(join).substr(1));
  const cluster::News news{cluster::News::Kind::kFailed, 1, "step",
                           Unavailable("it died")};
  corpus.Add("membership", "news", 3, Encode(news).substr(1));
}

void AddPrograms(Corpus& corpus) {
  program::OpRegistry registry;
  program::DefineAllOps(registry);
  program::Program net;
  program::Block& block = net.block(0);
  const auto add = [&](const std::string& name,
                       program::Dims dims) -> program::Variable& {
    return block.AddVariable(
        {.name = name, .type = {program::DType::kFloat32, std::move(dims)}});
  };
  add("x", {-1, 4}).is_data = true;
  program::Variable& w = add("w", {4, 5});
  w.persistable = w.is_parameter = true;
  const auto append = [&](program::Operation op) {
    Check(block.InferTypes(registry, block.Append(std::move(op))));
  };
  append({.type = "matmul_v2",
          .inputs = {{"X", {"x"}}, {"Y", {"w"}}},
          .outputs = {{"Out", {"h"}}}});
  append({.type = "softmax",
          .inputs = {{"X", {"h"}}},
          .outputs = {{"Out", {"y"}}}});
  append({.type = "scale",
          .inputs = {{"X", {"y"}}},
          .outputs = {{"Out", {"z"}}},
          .attrs = {{"scale", {program::AttrKind::kFloat, 2.0}},
                    {"bias", {program::AttrKind::kFloat, 1.0}}}});
  corpus.Add("program_text", "net", 0, ToString(net, {.lines = true}));
  corpus.Add("program_text", "ops", 0, ToString(net, {.variables = false}));
  corpus.Add("program_file", "net", 0, program::Serialize(net));
  Check(saved::ToInference(registry, net, {"x"}, {"z"}, saved::Paddle::k2));
  corpus.Add("program_file", "inference", 0, program::Serialize(net));
  corpus.Add("program_file", "checked", 0, saved::SerializeProgram(net));
  corpus.Add("program_text", "inference", 0, ToString(net));
}

void AddTensors(Corpus& corpus) {
  const program::TensorType type{program::DType::kFloat32, {2, 3}};
  const std::vector<float> values(6, 0.5f);
  const std::vector<std::vector<uint64_t>> lod = {{0, 1, 2}};
  std::string bytes;
  const auto append = [&](std::span<const std::byte> more) {
    bytes += base::TextOf(more);
    return OkStatus();
  };
  const auto data = std::as_bytes(std::span(values));
  Check(saved::WriteTensor({type, data}, append));
  corpus.Add("tensor_file", "one", 1, bytes);
  Check(saved::WriteTensor({type, data, lod}, append));
  corpus.Add("tensor_file", "two", 2, bytes);
  // As Paddle writes it, without a checksum.
  std::string plain;
  base::Append<uint32_t>(plain, 0);
  base::Append<uint64_t>(plain, 0);
  base::Append<uint32_t>(plain, 0);
  const std::string desc = program::Serialize(type);
  base::Append<int32_t>(plain, static_cast<int32_t>(desc.size()));
  plain += desc;
  plain += base::TextOf(data);
  corpus.Add("tensor_file", "plain", 1, plain);
}

// Those that Python wrote, and a header on its own.
void AddContainers(Corpus& corpus, const Path& written) {
  const Result<std::vector<std::string>> names = base::ListFolder(written);
  Check(names.status());
  for (const std::string& name : *names) {
    const Result<std::string> bytes = base::ReadFile(written / name);
    Check(bytes.status());
    corpus.Add("container", name, 0, *bytes);
    if (name == "state") corpus.Add("container", "mended", 1, *bytes);
  }
  const std::string_view blob = "four";
  std::string file;
  AppendPart(file,
             base::Concat(R"({"root": {"dict": [["b", {"bytes": 0}]]}, )",
                          R"("blobs": [[64, 4, )", base::Crc32c(blob), "]]}"));
  corpus.Add("container", "header", 2, file + std::string(blob));
}

}  // namespace
}  // namespace fleet::fuzz

int main(int argc, char** argv) {
  using namespace fleet::fuzz;
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds CORPUS\n");
    return 2;
  }
  Corpus corpus(argv[1]);
  const fleet::base::Path& folder = EmptyFolder();
  AddHellos(corpus);
  AddMembership(corpus);
  AddPrograms(corpus);
  AddTensors(corpus);
  AddContainers(corpus, fleet::base::Path(argv[1]) /
                            "../../../python/tests/data/containers");
  AddDescriptions(corpus);
  AddSaves(corpus, folder);
  AddMessages(corpus, folder);
  AddLogs(corpus, folder);
  return 0;
}
