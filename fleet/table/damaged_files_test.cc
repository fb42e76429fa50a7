// SPDX-License-Identifier: Apache-2.0

// Files of tables that somebody crafted or damaged: loading them is an error or
// not, and never a crash, nor memory that the file does not have.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/bytes.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/status_matchers.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/rows_file.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/mutations.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {
namespace {

using testing::AllOf;
using testing::Draw;
using testing::HasSubstr;
using testing::TemporaryFolder;

constexpr size_t kHeadSize = 48;
// Where numbers lie in the head of a file of rows.
constexpr size_t kTableSizeAt = 20;
constexpr size_t kLayoutSizeAt = 24;
constexpr uint64_t kMegabyte = 1 << 20;

SparseTableOptions Sparse() {
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 4;
  options.num_shards = 2;
  options.update.rule = optim::Adam{};
  return options;
}

DenseTableOptions Dense() {
  DenseTableOptions options;
  options.name = "fc.w";
  options.size = 3000;
  options.part = {0, 3000};
  options.update.rule = optim::Adam{};
  return options;
}

std::unique_ptr<SparseTable> MakeSparse() {
  return std::move(SparseTable::Make(Sparse()).value());
}
std::unique_ptr<DenseTable> MakeDense() {
  return std::move(DenseTable::Make(Dense()).value());
}

// Without waiting for a disk, as base::AtomicWriteFile would, and as some file
// systems do when a file is made empty and written again.
void Write(const base::Path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

template <typename T>
T Number(const std::string& bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) {
    std::memcpy(&value, bytes.data() + at, sizeof(T));
  }
  return value;
}

// Makes all checksums of a file of rows right that are where they should be, as
// somebody who crafts one would.
void RepairRows(std::string& bytes) {
  auto store = [&](size_t at, uint32_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  const uint64_t head = kHeadSize + Number<uint32_t>(bytes, kTableSizeAt) +
                        uint64_t{Number<uint32_t>(bytes, kLayoutSizeAt)};
  if (head + 4 > bytes.size()) return;
  const std::string_view all = bytes;
  store(head, base::Crc32c(all.substr(0, head)));
  const uint64_t row = 8 + 4 * uint64_t{Number<uint32_t>(bytes, 16)};
  auto num_rows = Number<uint64_t>(bytes, 32);
  uint64_t at = head + 4;
  while (at + 8 <= bytes.size()) {
    const uint64_t count = Number<uint32_t>(bytes, at);
    const uint64_t size = count * (num_rows > 0 ? row : 8);
    if (count == 0 || size > bytes.size() - at - 8) return;
    store(at + 4, base::Crc32c(all.substr(at + 8, size)));
    at += 8 + size;
    num_rows -= std::min(num_rows, count);
  }
}

void RepairList(std::string& text) {
  const size_t end = std::min(text.rfind("end "), text.size());
  text.resize(end);
  text += base::Concat("end ", base::Crc32c(text), "\n");
}

// A folder with a base and a delta of a sparse table, or with a dense table.
class DamagedFiles : public testing::Test {
 protected:
  void SetUp() override {
    auto sparse = MakeSparse();
    std::vector<Key> keys(100);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = 7 * i;
    const std::vector<float> rows(4 * keys.size(), 0.25f);
    ASSERT_OK(sparse->Assign(keys, rows));
    ASSERT_OK(sparse->Save(folder(), {.id = {.number = 1}}));
    ASSERT_OK(
        sparse->Assign(std::span(keys).first(10), std::span(rows).first(40)));
    ASSERT_OK(sparse->Save(folder(),
                           {.id = {.number = 2, .kind = SaveKind::kDelta}}));
    auto dense = MakeDense();
    ASSERT_OK(dense->Assign(std::vector<float>(3000, 0.5f)));
    ASSERT_OK(dense->Save(folder(), {.number = 1}));
    ASSERT_OK(LoadSparse());
    ASSERT_OK(LoadDense());
  }

  const base::Path& folder() const { return folder_.path(); }
  Status LoadSparse() { return sparse_->Load(folder(), 0, 1).status(); }
  Status LoadDense() { return dense_->Load(folder()).status(); }

  // Puts a file of rows that `change` made in place of the first of `table`,
  // with right checksums and a list that knows its size.
  void Craft(const std::string& table,
             const std::function<void(std::string&)>& change) {
    const std::string rows = table + ".1.0-of-1.0.rows";
    std::string bytes = base::ReadFile(folder() / rows).value();
    change(bytes);
    RepairRows(bytes);
    Write(folder() / rows, bytes);
    const base::Path list_path = folder() / (table + ".1.0-of-1.list");
    std::string list = base::ReadFile(list_path).value();
    const size_t at = list.find("file ");
    list.replace(at, list.find(' ', at + 5) - at,
                 base::Concat("file ", bytes.size()));
    RepairList(list);
    Write(list_path, list);
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<SparseTable> sparse_ = MakeSparse();
  std::unique_ptr<DenseTable> dense_ = MakeDense();
};

template <typename T>
std::function<void(std::string&)> Set(size_t at, T value) {
  return [=](std::string& bytes) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
}

TEST_F(DamagedFiles, RowsThatAreShorterThanTheirLayout) {
  Craft("emb", Set<uint32_t>(16, 4));
  EXPECT_THAT(LoadSparse(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("rows of 4 numbers")));
  Craft("fc.w", Set<uint32_t>(16, 1024));
  EXPECT_THAT(LoadDense(), StatusIs(StatusCode::kDataLoss,
                                    HasSubstr("blocks of 1024 numbers")));
}

TEST_F(DamagedFiles, ErasedKeysOfADenseTable) {
  // Three blocks become erased keys; their bytes are cut off.
  Craft("fc.w", [](std::string& bytes) {
    Set<uint64_t>(32, 0)(bytes);
    Set<uint64_t>(40, 3)(bytes);
    const uint64_t head = kHeadSize + Number<uint32_t>(bytes, kTableSizeAt) +
                          Number<uint32_t>(bytes, kLayoutSizeAt);
    bytes.resize(head + 4 + 8 + 3 * 8);
    Set<uint32_t>(head + 4, 3)(bytes);
  });
  EXPECT_THAT(LoadDense(), StatusIs(StatusCode::kDataLoss,
                                    HasSubstr("3 erased keys of a dense")));
}

TEST_F(DamagedFiles, MoreRowsThanTheFileHasBytesFor) {
  for (const uint64_t num_rows :
       {101ull, 5'000'000ull, 1ull << 40, 1ull << 61, ~0ull}) {
    const uint64_t before = testing::PeakMemory();
    Craft("emb", Set<uint64_t>(32, num_rows));
    EXPECT_THAT(LoadSparse(),
                StatusIs(StatusCode::kDataLoss, HasSubstr("it ends after")));
    EXPECT_LT(testing::PeakMemory() - before, 8 * kMegabyte) << num_rows;
  }
  Craft("emb", Set<uint64_t>(32, 50));
  Craft("emb", Set<uint64_t>(40, ~0ull));
  EXPECT_THAT(LoadSparse(), HasCode(StatusCode::kDataLoss));
}

TEST_F(DamagedFiles, RowsWithoutValues) {
  Craft("emb", [](std::string& bytes) {
    Set<uint32_t>(12, 0)(bytes);
    Set<uint32_t>(16, 0)(bytes);
  });
  EXPECT_THAT(LoadSparse(), StatusIs(StatusCode::kDataLoss,
                                     HasSubstr("its rows have no values")));
}

TEST_F(DamagedFiles, AListThatLeadsOutOfItsFolder) {
  const base::Path path = folder() / "emb.1.0-of-1.list";
  const std::string whole = base::ReadFile(path).value();
  for (const char* name : {"../emb.rows", "/etc/passwd", "a/b.rows"}) {
    std::string list = whole;
    list.replace(list.find("emb.1."), 4, name);
    RepairList(list);
    Write(path, list);
    EXPECT_THAT(LoadSparse(), StatusIs(StatusCode::kDataLoss,
                                       AllOf(HasSubstr("emb.1.0-of-1.list"),
                                             HasSubstr("makes no sense"))));
  }
}

TEST_F(DamagedFiles, RandomChangesAreAnErrorOrNot) {
  Draw draw(1);
  const uint64_t before = testing::PeakMemory();
  int num_loaded = 0;
  int num_refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const bool sparse = i % 2 == 0;
    const std::string name = sparse ? "emb" : "fc.w";
    const base::Path rows = folder() / (name + ".1.0-of-1.0.rows");
    const base::Path list = folder() / (name + ".1.0-of-1.list");
    const std::string whole_rows = base::ReadFile(rows).value();
    const std::string whole_list = base::ReadFile(list).value();
    if (i % 5 == 0) {
      std::string bytes = testing::Mutated(whole_list, draw);
      if (i % 3 != 0) RepairList(bytes);
      Write(list, bytes);
    } else {
      // Most changes are in the head, which has all the sizes.
      Craft(name, [&](std::string& bytes) {
        const size_t begin =
            i % 4 == 0 ? 0 : std::min<size_t>(120, bytes.size());
        bytes = i % 4 == 0 ? testing::Mutated(bytes, draw)
                           : testing::Mutated(bytes.substr(0, begin), draw) +
                                 bytes.substr(begin);
      });
    }
    const Status loaded = sparse ? LoadSparse() : LoadDense();
    ++(loaded.ok() ? num_loaded : num_refused);
    Write(rows, whole_rows);
    Write(list, whole_list);
  }
  EXPECT_GT(num_loaded, 50);
  EXPECT_GT(num_refused, 1000);
  EXPECT_LT(testing::PeakMemory() - before, 32 * kMegabyte);
}

}  // namespace
}  // namespace fleet::table
