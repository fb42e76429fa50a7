// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/saved_table.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/crc32c.h"
#include "fleet/table/sparse_table.h"
#include "fleet/table/table_fixtures.h"

namespace fleet::table {
namespace {

constexpr uint64_t kNumRows = 5000;  // two blocks

RowsHeader Header() {
  RowsHeader header;
  header.table = "emb";
  header.layout = "values 2";
  header.dim = 2;
  header.row_floats = 2;
  header.num_rows = kNumRows;
  header.num_erased = 3;
  return header;
}

void WriteFile(const base::Path& path) {
  auto writer = RowsWriter::Create(path, Header());
  ASSERT_OK(writer);
  for (Key key = 0; key < kNumRows; ++key) {
    const float row[] = {static_cast<float>(key), 0.5f};
    ASSERT_OK(writer->AddRow(key * 3, row));
  }
  for (Key key : {7, 8, 1}) ASSERT_OK(writer->AddErased(key));
  ASSERT_OK(writer->Commit());
  EXPECT_EQ(*base::FileSize(path), writer->byte_size());
  EXPECT_EQ(base::Crc32c(*base::ReadFile(path)), writer->checksum());
}

Status Ignore(const RowsHeader&, std::span<const Key>, std::span<const float>) {
  return OkStatus();
}

TEST(SavedRows, AreReadAsTheyWereWritten) {
  TemporaryFolder folder;
  const base::Path path = folder.path() / "rows";
  WriteFile(path);
  std::vector<Key> keys;
  std::vector<float> rows;
  std::vector<Key> erased;
  ASSERT_OK(ReadRows(path, [&](const RowsHeader& header, std::span<const Key> k,
                               std::span<const float> r) {
    EXPECT_EQ(header.table, "emb");
    EXPECT_EQ(header.layout, "values 2");
    auto& to = r.empty() ? erased : keys;
    to.insert(to.end(), k.begin(), k.end());
    rows.insert(rows.end(), r.begin(), r.end());
    return OkStatus();
  }));
  ASSERT_EQ(keys.size(), kNumRows);
  EXPECT_EQ(keys[4999], 3u * 4999);
  EXPECT_EQ(rows[2 * 4999], 4999.0f);
  EXPECT_THAT(erased, ElementsAre(7, 8, 1));
}

TEST(SavedRows, ThatAreTruncatedSaySo) {
  TemporaryFolder folder;
  const base::Path path = folder.path() / "rows";
  WriteFile(path);
  const std::string whole = *base::ReadFile(path);
  for (const size_t size :
       {size_t{0}, size_t{5}, size_t{47}, size_t{60}, size_t{70}, size_t{500},
        whole.size() / 2, whole.size() - 1}) {
    ASSERT_OK(base::AtomicWriteFile(path, whole.substr(0, size)));
    EXPECT_THAT(ReadRows(path, Ignore),
                StatusIs(StatusCode::kDataLoss, HasSubstr("rows: it ends")))
        << size;
  }
  ASSERT_OK(base::AtomicWriteFile(path, whole + "x"));
  EXPECT_THAT(ReadRows(path, Ignore),
              StatusIs(StatusCode::kDataLoss, HasSubstr("more than")));
}

TEST(SavedRows, ThatAreDamagedSaySo) {
  TemporaryFolder folder;
  const base::Path path = folder.path() / "rows";
  WriteFile(path);
  const std::string whole = *base::ReadFile(path);
  for (size_t at = 0; at < whole.size(); at += at < 200 ? 1 : 997) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    ASSERT_OK(base::AtomicWriteFile(path, damaged));
    EXPECT_THAT(ReadRows(path, Ignore), HasCode(StatusCode::kDataLoss)) << at;
  }
}

TEST(SavedRows, LeaveNoFileWhenTheyAreNotFinished) {
  TemporaryFolder folder;
  {
    auto writer = RowsWriter::Create(folder.path() / "rows", Header());
    ASSERT_OK(writer);
    EXPECT_THAT(writer->Commit(), HasCode(StatusCode::kInternal));
  }
  EXPECT_THAT(*base::ListFolder(folder.path()), ElementsAre());
}

SaveList List(uint64_t number, SaveKind kind, uint32_t server,
              uint32_t num_servers) {
  SaveList list;
  list.table = "my emb";
  list.id = {number, kind, server, num_servers};
  list.step = 17;
  list.files.push_back({RowsFileName("my emb", list.id, 0), 10, 20});
  return list;
}

TEST(SaveLists, CountWhenAllServersWroteTheirs) {
  TemporaryFolder folder;
  EXPECT_THAT(FindSave(folder.path(), "my emb"),
              HasCode(StatusCode::kNotFound));
  ASSERT_OK(WriteSaveList(folder.path(), List(1, SaveKind::kBase, 0, 2)));
  EXPECT_THAT(FindSave(folder.path(), "my emb"),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("save 1 has the lists of 1 of 2 servers")));
  ASSERT_OK(WriteSaveList(folder.path(), List(1, SaveKind::kBase, 1, 2)));
  // A later one that was broken off.
  ASSERT_OK(WriteSaveList(folder.path(), List(2, SaveKind::kBase, 1, 3)));
  ASSERT_OK_AND_ASSIGN(const std::vector<SaveList> found,
                       FindSave(folder.path(), "my emb"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].id.number, 1u);
  EXPECT_EQ(found[1].id.server, 1u);
  EXPECT_EQ(found[1].step, 17u);
  EXPECT_EQ(found[1].table, "my emb");
  ASSERT_EQ(found[1].files.size(), 1u);
  EXPECT_EQ(found[1].files[0].name, "my emb.1.1-of-2.0.rows");
  EXPECT_EQ(found[1].files[0].byte_size, 10u);
  EXPECT_EQ(found[1].files[0].checksum, 20u);
}

