// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/save_manifest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::TemporaryFolder;

std::unique_ptr<SparseTable> MakeTable(const std::string& name) {
  SparseTableOptions options;
  options.name = name;
  options.dim = 2;
  options.num_shards = 2;
  options.update.learning_rate.base = 1.0;
  auto table = SparseTable::Make(options);
  EXPECT_OK(table.status());
  return std::move(table).value();
}

void PushOnes(SparseTable& table, const std::vector<Key>& keys) {
  ASSERT_OK(table.Push(keys, std::vector<float>(keys.size() * 2, -1.0f)));
}

std::vector<float> Rows(SparseTable& table, const std::vector<Key>& keys) {
  std::vector<float> rows(keys.size() * 2);
  EXPECT_OK(table.Pull(keys, rows, {.training = false}));
  return rows;
}

// A job's tables, saved as servers save them.
class Model final {
 public:
  explicit Model(base::Path folder) : folder_(std::move(folder)) {}

  SparseTable& a() { return *a_; }
  SparseTable& b() { return *b_; }

  Status Save(uint64_t number, uint64_t since = 0) {
    ASSIGN_OR_RETURN(const SaveManifest manifest, Write(number, since));
    const Status written = WriteManifest(folder_, manifest);
    a_->EndSave(written.ok());
    b_->EndSave(written.ok());
    return written;
  }
  // What is left when the job ends before the manifest.
  Status Fail(uint64_t number, uint64_t since = 0) {
    RETURN_IF_ERROR(Write(number, since).status());
    a_->EndSave(false);
    b_->EndSave(false);
    return OkStatus();
  }

 private:
  Result<SaveManifest> Write(uint64_t number, uint64_t since) {
    SaveManifest manifest;
    manifest.number = number;
    manifest.kind = since == 0 ? SaveKind::kBase : SaveKind::kDelta;
    manifest.since = since;
    manifest.ledgers.resize(1);
    for (SparseTable* table : {a_.get(), b_.get()}) {
      ASSIGN_OR_RETURN(const WrittenTable written,
                       table->WriteSave(folder_, {{number, manifest.kind}}));
      manifest.lists.push_back(written.list);
    }
    return manifest;
  }

  const base::Path folder_;
  const std::unique_ptr<SparseTable> a_ = MakeTable("a");
  const std::unique_ptr<SparseTable> b_ = MakeTable("b");
};

uint64_t NumberIn(const base::Path& folder) {
  const auto model = FindModel(folder, CheckFiles::kByChecksum);
  EXPECT_OK(model.status());
  return model.ok() ? model->number : 0;
}

TEST(SaveManifest, SaysWhatItWasTold) {
  SaveManifest manifest;
  manifest.number = 9;
  manifest.kind = SaveKind::kDelta;
  manifest.since = 7;
  manifest.view = 3;
  manifest.incarnations = {{0, 7}, {2, 9}};
  manifest.epochs = {1, 4};
  manifest.job = "of today";
  manifest.ledgers = {std::string("a\0\n%", 4), ""};
  SaveList list;
  list.table = "enc/w 100%\nend";
  list.id = {9, SaveKind::kDelta, 1, 2};
  list.step = 12;
  list.time = 60;
  list.files = {{"w.9.1-of-2.0.rows", 10, 20}, {"w w", 1, 4'000'000'000}};
  manifest.lists = {list};
  ASSERT_OK_AND_ASSIGN(const SaveManifest read,
                       DecodeManifest(Encode(manifest)));
  EXPECT_EQ(read.number, 9u);
  EXPECT_EQ(read.kind, SaveKind::kDelta);
  EXPECT_EQ(read.since, 7u);
  EXPECT_EQ(read.view, 3u);
  EXPECT_EQ(read.incarnations, manifest.incarnations);
  EXPECT_EQ(read.epochs, manifest.epochs);
  EXPECT_EQ(read.job, "of today");
  EXPECT_EQ(read.ledgers, manifest.ledgers);
  ASSERT_EQ(read.lists.size(), 1u);
  EXPECT_EQ(read.lists[0].table, list.table);
  EXPECT_EQ(read.lists[0].id.server, 1u);
  EXPECT_EQ(read.lists[0].id.num_servers, 2u);
  EXPECT_EQ(read.lists[0].step, 12u);
  EXPECT_EQ(read.lists[0].time, 60u);
  ASSERT_EQ(read.lists[0].files.size(), 2u);
  EXPECT_EQ(read.lists[0].files[1].name, "w w");
  EXPECT_EQ(read.lists[0].files[1].checksum, 4'000'000'000u);
  EXPECT_EQ(read.byte_size(), 11u);
  ASSERT_OK_AND_ASSIGN(const SaveList alone, DecodeSaveList(Encode(list)));
  EXPECT_EQ(alone.table, list.table);
  EXPECT_EQ(alone.files.size(), 2u);
}

TEST(SaveManifest, ThatIsDamagedSaysSo) {
  SaveManifest manifest;
  manifest.number = 1;
  manifest.ledgers = {"xyz"};
  SaveList list;
  list.table = "a";
  list.files = {{"a.1.0-of-1.0.rows", 10, 20}};
  manifest.lists = {list};
  const std::string text = Encode(manifest);
  ASSERT_OK(DecodeManifest(text));
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THAT(DecodeManifest(damaged), HasCode(StatusCode::kDataLoss)) << at;
    EXPECT_THAT(DecodeManifest(text.substr(0, at)),
                HasCode(StatusCode::kDataLoss))
        << at;
  }
  // A manifest whose checksum is right, but nothing else.
  const auto crafted = [&](auto change) {
    SaveManifest other = manifest;
    change(other);
    return DecodeManifest(Encode(other));
  };
  EXPECT_THAT(
      crafted([](SaveManifest& m) { m.lists[0].files[0].name = "../evil"; }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("line")));
  EXPECT_THAT(crafted([](SaveManifest& m) { m.number = 0; }),
              HasCode(StatusCode::kDataLoss));
  EXPECT_THAT(crafted([](SaveManifest& m) {
                m.since = 1;
                m.kind = SaveKind::kDelta;
              }),
              HasCode(StatusCode::kDataLoss));
  EXPECT_THAT(crafted([](SaveManifest& m) { m.ledgers.clear(); }),
              HasCode(StatusCode::kDataLoss));
}

TEST(SavedModel, IsOfOneSave) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1});
  PushOnes(model.b(), {1});
  ASSERT_OK(model.Save(1));
  PushOnes(model.a(), {1});
  PushOnes(model.b(), {1});
  // The job ends when table a is written and b is not.
  ASSERT_OK(model.a().WriteSave(folder.path(), {{.number = 2}}).status());
  auto a = MakeTable("a");
  auto b = MakeTable("b");
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, a->Load(folder.path(), 0, 1));
  EXPECT_EQ(loaded.number, 1u);
  ASSERT_OK(b->Load(folder.path(), 0, 1));
  EXPECT_THAT(Rows(*a, {1}), Each(1.0f));
  EXPECT_THAT(Rows(*b, {1}), Each(1.0f));
  EXPECT_EQ(*HighestSaveNumber(folder.path()), 2u);
}

