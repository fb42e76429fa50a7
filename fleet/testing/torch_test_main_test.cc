// SPDX-License-Identifier: Apache-2.0

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace fleet {
namespace {

void ExpectFirstNumbers() {
  if (GTEST_FLAG_GET(shuffle) || GTEST_FLAG_GET(random_seed) != 0) {
    GTEST_SKIP() << "other numbers were asked for";
  }
  const at::Tensor drawn = at::rand({3});
  at::manual_seed(1);
  EXPECT_TRUE(at::equal(drawn, at::rand({3})));
}

TEST(TorchTestMainTest, EveryRunDrawsTheSameNumbers) { ExpectFirstNumbers(); }

TEST(TorchTestMainTest, WhateverTheTestBeforeDrew) { ExpectFirstNumbers(); }

}  // namespace
}  // namespace fleet
