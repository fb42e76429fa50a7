// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

using at::Tensor;

const float* In(const Tensor& t) { return t.const_data_ptr<float>(); }
float* Out(Tensor& t) { return t.mutable_data_ptr<float>(); }
bool Near(const Tensor& a, const Tensor& b) {
  return at::allclose(a, b, 1e-4, 1e-6);
}

// Small, one class, and more than one thread's and one block's share.
const Matrix kSizes[] = {{3, 5}, {4, 1}, {300, 130}, {2, 9000}};

TEST(Rows, SoftmaxAndItsGradient) {
  for (Matrix size : kSizes) {
    Tensor x = (at::randn({size.rows, size.columns}) * 3).requires_grad_();
    Tensor dy = at::randn({size.rows, size.columns});
    Tensor y = at::softmax(x, 1);
    y.backward(dy);
    Tensor got = at::empty_like(dy), dx = at::empty_like(dy);
    SoftmaxRows(size, In(x), Out(got));
    SoftmaxRowsGrad(size, In(got), In(dy), Out(dx));
    EXPECT_TRUE(Near(got, y));
    EXPECT_TRUE(Near(dx, x.grad()));
  }
}

TEST(Rows, CrossEntropyAndItsGradient) {
  for (Matrix size : kSizes) {
    Tensor x = (at::randn({size.rows, size.columns}) * 3).requires_grad_();
    Tensor label = at::randint(0, size.columns, {size.rows}, at::kLong);
    label[1] = -7;
    Tensor dloss = at::randn({size.rows});
    Tensor loss = at::cross_entropy_loss(x, label, {}, at::Reduction::None, -7);
    loss.backward(dloss * 0.5);
    const Labels labels{label.const_data_ptr<int64_t>(), -7};
    Tensor softmax = at::empty_like(x), got = at::empty_like(dloss);
    Tensor dx = at::empty_like(x);
    EXPECT_EQ(CrossEntropyRows(size, In(x), labels, Out(softmax), Out(got)),
              size.rows - 1);
    EXPECT_TRUE(Near(got, loss));
    CrossEntropyRowsGrad(size, In(softmax), labels, LossReduction::kNone,
                         nullptr, In(dloss), Out(dx));
    EXPECT_TRUE(Near(dx * 0.5, x.grad()));
  }
}

TEST(Rows, CrossEntropyOfAllRowsAndItsGradient) {
  for (Matrix size : kSizes) {
    for (const bool mean : {true, false}) {
      Tensor x = (at::randn({size.rows, size.columns}) * 3).requires_grad_();
      Tensor label = at::randint(0, size.columns, {size.rows}, at::kLong);
      label[1] = -7;
      Tensor dloss = at::randn({1});
      Tensor wanted = at::cross_entropy_loss(
          x, label, {}, mean ? at::Reduction::Mean : at::Reduction::Sum, -7);
      wanted.backward(dloss[0]);
      const Labels labels{label.const_data_ptr<int64_t>(), -7};
      const LossReduction reduction = ReadReduction(mean ? "mean" : "sum");
      Tensor softmax = at::empty_like(x), each = at::empty({size.rows});
      Tensor loss = at::empty({1}), total = at::empty({1});
      Tensor dx = at::empty_like(x);
      ReducedCrossEntropyRows(size, In(x), labels, reduction, Out(softmax),
                              Out(each), Out(loss), Out(total));
      CrossEntropyRowsGrad(size, In(softmax), labels, reduction, In(total),
                           In(dloss), Out(dx));
      EXPECT_TRUE(Near(loss[0], wanted));
      EXPECT_EQ(*In(total), static_cast<float>(size.rows - 1));
      EXPECT_TRUE(Near(dx, x.grad()));
    }
  }
  EXPECT_THROW(ReadReduction("most"), c10::Error);
}

TEST(Rows, LogLossAndItsGradient) {
  for (Matrix size : kSizes) {
    Tensor x = (at::rand({size.rows, size.columns}) + 0.1).requires_grad_();
    Tensor label = at::randint(0, size.columns, {size.rows}, at::kLong);
    label[0] = -7;
    Tensor dloss = at::randn({size.rows});
    Tensor loss = at::nll_loss(x.log(), label, {}, at::Reduction::None, -7);
    loss.backward(dloss);
    const Labels labels{label.const_data_ptr<int64_t>(), -7};
    Tensor got = at::empty_like(dloss), dx = at::empty_like(x);
    LogLossRows(size, In(x), labels, Out(got));
    LogLossRowsGrad(size, In(x), labels, In(dloss), Out(dx));
    EXPECT_TRUE(Near(got, loss));
    EXPECT_TRUE(Near(dx, x.grad()));
  }
}

TEST(Rows, ALabelOutsideIsAnError) {
  Tensor x = at::randn({2, 3}), softmax = at::empty({2, 3});
  Tensor loss = at::empty({2});
  const int64_t classes[] = {0, 3};
  EXPECT_THROW(
      CrossEntropyRows({2, 3}, In(x), {classes, -100}, Out(softmax), Out(loss)),
      c10::Error);
  EXPECT_THROW(LogLossRows({2, 3}, In(x), {classes, -100}, Out(loss)),
               c10::Error);
}

}  // namespace
}  // namespace fleet::ops
