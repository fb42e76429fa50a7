// SPDX-License-Identifier: Apache-2.0

#include "fleet/ops/update/merged_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

at::Tensor Sparse(const at::Tensor& rows, const at::Tensor& values,
                  int64_t height) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = height;
  return at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), values, sizes);
}

TEST(MergedRows, AreTheSumsOfEqualRows) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor rows = at::randint(0, 300, {2000}, at::kLong);
    const at::Tensor values = at::randn({2000, 3, 2}, type);
    const MergedRows merged = MergeRows(Sparse(rows, values, 300));
    const at::Tensor expected =
        at::zeros({300, 3, 2}, type).index_add(0, rows, values);
    const at::Tensor got =
        at::zeros({300, 3, 2}, type).index_add(0, merged.rows, merged.values);
    EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-5));
    // Each once, in the order of their first places.
    const int64_t* row = merged.rows.const_data_ptr<int64_t>();
    std::vector<int64_t> first;
    for (int64_t i = 0; i < 2000; ++i) {
      const int64_t r = rows[i].item<int64_t>();
      if (std::find(first.begin(), first.end(), r) == first.end()) {
        first.push_back(r);
      }
    }
    EXPECT_EQ(std::vector<int64_t>(row, row + merged.rows.numel()), first);
  }
}

TEST(MergedRows, OfDifferentRowsAreTheGivenOnes) {
  const at::Tensor rows = at::randint(0, 1, {1}, at::kLong);
  const at::Tensor values = at::randn({1, 4});
  const MergedRows merged = MergeRows(Sparse(rows, values, 9));
  EXPECT_EQ(merged.values.const_data_ptr(), values.const_data_ptr());
}

TEST(MergedRows, OfNoRowsAreNone) {
  const MergedRows merged =
      MergeRows(Sparse(at::zeros({0}, at::kLong), at::zeros({0, 4}), 9));
  EXPECT_EQ(merged.rows.numel(), 0);
}

TEST(MergedRows, TakeValuesThatAreNotContiguous) {
  const at::Tensor rows = at::randint(0, 5, {50}, at::kLong);
  const at::Tensor values = at::randn({4, 50}).t();
  const MergedRows merged = MergeRows(Sparse(rows, values, 5));
  const at::Tensor expected = at::zeros({5, 4}).index_add(0, rows, values);
  EXPECT_TRUE(
      at::allclose(at::zeros({5, 4}).index_add(0, merged.rows, merged.values),
                   expected, 1e-5, 1e-5));
  // In the order of rows that are contiguous.
  EXPECT_TRUE(
      merged.rows.equal(MergeRows(Sparse(rows, values.contiguous(), 5)).rows));
}

TEST(JoinedRows, AreTheSumOfAll) {
  const at::Tensor plain = Sparse(at::randint(0, 20, {50}, at::kLong),
                                  at::randint(0, 9, {50, 3}, at::kFloat), 20);
  const at::Tensor merged = Sparse(at::randint(0, 20, {30}, at::kLong),
                                   at::randint(0, 9, {30, 3}, at::kFloat), 20)
                                .coalesce();
  const at::Tensor none =
      Sparse(at::zeros({0}, at::kLong), at::zeros({0, 3}), 20);
  const at::Tensor sum = JoinRows({plain, merged, none, plain});
  EXPECT_EQ(sum._nnz(), 100 + merged._nnz());
  EXPECT_FALSE(sum.is_coalesced());
  EXPECT_TRUE(sum._indices().slice(1, 0, 50).equal(plain._indices()));
  // Small integers: sums are exact in any order.
  const at::Tensor expected =
      plain.to_dense() + merged.to_dense() + plain.to_dense();
  EXPECT_TRUE(sum.to_dense().equal(expected));
  const MergedRows rows = MergeRows(sum);
  EXPECT_TRUE(
      at::zeros({20, 3}).index_add(0, rows.rows, rows.values).equal(expected));
}

TEST(JoinedRows, AreACopy) {
  const at::Tensor values = at::randn({2, 3});
  const at::Tensor one = Sparse(at::zeros({2}, at::kLong), values, 4);
  const at::Tensor sum = JoinRows({one, one});
  const at::Tensor before = sum.to_dense();
  values.zero_();
  EXPECT_TRUE(sum.to_dense().equal(before));
}

TEST(AddGradients, SumsEqualRowsBeforeTheyMeetADenseGradient) {
  // One by one, each of them is lost beside 1.
  const at::Tensor values = at::ones({3, 1}) * 0x1p-24F;
  const at::Tensor sparse = Sparse(at::zeros({3}, at::kLong), values, 1);
  const at::Tensor dense = at::ones({1, 1});
  EXPECT_EQ(AddGradients(sparse, dense).item<float>(), 1.0F + 3 * 0x1p-24F);
  EXPECT_EQ(AddGradients(dense, sparse).item<float>(), 1.0F + 3 * 0x1p-24F);
  EXPECT_EQ(AddGradients(sparse, sparse)._values().size(0), 6);
}

}  // namespace
}  // namespace fleet::ops
