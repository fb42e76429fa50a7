// SPDX-License-Identifier: Apache-2.0

// A server that is started again with a checkpoint and a log: it has tables, or
// says why not. Parts of the input: the checkpoint (empty: none), names and
// bytes of its files, an empty name, then records.

#include <chrono>

#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/server.h"

#include "tests/fuzz_bytes/bytes.h"
#include "tests/fuzz_bytes/segment.h"

namespace {

namespace base = fleet::base;
namespace ps = fleet::ps;

bool AllSmall(const base::Path& folder,
              const fleet::Result<ps::Checkpoint>& checkpoint,
              uint64_t segment) {
  const auto is_small = [](std::string_view text) {
    const auto spec = ps::DecodeTableSpec(text);
    return !spec.ok() || fleet::fuzz::IsSmall(*spec);
  };
  if (checkpoint.ok()) {
    for (const ps::Checkpoint::Table& table : checkpoint->tables) {
      if (!is_small(table.spec)) return false;
    }
  }
  const auto records = base::LogRecords::Read(folder, segment);
  if (!records.ok()) return true;
  for (const auto& record : records->all()) {
    const auto request = ps::DecodeLogged(record);
    if (request.ok() && request->request.op == ps::Op::kCreate &&
        !is_small(base::TextOf(request->body))) {
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  base::SetMinLogSeverity(base::LogSeverity::ERROR);
  fleet::fuzz::Input input(data, size);
  (void)input.TakeByte();
  const base::Path& folder = fleet::fuzz::EmptyFolder();
  const std::string bytes = input.TakePart();
  const auto checkpoint = ps::DecodeCheckpoint(bytes);
  uint64_t segment = 1;
  base::Path of_files = folder / "files";
  if (!bytes.empty()) fleet::fuzz::Put(folder / "checkpoint", bytes);
  if (checkpoint.ok()) {
    segment = checkpoint->segment;
    of_files = folder / base::FileNameOf(checkpoint->folder);
  }
  (void)base::MakeFolders(of_files);
  for (int i = 0; i < 16; ++i) {
    const std::string name = input.TakePart();
    if (name.empty()) break;
    fleet::fuzz::Put(of_files / base::FileNameOf(name), input.TakePart());
  }
  fleet::fuzz::Put(folder / base::Concat("log.", segment),
                   fleet::fuzz::SegmentOf(input, segment));
  if (!AllSmall(folder, checkpoint, segment)) return 0;
  ps::PsServerOptions options;
  options.num_workers = 2;
  options.epoch = 1000;
  options.durability = ps::Durability::kLogSync;
  options.log_folder = folder.string();
  options.log_segment_byte_size = 1 << 16;
  ps::PsServer server(options);
  const fleet::Status opened = server.OpenLog();
  if (!opened.ok()) return 0;
  (void)server.EncodeLedger();
  if (server.sparse(ps::TableId{0}) != nullptr) ++fleet::fuzz::num_taken;
  return 0;
}