TEST(SaveLists, TakeDeltasUpToTheFirstGap) {
  TemporaryFolder folder;
  ASSERT_OK(WriteSaveList(folder.path(), List(1, SaveKind::kDelta, 0, 1)));
  ASSERT_OK(WriteSaveList(folder.path(), List(2, SaveKind::kBase, 0, 1)));
  ASSERT_OK(WriteSaveList(folder.path(), List(3, SaveKind::kDelta, 0, 1)));
  ASSERT_OK(WriteSaveList(folder.path(), List(4, SaveKind::kDelta, 0, 2)));
  ASSERT_OK(WriteSaveList(folder.path(), List(5, SaveKind::kDelta, 0, 1)));
  ASSERT_OK_AND_ASSIGN(std::vector<SaveList> found,
                       FindSave(folder.path(), "my emb"));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].id.number, 3u);
  ASSERT_OK(WriteSaveList(folder.path(), List(6, SaveKind::kBase, 0, 1)));
  ASSERT_OK_AND_ASSIGN(found, FindSave(folder.path(), "my emb"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id.number, 6u);
}

TEST(SaveLists, ThatAreDamagedSaySo) {
  TemporaryFolder folder;
  ASSERT_OK(WriteSaveList(folder.path(), List(1, SaveKind::kBase, 0, 1)));
  const base::Path path = folder.path() / "my emb.1.0-of-1.list";
  const std::string text = *base::ReadFile(path);
  for (size_t at = 0; at < text.size(); at += 3) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_OK(base::AtomicWriteFile(path, damaged));
    EXPECT_THAT(FindSave(folder.path(), "my emb"),
                StatusIs(StatusCode::kDataLoss, HasSubstr("1.0-of-1.list")))
        << at;
  }
}

TEST(SaveLists, RemoveWhatIsOlder) {
  TemporaryFolder folder;
  for (uint64_t number : {1, 2, 3}) {
    const SaveList list = List(number, SaveKind::kBase, 0, 1);
    ASSERT_OK(WriteSaveList(folder.path(), list));
    ASSERT_OK(base::AtomicWriteFile(folder.path() / list.files[0].name, "x"));
  }
  ASSERT_OK(base::AtomicWriteFile(folder.path() / "my emb.txt", "y"));
  ASSERT_OK(RemoveOlderSaves(folder.path(), "my emb", 3));
  EXPECT_THAT(*base::ListFolder(folder.path()),
              ElementsAre("my emb.3.0-of-1.0.rows", "my emb.3.0-of-1.list",
                          "my emb.txt"));
}

TEST(SaveLists, StayWhenALaterSaveFails) {
  TemporaryFolder folder;
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 8;
  auto table = SparseTable::Make(options);
  ASSERT_OK(table);
  std::vector<float> row(8);
  ASSERT_OK((*table)->Pull(std::vector<Key>{1}, row));
  ASSERT_OK((*table)->Save(folder.path(), {{.number = 1}}));
  // The file of the next one cannot be made.
  ASSERT_OK(base::MakeFolders(folder.path() / "emb.2.0-of-1.0.rows"));
  EXPECT_FALSE((*table)->Save(folder.path(), {{.number = 2}}).ok());
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded,
                       (*table)->Load(folder.path(), 0, 1));
  EXPECT_EQ(loaded.number, 1u);
  EXPECT_EQ(loaded.num_rows, 1u);
}

TEST(SaveLists, NameTheFileThatIsDamagedOrGone) {
  TemporaryFolder folder;
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 8;
  auto table = SparseTable::Make(options);
  ASSERT_OK(table);
  std::vector<float> row(8);
  ASSERT_OK((*table)->Pull(std::vector<Key>{1}, row));
  ASSERT_OK((*table)->Save(folder.path(), {}));
  const base::Path path = folder.path() / "emb.0.0-of-1.0.rows";
  std::string bytes = *base::ReadFile(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_OK(base::AtomicWriteFile(path, bytes));
  EXPECT_THAT((*table)->Load(folder.path(), 0, 1),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("emb.0.0-of-1.0.rows: the block at key 0")));
  EXPECT_EQ((*table)->stats().num_rows, 0u);
  ASSERT_OK(base::AtomicWriteFile(path, bytes.substr(1)));
  EXPECT_THAT((*table)->Load(folder.path(), 0, 1),
              StatusIs(StatusCode::kDataLoss, HasSubstr("its list says")));
  ASSERT_OK(base::Remove(path));
  EXPECT_THAT((*table)->Load(folder.path(), 0, 1),
              StatusIs(StatusCode::kNotFound, HasSubstr("0.rows")));
}

}  // namespace
}  // namespace fleet::table