TEST(SavedModel, IsRightAfterABaseThatDidNotCount) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1, 2, 3});
  ASSERT_OK(model.Save(1));
  PushOnes(model.a(), {1});
  ASSERT_OK(model.Fail(2));
  PushOnes(model.a(), {2});
  ASSERT_OK(model.Save(3, 1));
  auto a = MakeTable("a");
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, a->Load(folder.path(), 0, 1));
  EXPECT_EQ(loaded.number, 3u);
  EXPECT_THAT(Rows(*a, {1, 2, 3}), ElementsAre(2, 2, 2, 2, 1, 1));
}

TEST(SavedModel, KeepsMarksOfWhatChangesWhileASaveIsWritten) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1, 2});
  ASSERT_OK(model.Save(1));
  PushOnes(model.a(), {1});
  ASSERT_OK_AND_ASSIGN(
      const WrittenTable delta,
      model.a().WriteSave(folder.path(), {{2, SaveKind::kDelta}}));
  EXPECT_EQ(delta.stats.num_rows, 1u);
  PushOnes(model.a(), {2});
  model.a().EndSave(true);
  ASSERT_OK_AND_ASSIGN(
      const WrittenTable next,
      model.a().WriteSave(folder.path(), {{3, SaveKind::kDelta}}));
  EXPECT_EQ(next.stats.num_rows, 1u);
  model.a().EndSave(true);
}

TEST(SavedModel, FallsBackToTheSaveBeforeADamagedOne) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1});
  ASSERT_OK(model.Save(1));
  PushOnes(model.a(), {1});
  ASSERT_OK(model.Save(2));
  EXPECT_EQ(NumberIn(folder.path()), 2u);
  const base::Path rows = folder.path() / "a.2.0-of-1.0.rows";
  const base::Path other = folder.path() / "a.2.0-of-1.1.rows";
  const base::Path manifest = folder.path() / "save.2.manifest";
  for (const base::Path& path : {rows, other, manifest}) {
    const std::string bytes = *base::ReadFile(path);
    std::string damaged = bytes;
    damaged[damaged.size() / 2] ^= 1;
    ASSERT_OK(base::AtomicWriteFile(path, damaged));
    EXPECT_EQ(NumberIn(folder.path()), 1u) << path;
    ASSERT_OK(base::AtomicWriteFile(path, bytes.substr(1)));
    EXPECT_EQ(NumberIn(folder.path()), 1u) << path;
    ASSERT_OK(base::Remove(path));
    EXPECT_EQ(NumberIn(folder.path()), 1u) << path;
    auto a = MakeTable("a");
    ASSERT_OK(a->Load(folder.path(), 0, 1));
    EXPECT_THAT(Rows(*a, {1}), Each(1.0f));
    ASSERT_OK(base::AtomicWriteFile(path, bytes));
    EXPECT_EQ(NumberIn(folder.path()), 2u) << path;
  }
  ASSERT_OK(base::Remove(rows));
  ASSERT_OK(base::Remove(folder.path() / "b.1.0-of-1.0.rows"));
  EXPECT_THAT(
      FindModel(folder.path(), CheckFiles::kBySize),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr("a.2.0-of-1.0.rows"), HasSubstr("b.1.0"))));
}

