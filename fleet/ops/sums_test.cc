// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/sums.h"

#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

using at::Tensor;

const float* In(const Tensor& t) { return t.const_data_ptr<float>(); }
double Exact(const Tensor& x) { return x.sum().item<double>(); }

// Nothing, less and more than the lanes of a sum, and several parts.
constexpr int64_t kLengths[] = {0, 1, 7, 8, 1000, 65536, 200003};

TEST(Sums, AreThoseOfDoubles) {
  for (int64_t n : kLengths) {
    Tensor x = at::randn({n}), y = at::randn({n});
    Tensor d = (x - y).to(at::kDouble);
    EXPECT_NEAR(Total(n, In(x)), Exact(x.to(at::kDouble)), 1e-9 * n);
    EXPECT_NEAR(SquaredDistance(n, In(x), In(y)), Exact(d * d), 1e-9 * n);
  }
}

TEST(Sums, AreTheSameInAnyNumberOfThreads) {
  constexpr int64_t kLength = 500001;
  Tensor x = at::randn({kLength});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = Total(kLength, In(x));
  at::set_num_threads(4);
  EXPECT_EQ(Total(kLength, In(x)), alone);
  at::set_num_threads(before);
}

TEST(ColumnSums, AddsTheRows) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, sums(3, -1.0f);
  ColumnSums(2, 3, x.data(), sums.data());
  EXPECT_EQ(sums, (std::vector<float>{5, 7, 9}));
}

}  // namespace
}  // namespace fleet::ops
