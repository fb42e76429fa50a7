// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/load_variable.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/file_system.h"
#include "fleet/base/status_matchers.h"
#include "fleet/saved/tensor_file.h"
#include "fleet/table/key.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::saved {
namespace {

using program::Dims;
using program::DType;
using ::testing::HasSubstr;

// A folder with the file of a variable whose values count up from 0.
class LoadVariableTest : public ::testing::Test {
 protected:
  void Save(const std::string& name, DType dtype, const Dims& dims) {
    const TensorView view{{dtype, dims}, {}};
    std::vector<float> values(*ByteSize(view.type) / sizeof(float));
    std::iota(values.begin(), values.end(), 0.0f);
    ASSERT_OK_AND_ASSIGN(base::AtomicFile file,
                         base::AtomicFile::Create(folder_ / name));
    ASSERT_OK(WriteTensor(
        {view.type, std::as_bytes(std::span(values))},
        [&](std::span<const std::byte> part) { return file.Append(part); }));
    ASSERT_OK(file.Commit());
  }

  Status Load(table::SparseTable* sparse, table::DenseTable* dense,
              uint32_t server = 0) {
    return LoadVariable(folder_.string(), server, 2, sparse, dense);
  }

  const testing::TemporaryFolder temporary_;
  const base::Path& folder_ = temporary_.path();
};

std::unique_ptr<table::SparseTable> Sparse() {
  table::SparseTableOptions options;
  options.name = "emb";
  options.dim = 2;
  options.initializer = table::ConstantInit{-1.0f};
  auto table = table::SparseTable::Make(options);
  EXPECT_OK(table.status());
  return std::move(table).value();
}

constexpr uint64_t kDenseSize = 3000;

std::unique_ptr<table::DenseTable> Dense(table::DensePart part) {
  table::DenseTableOptions options;
  options.name = "w";
  options.size = kDenseSize;
  options.part = part;
  auto table = table::DenseTable::Make(options);
  EXPECT_OK(table.status());
  return std::move(table).value();
}

TEST_F(LoadVariableTest, EachServerTakesItsRows) {
  constexpr int64_t kRows = 100;
  Save("emb", DType::kFloat32, {kRows, 2});
  uint64_t taken = 0;
  for (const uint32_t server : {0u, 1u}) {
    const std::unique_ptr<table::SparseTable> table = Sparse();
    ASSERT_OK(Load(table.get(), nullptr, server));
    for (table::Key key = 0; key < kRows; ++key) {
      std::vector<float> row(2);
      ASSERT_OK(table->Pull({&key, 1}, row));
      if (table::ServerOfKey(key, 2) != server) continue;
      ++taken;
      EXPECT_EQ(row[0], static_cast<float>(2 * key));
      EXPECT_EQ(row[1], static_cast<float>(2 * key + 1));
    }
  }
  EXPECT_EQ(taken, static_cast<uint64_t>(kRows));
}

TEST_F(LoadVariableTest, ADensePartIsThatOfTheServer) {
  Save("w", DType::kFloat32, {3, 1000});
  const std::unique_ptr<table::DenseTable> table = Dense({1024, 2048});
  ASSERT_OK(Load(nullptr, table.get()));
  std::vector<float> values(1024);
  ASSERT_OK(table->Pull(values));
  EXPECT_EQ(values.front(), 1024.0f);
  EXPECT_EQ(values.back(), 2047.0f);
}

TEST_F(LoadVariableTest, WithoutAFileNothingHappens) {
  const std::unique_ptr<table::DenseTable> table = Dense({0, kDenseSize});
  ASSERT_OK(Load(nullptr, table.get()));
  EXPECT_FALSE(table->initialized());
}

TEST_F(LoadVariableTest, ValuesThatDoNotFit) {
  const std::unique_ptr<table::DenseTable> dense = Dense({0, kDenseSize});
  const std::unique_ptr<table::SparseTable> sparse = Sparse();
  Save("w", DType::kFloat64, {6});
  EXPECT_THAT(
      Load(nullptr, dense.get()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("w is not of float32")));
  Save("w", DType::kFloat32, {5});
  EXPECT_THAT(Load(nullptr, dense.get()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("5 values, but w has 3000")));
  Save("emb", DType::kFloat32, {4, 3});
  EXPECT_THAT(Load(sparse.get(), nullptr),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("rows of 2 values are expected")));
  EXPECT_FALSE(dense->initialized());
}

}  // namespace
}  // namespace fleet::saved
