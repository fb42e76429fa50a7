// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/rows_file.h"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/crc32c.h"
#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::TemporaryFolder;

// More blocks than are ahead of the thread that reads or writes them.
constexpr uint64_t kNumRows = 30'000;

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
  EXPECT_EQ(keys[29'999], 3u * 29'999);
  EXPECT_EQ(rows[2 * 29'999], 29'999.0f);
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
  for (size_t at = 0; at < whole.size(); at += at < 200 ? 1 : 5987) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    ASSERT_OK(base::AtomicWriteFile(path, damaged));
    EXPECT_THAT(ReadRows(path, Ignore), HasCode(StatusCode::kDataLoss)) << at;
  }
}

TEST(SavedRows, ThatAVisitorRefusesAreNotReadFurther) {
  TemporaryFolder folder;
  const base::Path path = folder.path() / "rows";
  WriteFile(path);
  int num_visits = 0;
  EXPECT_THAT(
      ReadRows(
          path,
          [&](const RowsHeader&, std::span<const Key>, std::span<const float>) {
            return ++num_visits == 2 ? Unavailable("no memory") : OkStatus();
          }),
      StatusIs(StatusCode::kUnavailable, HasSubstr("no memory")));
  EXPECT_EQ(num_visits, 2);
  EXPECT_THAT(ReadRows(path, Ignore,
                       [](const RowsHeader& header) {
                         return InvalidArgument(header.num_rows, " rows");
                       }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("30000 rows")));
}

TEST(SavedRows, OfManySizesAreAddedInAnyPortions) {
  TemporaryFolder folder;
  const base::Path path = folder.path() / "rows";
  for (const uint32_t row_floats : {1u, 16u, 5000u}) {
    RowsHeader header = Header();
    header.dim = header.row_floats = row_floats;
    header.num_rows = 10'007;
    header.num_erased = 0;
    if (row_floats == 5000) header.num_rows = 307;
    std::vector<float> values(header.num_rows * row_floats);
    for (size_t i = 0; i < header.num_rows; ++i) {
      std::fill_n(&values[i * row_floats], row_floats, static_cast<float>(i));
    }
    auto writer = RowsWriter::Create(path, header);
    ASSERT_OK(writer);
    size_t done = 0;
    auto fill = [&](std::span<Key> keys, std::span<float> rows) {
      std::iota(keys.begin(), keys.end(), done);
      std::copy_n(&values[done * row_floats], rows.size(), rows.begin());
      done += keys.size();
      return OkStatus();
    };
    for (size_t n = 1; done < header.num_rows; n = n * 3 + 1) {
      ASSERT_OK(writer->AddRows(std::min(n, header.num_rows - done), fill));
    }
    ASSERT_OK(writer->Commit());
    EXPECT_EQ(base::Crc32c(*base::ReadFile(path)), writer->checksum());
    std::vector<float> read;
    ASSERT_OK(ReadRows(path, [&](const RowsHeader&, std::span<const Key> keys,
                                 std::span<const float> rows) {
      EXPECT_EQ(keys[0] * row_floats, read.size());
      read.insert(read.end(), rows.begin(), rows.end());
      return OkStatus();
    }));
    EXPECT_EQ(read, values);
  }
}

// The disk is full: the failure comes back, by the next call or the last, and
// nothing stays.
TEST(SavedRows, ThatCannotBeWrittenFail) {
  TemporaryFolder folder;
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  ASSERT_NE(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit small = old;
  small.rlim_cur = 100'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status failed;
  {
    auto writer = RowsWriter::Create(folder.path() / "rows", Header());
    ASSERT_OK(writer);
    for (Key key = 0; key < kNumRows && failed.ok(); ++key) {
      const float row[] = {1.0f, 2.0f};
      failed = writer->AddRow(key, row);
    }
    if (failed.ok()) failed = writer->Commit();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_THAT(failed, StatusIs(StatusCode::kUnavailable, HasSubstr("rows")));
  EXPECT_THAT(*base::ListFolder(folder.path()), ElementsAre());
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

}  // namespace
}  // namespace fleet::table