TEST(SavedModel, OfADeltaNeedsWhatItBuildsOn) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1});
  ASSERT_OK(model.Save(1));
  PushOnes(model.a(), {2});
  ASSERT_OK(model.Save(2, 1));
  PushOnes(model.a(), {3});
  ASSERT_OK(model.Save(3, 2));
  ASSERT_OK_AND_ASSIGN(const SavedModel whole,
                       FindModel(folder.path(), CheckFiles::kByChecksum));
  EXPECT_EQ(whole.number, 3u);
  ASSERT_EQ(whole.saves.size(), 3u);
  EXPECT_GT(whole.base_byte_size(), 0u);
  EXPECT_GT(whole.deltas_byte_size(), 0u);
  ASSERT_OK(base::Remove(folder.path() / "save.2.manifest"));
  EXPECT_EQ(NumberIn(folder.path()), 1u);
  ASSERT_OK_AND_ASSIGN(const SavedModel first,
                       FindModel(folder.path(), CheckFiles::kBySize, {2}));
  EXPECT_EQ(first.number, 1u);
  EXPECT_THAT(OpenModel(folder.path(), 3), HasCode(StatusCode::kNotFound));
}

TEST(SavedModel, LeavesTheNewestTwoWhenOlderOnesAreRemoved) {
  TemporaryFolder folder;
  Model model(folder.path());
  ASSERT_OK(model.Save(1));
  ASSERT_OK(model.Save(2));
  PushOnes(model.a(), {2});
  ASSERT_OK(model.Save(3, 2));
  ASSERT_OK(model.Fail(4));
  ASSERT_OK(model.Save(5));
  // The last two are of a save that may be under way, and of somebody else.
  for (const char* name :
       {"a.txt", ".a.4.0-of-1.1.rows.4711.3.tmp", ".save.4.manifest.4711.4.tmp",
        ".a.5.0-of-1.1.rows.4711.5.tmp", ".a.txt.4711.6.tmp"}) {
    ASSERT_OK(base::AtomicWriteFile(folder.path() / name, "x"));
  }
  ASSERT_OK(RemoveSavesBefore(folder.path(), 5));
  EXPECT_THAT(
      *base::ListFolder(folder.path()),
      ElementsAre(".a.5.0-of-1.1.rows.4711.5.tmp", ".a.txt.4711.6.tmp",
                  "a.2.0-of-1.0.rows", "a.2.0-of-1.1.rows", "a.3.0-of-1.0.rows",
                  "a.3.0-of-1.1.rows", "a.5.0-of-1.0.rows", "a.5.0-of-1.1.rows",
                  "a.txt", "b.2.0-of-1.0.rows", "b.2.0-of-1.1.rows",
                  "b.3.0-of-1.0.rows", "b.3.0-of-1.1.rows", "b.5.0-of-1.0.rows",
                  "b.5.0-of-1.1.rows", "save.2.manifest", "save.3.manifest",
                  "save.5.manifest"));
  // The newest is damaged: what is left still loads.
  ASSERT_OK(base::Remove(folder.path() / "a.5.0-of-1.0.rows"));
  EXPECT_EQ(NumberIn(folder.path()), 3u);
}

TEST(SavedModel, OfTheTimeBeforeManifestsStillLoads) {
  TemporaryFolder folder;
  Model model(folder.path());
  PushOnes(model.a(), {1});
  ASSERT_OK(model.a().Save(folder.path(), {{.number = 1'700'000'000'000}}));
  ASSERT_OK_AND_ASSIGN(const SavedModel found,
                       FindModel(folder.path(), CheckFiles::kByChecksum));
  EXPECT_EQ(found.number, 0u);
  auto a = MakeTable("a");
  ASSERT_OK(a->Load(found, 0, 1).status());
  EXPECT_THAT(Rows(*a, {1}), Each(1.0f));
  EXPECT_EQ(*HighestSaveNumber(folder.path()), 1'700'000'000'000u);
  // The next save is one with a manifest; the older one stays for once.
  PushOnes(model.a(), {1});
  ASSERT_OK(model.Save(1'700'000'000'001));
  ASSERT_OK(RemoveSavesBefore(folder.path(), 1'700'000'000'001));
  EXPECT_EQ(NumberIn(folder.path()), 1'700'000'000'001u);
  ASSERT_OK(base::Remove(folder.path() / "save.1700000000001.manifest"));
  EXPECT_EQ(NumberIn(folder.path()), 0u);
}

TEST(SavedModel, IsNotFoundWhereNothingWasSaved) {
  TemporaryFolder folder;
  EXPECT_THAT(FindModel(folder.path(), CheckFiles::kBySize),
              HasCode(StatusCode::kNotFound));
  EXPECT_EQ(*HighestSaveNumber(folder.path()), 0u);
  EXPECT_THAT(FindModel(folder.path() / "absent", CheckFiles::kBySize),
              HasCode(StatusCode::kNotFound));
}

}  // namespace
}  // namespace fleet::table
