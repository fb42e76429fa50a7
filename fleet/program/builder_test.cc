// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

class BuilderTest : public ::testing::Test {
 protected:
  std::string Operations(const Program& program) {
    return ToString(program, {.variables = false});
  }

  Program main_, startup_;
  Builder b_{main_, startup_};
};

TEST_F(BuilderTest, AnOpIsAFunctionOfItsInputsAndOptions) {
  const Value x = b_.Data("x", {-1, 4});
  const Value y = b_.LeakyRelu(x, {.alpha = 0.5});
  ASSERT_OK(b_.status());
  EXPECT_EQ(y.dims(), (Dims{-1, 4}));
  EXPECT_EQ(Operations(main_),
            "{ // block 0\n"
            "    {Out=['leaky_relu_0.tmp_0']} = leaky_relu(inputs={X=['x']}, "
            "alpha = 0.5)\n}\n");
}

TEST_F(BuilderTest, SeveralOutputsAreMembersOfTheResult) {
  const Value x = b_.Data("x", {-1, 4});
  const op::TopKV2Result top = b_.TopKV2(x, {.k = 2});
  ASSERT_OK(b_.status());
  EXPECT_EQ(top.out.dims(), (Dims{-1, 2}));
  EXPECT_EQ(top.indices.dtype(), DType::kInt64);
}

TEST_F(BuilderTest, AListOfOutputsIsAsLongAsTheShapeRuleSays) {
  const Value x = b_.Data("x", {-1, 6});
  const Values parts = b_.Split(x, {.num = 3, .axis = 1});
  ASSERT_OK(b_.status());
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(parts[2].dims(), (Dims{-1, 2}));
}

TEST_F(BuilderTest, WhatMustBeGivenComesBeforeTheOptions) {
  const Value x = b_.Data("x", {2, 3});
  EXPECT_EQ(b_.Transpose2(x, {1, 0}).dims(), (Dims{3, 2}));
  EXPECT_EQ(b_.Cast(x, DType::kInt64).dtype(), DType::kInt64);
  ASSERT_OK(b_.status());
}

TEST_F(BuilderTest, AWrongShapeNamesTheLineAndLeavesNoOperation) {
  const Value x = b_.Data("x", {2, 3});
  const Value y = b_.Data("y", {4, 5});
  const int line = __LINE__ + 1;
  const Value z = b_.MatmulV2(x, y);
  EXPECT_FALSE(z);
  EXPECT_THAT(b_.status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("builder_test.cc:" + std::to_string(line) +
                                 ": matmul_v2")));
  EXPECT_EQ(main_.block(0).num_ops(), 0);
}

TEST_F(BuilderTest, NothingIsAddedAfterAFailure) {
  const Value x = b_.Data("x", {2, 3});
  b_.Fc(b_.MatmulV2(x, x), 4, {.activation = "relu"});
  EXPECT_FALSE(b_.status().ok());
  EXPECT_EQ(startup_.block(0).num_ops(), 0);
  EXPECT_FALSE(b_.TakeStatus().ok());
  EXPECT_TRUE(b_.Fc(x, 4));
  ASSERT_OK(b_.status());
}

TEST_F(BuilderTest, RandomOpsHaveTheSeedOfTheBuilder) {
  Program main, startup;
  Builder b(main, startup, {.seed = 7});
  b.Dropout(b.Fc(b.Data("x", {-1, 4}), 2));
  ASSERT_OK(b.status());
  EXPECT_THAT(Operations(startup), HasSubstr("seed = 7"));
  EXPECT_EQ(main.random_seed, 7);
}

TEST_F(BuilderTest, OneParameterHasOneTypeAndShape) {
  const Value x = b_.Data("x", {-1, 4});
  const FcOptions shared{.weight = {.name = "w"}, .bias = std::nullopt};
  b_.Fc(x, 3, shared);
  b_.Fc(x, 3, shared);
  ASSERT_OK(b_.status());
  EXPECT_EQ(startup_.block(0).num_ops(), 1);
  b_.Fc(x, 2, shared);
  EXPECT_THAT(b_.status().message(),
              HasSubstr("parameter w: the program has it as float32 [4, 3]"));
}

