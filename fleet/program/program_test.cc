// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"

namespace fleet::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    DefineAllOps(registry_);
    block().AddVariable({.name = "x", .type = {DType::kFloat32, {-1, 4}}});
    block().AddVariable({.name = "w",
                         .type = {DType::kFloat32, {4, 2}},
                         .persistable = true,
                         .is_parameter = true});
  }
  Block& block() { return program_.block(0); }

  Operation& AppendMatmul() {
    return block().Append({.type = "matmul_v2",
                           .inputs = {{"X", {"x"}}, {"Y", {"w"}}},
                           .outputs = {{"Out", {"y"}}},
                           .made_at = "train.py:3"});
  }

  OpRegistry registry_;
  Program program_;
};

TEST_F(ProgramTest, InfersTypesWithUnknownBatch) {
  ASSERT_OK(block().InferTypes(registry_, AppendMatmul()));
  ASSERT_NE(block().FindHere("y"), nullptr);
  EXPECT_THAT(block().FindHere("y")->type.dims, ElementsAre(-1, 2));
}

TEST_F(ProgramTest, ErrorNamesTheUsersLineAndTheOp) {
  block().FindHere("w")->type.dims = {5, 2};
  Status status = block().InferTypes(registry_, AppendMatmul());
  EXPECT_THAT(status.message(), HasSubstr("train.py:3"));
  EXPECT_THAT(status.message(), HasSubstr("matmul_v2"));
}

TEST_F(ProgramTest, MissingVariable) {
  Operation& op = block().Append(
      {.type = "relu", .inputs = {{"X", {"z"}}}, .outputs = {{"Out", {"y"}}}});
  EXPECT_THAT(block().InferTypes(registry_, op).message(),
              HasSubstr("there is no variable z"));
}

TEST_F(ProgramTest, UnknownOp) {
  Operation& op = block().Append({.type = "no_such_op"});
  EXPECT_EQ(block().InferTypes(registry_, op).code(), StatusCode::kNotFound);
}

TEST_F(ProgramTest, AttributesFromTheWireFitTheDefinition) {
  Operation op{.type = "softmax",
               .attrs = {{"axis", {AttrKind::kInt, int64_t{1}}},
                         {"op_role", {AttrKind::kInt, int64_t{0}}}}};
  const OpDef& def = *registry_.Find("softmax");
  ASSERT_OK_AND_ASSIGN(Attrs attrs, ResolveAttrs(def, op));
  EXPECT_EQ(std::get<int64_t>(attrs[def.AttrIndex("axis")]), 1);
  op.attrs["axis"] = {AttrKind::kString, std::string("last")};
  EXPECT_EQ(ResolveAttrs(def, op).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ProgramTest, InnerBlocksSeeOuterVariables) {
  Block& inner = program_.AddBlock(0);
  EXPECT_NE(inner.Find("x"), nullptr);
  EXPECT_EQ(inner.FindHere("x"), nullptr);
  inner.AddVariable({.name = "x", .type = {DType::kInt64, {1}}});
  EXPECT_EQ(inner.Find("x")->type.dtype, DType::kInt64);
  EXPECT_EQ(block().Find("x")->type.dtype, DType::kFloat32);
}

TEST_F(ProgramTest, VersionGrowsWithEveryChange) {
  uint64_t version = program_.version();
  AppendMatmul();
  EXPECT_GT(program_.version(), version);
  version = program_.version();
  block().Remove(0, 1);
  EXPECT_GT(program_.version(), version);
}

TEST_F(ProgramTest, CloneIsApart) {
  AppendMatmul();
  std::unique_ptr<Program> copy = program_.Clone();
  EXPECT_EQ(copy->block(0).op(0).id, block().op(0).id);
  copy->block(0).Append({.type = "relu"});
  copy->block(0).FindHere("x")->type.dims = {1};
  EXPECT_EQ(block().num_ops(), 1);
  EXPECT_THAT(block().FindHere("x")->type.dims, ElementsAre(-1, 4));
}

}  // namespace
}  // namespace fleet::program
