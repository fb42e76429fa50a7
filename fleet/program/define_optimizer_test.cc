// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/program.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

class DefineOptimizerTest : public ::testing::Test {
 protected:
  DefineOptimizerTest() {
    DefineAllOps(registry_);
    Add("w", {4, 3});
    Add("w@GRAD", {4, 3});
    Add("m1", {4, 3});
    Add("m2", {4, 3});
    Add("lr", {1});
    Add("b1", {1});
    Add("b2", {1});
  }
  void Add(const std::string& name, Dims dims) {
    program_.block(0).AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  Status Infer(const Operation& op) {
    return program_.block(0).InferTypes(registry_, op);
  }

  OpRegistry registry_;
  Program program_;
};

TEST_F(DefineOptimizerTest, OutputsHaveTheTypesOfWhatTheyUpdate) {
  ASSERT_OK(Infer({.type = "adam",
                   .inputs = {{"Param", {"w"}},
                              {"Grad", {"w@GRAD"}},
                              {"LearningRate", {"lr"}},
                              {"Moment1", {"m1"}},
                              {"Moment2", {"m2"}},
                              {"Beta1Pow", {"b1"}},
                              {"Beta2Pow", {"b2"}}},
                   .outputs = {{"ParamOut", {"w"}},
                               {"Moment1Out", {"m1"}},
                               {"Moment2Out", {"m2"}},
                               {"Beta1PowOut", {"new_b1"}},
                               {"Beta2PowOut", {"b2"}}}}));
  EXPECT_EQ(program_.block(0).Find("w")->type.dims, (Dims{4, 3}));
  EXPECT_EQ(program_.block(0).Find("new_b1")->type.dims, (Dims{1}));
}

TEST_F(DefineOptimizerTest, AccumulatorsOfFtrlKeepTheirShape) {
  ASSERT_OK(Infer({.type = "ftrl",
                   .inputs = {{"Param", {"w"}},
                              {"SquaredAccumulator", {"m1"}},
                              {"LinearAccumulator", {"m2"}},
                              {"Grad", {"w@GRAD"}},
                              {"LearningRate", {"lr"}}},
                   .outputs = {{"ParamOut", {"w"}},
                               {"SquaredAccumOut", {"squared"}},
                               {"LinearAccumOut", {"linear"}}}}));
  EXPECT_EQ(program_.block(0).Find("linear")->type.dims, (Dims{4, 3}));
}

TEST_F(DefineOptimizerTest, WhatSkipsAnUpdateIsOneBool) {
  Operation sgd{.type = "sgd",
                .inputs = {{"Param", {"w"}},
                           {"Grad", {"w@GRAD"}},
                           {"LearningRate", {"lr"}},
                           {"SkipUpdate", {"skip"}}},
                .outputs = {{"ParamOut", {"w"}}}};
  Add("skip", {1});
  EXPECT_THAT(Infer(sgd), StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("SkipUpdate must be bool")));
  program_.block(0).Find("skip")->type = {DType::kBool, {2}};
  EXPECT_THAT(Infer(sgd),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("SkipUpdate must have one element")));
  program_.block(0).Find("skip")->type = {DType::kBool, {1}};
  EXPECT_OK(Infer(sgd));
}

TEST_F(DefineOptimizerTest, SeveralParametersInOneLarsUpdate) {
  Add("v", {5});
  Add("v@GRAD", {5});
  Add("velocity", {5});
  ASSERT_OK(Infer({.type = "lars_momentum",
                   .inputs = {{"Param", {"w", "v"}},
                              {"Grad", {"w@GRAD", "v@GRAD"}},
                              {"Velocity", {"m1", "velocity"}},
                              {"LearningRate", {"lr"}}},
                   .outputs = {{"ParamOut", {"w", "new_v"}},
                               {"VelocityOut", {"m1", "velocity"}}},
                   .attrs = {{"mu", {AttrKind::kFloat, 0.9}}}}));
  EXPECT_EQ(program_.block(0).Find("new_v")->type.dims, (Dims{5}));
}

TEST_F(DefineOptimizerTest, GradientOfAnotherShape) {
  Add("w@GRAD", {3, 4});
  Status status = Infer({.type = "sgd",
                         .inputs = {{"Param", {"w"}},
                                    {"LearningRate", {"lr"}},
                                    {"Grad", {"w@GRAD"}}},
                         .outputs = {{"ParamOut", {"w"}}},
                         .made_at = "train.py:9"});
  EXPECT_THAT(status.message(), HasSubstr("train.py:9"));
  EXPECT_THAT(status.message(),
              HasSubstr("Grad [3, 4] must have the shape of Param [4, 3]"));
}

TEST_F(DefineOptimizerTest, CollectivesNeedMultiplesOfTheRanks) {
  auto infer = [&](const char* type, int64_t nranks) {
    return Infer({.type = type,
                  .inputs = {{"X", {"w"}}},
                  .outputs = {{"Out", {"out"}}},
                  .attrs = {{"nranks", {AttrKind::kInt, nranks}}}});
  };
  ASSERT_OK(infer("c_allgather", 3));
  EXPECT_EQ(program_.block(0).Find("out")->type.dims, (Dims{12, 3}));
  ASSERT_OK(infer("c_reducescatter", 2));
  EXPECT_EQ(program_.block(0).Find("out")->type.dims, (Dims{2, 3}));
  EXPECT_THAT(infer("c_reducescatter", 3).message(),
              HasSubstr("not a multiple of 3 ranks"));
}

}  // namespace
}  // namespace fleet::program
