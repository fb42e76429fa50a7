// SPDX-License-Identifier: Apache-2.0

// Files of rows, as a reader sees them and as tables load them. By the first
// byte: 1, their checksums are made right, as somebody who crafts one would; 2,
// a sparse table loads it; 4, a dense one.

#include "fleet/table/rows_file.h"

#include <memory>

#include "fleet/table/dense_table.h"
#include "fleet/table/sparse_table.h"

#include "tests/fuzz_bytes/bytes.h"

namespace {

namespace base = fleet::base;
namespace table = fleet::table;

constexpr size_t kHeadSize = 48;

template <typename T>
T Number(const std::string& bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + at, sizeof(T));
  }
  return value;
}

void Repair(std::string& bytes) {
  const auto store = [&](size_t at, uint32_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  const uint64_t head = kHeadSize + Number<uint32_t>(bytes, 20) +
                        uint64_t{Number<uint32_t>(bytes, 24)};
  if (head + 4 > bytes.size()) return;
  const std::string_view all = bytes;
  store(head, base::Crc32c(all.substr(0, head)));
  const uint64_t row = 8 + 4 * uint64_t{Number<uint32_t>(bytes, 16)};
  auto num_rows = Number<uint64_t>(bytes, 32);
  for (uint64_t at = head + 4; at + 8 <= bytes.size();) {
    const uint64_t count = Number<uint32_t>(bytes, at);
    const uint64_t size = count * (num_rows > 0 ? row : 8);
    if (count == 0 || size > bytes.size() - at - 8) return;
    store(at + 4, base::Crc32c(all.substr(at + 8, size)));
    at += 8 + size;
    num_rows -= std::min(num_rows, count);
  }
}

void PutList(const base::Path& folder, const std::string& name,
             uint64_t byte_size) {
  std::string list = base::Concat(
      "fleet save 1\ntable ", name, "\nnumber 1\nkind base\nserver 0 of 1\n",
      "step 1\nfile ", byte_size, " 0 ", name, ".1.0-of-1.0.rows\nend ");
  fleet::fuzz::RepairEnd(list);
  fleet::fuzz::Put(folder / (name + ".1.0-of-1.list"), list);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  std::string bytes = input.rest();
  if ((mode & 1) != 0) Repair(bytes);
  const base::Path& folder = fleet::fuzz::EmptyFolder();
  const std::string name = (mode & 4) != 0 ? "fc.w" : "emb";
  const base::Path path = folder / (name + ".1.0-of-1.0.rows");
  fleet::fuzz::Put(path, bytes);
  uint64_t num_rows = 0;
  const fleet::Status read = table::ReadRows(
      path, [&](const table::RowsHeader& header,
                std::span<const table::Key> keys, std::span<const float> rows) {
        FLEET_CHECK(rows.empty() ||
                    rows.size() == keys.size() * header.row_floats);
        num_rows += keys.size();
        return fleet::OkStatus();
      });
  FLEET_CHECK(!read.ok() || num_rows <= bytes.size() / sizeof(table::Key));
  if ((mode & 6) == 0) {
    if (read.ok()) ++fleet::fuzz::num_taken;
    return 0;
  }
  PutList(folder, name, bytes.size());
  if ((mode & 4) != 0) {
    table::DenseTableOptions options;
    options.name = name;
    options.size = 1100;
    options.part = {0, 1100};
    options.update.rule = fleet::optim::Adam{};
    auto made = table::DenseTable::Make(options);
    FLEET_CHECK(made.ok());
    if ((*made)->Load(folder).ok()) ++fleet::fuzz::num_taken;
    return 0;
  }
  table::SparseTableOptions options;
  options.name = name;
  options.dim = 4;
  options.num_shards = 2;
  options.update.rule = fleet::optim::Adam{};
  options.time_to_live = std::chrono::seconds((mode & 8) != 0 ? 100 : 0);
  if ((mode & 16) != 0) options.show_click.emplace();
  auto made = table::SparseTable::Make(options);
  FLEET_CHECK(made.ok());
  if ((*made)->Load(folder, 0, 1).ok()) ++fleet::fuzz::num_taken;
  return 0;
}
