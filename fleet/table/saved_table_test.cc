// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/saved_table.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/crc32c.h"
#include "fleet/base/status_matchers.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::TemporaryFolder;

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
  options.num_shards = 1;  // the row is in the first file
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