TEST_F(BuilderTest, ValuesAreAddedAndScaledByOperators) {
  const Value x = b_.Data("x", {-1, 4});
  const Value y = 2.0 * x + x - 1.0;
  ASSERT_OK(b_.status());
  EXPECT_EQ(main_.block(0).op(0).type, "scale");
  EXPECT_EQ(main_.block(0).op(1).type, "elementwise_add");
  EXPECT_EQ(y.dims(), (Dims{-1, 4}));
}

TEST_F(BuilderTest, BranchesReturnTheSameTypes) {
  const Value x = b_.Data("x", {-1, 4});
  const Value flag = b_.Data("flag", {1}, DType::kBool);
  EXPECT_TRUE(b_.Cond(
                    flag, [&] { return Values{x}; },
                    [&] { return Values{b_.Cast(x, DType::kInt64)}; })
                  .empty());
  EXPECT_THAT(b_.TakeStatus().message(), HasSubstr("float32 and int64"));
  b_.Cond(flag, [&] { return Values{x, x}; }, [&] { return Values{x}; });
  EXPECT_THAT(b_.TakeStatus().message(), HasSubstr("2 and 1"));
  b_.Cond(x, [&] { return Values{}; });
  EXPECT_THAT(b_.TakeStatus().message(),
              HasSubstr("the condition must be a bool, but x is float32"));
}

TEST_F(BuilderTest, ABodyWithoutResultsRunsWhereItsConditionHolds) {
  const Value flag = b_.Data("flag", {1}, DType::kBool);
  const Value x = b_.Data("x", {-1, 4});
  b_.If(flag, [&] { b_.Tanh(x); });
  ASSERT_OK(b_.status());
  ASSERT_EQ(main_.block(0).num_ops(), 1u);
  EXPECT_EQ(main_.block(0).op(0).type, "conditional_block");
  EXPECT_EQ(main_.block(1).op(0).type, "tanh");
  EXPECT_EQ(b_.block().index(), 0);
  b_.If(x, [] {});
  EXPECT_THAT(b_.TakeStatus().message(), HasSubstr("must be a bool"));
}

TEST_F(BuilderTest, ABuilderMayGoOnWhereAnotherOneIs) {
  int made = 0;
  const int body = main_.AddBlock(0).index();
  Builder inside(main_, startup_,
                 {.new_name =
                      [&](const std::string& key) {
                        return key + '@' + std::to_string(++made);
                      },
                  .block = body,
                  .append = {.role = 2, .made_at = "train.py:7"}});
  inside.Tanh(inside.Data("x", {-1, 4}));
  ASSERT_OK(inside.status());
  const Operation& tanh = main_.block(body).op(0);
  EXPECT_EQ(tanh.output("Out"), std::vector<std::string>{"tanh@1.tmp@2"});
  EXPECT_EQ(RoleOf(tanh), OpRole::kOptimize);
  EXPECT_EQ(tanh.made_at, "train.py:7");
}

TEST_F(BuilderTest, AFailureInABodyEndsTheLoopAndTheBody) {
  const Value i = b_.Data("i", {1}, DType::kInt64);
  const Values out =
      b_.While([&](const Values& v) { return b_.LessThan(v[0], i); },
               [&](const Values&) { return Values{}; }, {i});
  EXPECT_TRUE(out.empty());
  EXPECT_THAT(b_.TakeStatus().message(),
              HasSubstr("the body must return 1 values, but returned 0"));
  EXPECT_EQ(b_.block().index(), 0);
}

TEST_F(BuilderTest, IndicesSayWhatIsWrong) {
  const Value x = b_.Data("x", {3, 4});
  b_.Item(x, {5});
  EXPECT_THAT(b_.TakeStatus().message(),
              HasSubstr("index 5 is outside of dimension 0 of x"));
  b_.Item(x, {1, 2, 3});
  EXPECT_THAT(b_.TakeStatus().message(), HasSubstr("3 indices for x"));
  b_.SetItem(x, {3}, x);
  EXPECT_THAT(b_.TakeStatus().message(), HasSubstr("index 3 is outside of x"));
}

}  // namespace
}  // namespace fleet::program
