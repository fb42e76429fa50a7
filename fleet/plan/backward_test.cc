// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/backward.h"

#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/lod.h"
#include "fleet/program/op_role.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::Block;
using program::Dims;
using program::DType;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Slots;
using program::Variable;
using program::VariableKind;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class BackwardTest : public ::testing::Test {
 protected:
  BackwardTest() {
    DefineAllOps(registry_);
    AddVariable("x", {-1, 4}).stop_gradient = true;
    AddVariable("w", {4, 4}).is_parameter = true;
  }
  Block& block() { return program_.block(0); }

  Variable& AddVariable(const std::string& name, Dims dims) {
    return block().AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, Slots inputs, Slots outputs) {
    ASSERT_OK(block().InferTypes(registry_,
                                 block().Append({.type = type,
                                                 .inputs = std::move(inputs),
                                                 .outputs = std::move(outputs),
                                                 .made_at = "net.py:9"})));
  }
  Result<std::map<std::string, std::string>> Run(
      const std::string& target, std::set<std::string> no_grad = {}) {
    return AppendBackward(registry_, program_, {{target, ""}}, no_grad);
  }
  std::vector<std::string> Types() const {
    std::vector<std::string> types;
    for (size_t i = 0; i < program_.block(0).num_ops(); ++i) {
      types.push_back(program_.block(0).op(i).type);
    }
    return types;
  }

  OpRegistry registry_;
  Program program_;
};

TEST_F(BackwardTest, AChain) {
  Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
  Append("tanh", {{"X", {"h"}}}, {{"Out", {"y"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("y"));
  EXPECT_THAT(Types(), ElementsAre("matmul_v2", "tanh", "fill_any_like",
                                   "tanh_grad", "matmul_v2_grad"));
  EXPECT_THAT(gradients,
              UnorderedElementsAre(Pair("y", "y@GRAD"), Pair("h", "h@GRAD"),
                                   Pair("w", "w@GRAD")));
  const Operation& matmul = block().op(4);
  EXPECT_EQ(RoleOf(matmul), OpRole::kBackward);
  EXPECT_THAT(matmul.input("Out@GRAD"), ElementsAre("h@GRAD"));
  EXPECT_THAT(matmul.output("X@GRAD"), ElementsAre("@EMPTY@"));
  EXPECT_THAT(matmul.output("Y@GRAD"), ElementsAre("w@GRAD"));
  EXPECT_EQ(matmul.made_at, "net.py:9");
  EXPECT_THAT(block().FindHere("w@GRAD")->type.dims, ElementsAre(4, 4));
}

TEST_F(BackwardTest, PartsOfASharedVariableAreAdded) {
  Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
  Append("matmul_v2", {{"X", {"h"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("y"));
  const Operation& sum = block().op(block().num_ops() - 1);
  EXPECT_EQ(sum.type, "sum");
  EXPECT_THAT(sum.output("Out"), ElementsAre("w@GRAD"));
  EXPECT_EQ(gradients.at("w"), "w@GRAD");
  ASSERT_EQ(sum.input("X").size(), 2);
  EXPECT_NE(sum.input("X")[0], sum.input("X")[1]);
  // Each part is what one gradient operation gives.
  EXPECT_EQ(block().op(3).output("Y@GRAD")[0], sum.input("X")[0]);
  EXPECT_EQ(block().op(4).output("Y@GRAD")[0], sum.input("X")[1]);
}

TEST_F(BackwardTest, NothingFlowsWhereItIsStopped) {
  Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
  Append("tanh", {{"X", {"h"}}}, {{"Out", {"y"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("y", {"h"}));
  EXPECT_FALSE(gradients.contains("w"));
  for (const std::string& type : Types()) EXPECT_NE(type, "matmul_v2_grad");
}

TEST_F(BackwardTest, WhatTheTargetDoesNotNeedIsLeftOut) {
  Append("tanh", {{"X", {"w"}}}, {{"Out", {"y"}}});
  Append("exp", {{"X", {"w"}}}, {{"Out", {"z"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("y"));
  EXPECT_THAT(Types(),
              ElementsAre("tanh", "exp", "fill_any_like", "tanh_grad"));
  EXPECT_FALSE(gradients.contains("z"));
}

TEST_F(BackwardTest, AGivenGradient) {
  AddVariable("dy", {4, 4});
  Append("tanh", {{"X", {"w"}}}, {{"Out", {"y"}}});
  ASSERT_OK(AppendBackward(registry_, program_, {{"y", "dy"}}, {}).status());
  EXPECT_THAT(Types(), ElementsAre("tanh", "tanh_grad"));
  EXPECT_THAT(block().op(1).input("Out@GRAD"), ElementsAre("dy"));
}

TEST_F(BackwardTest, ATargetThatIsNotThere) {
  EXPECT_EQ(Run("nothing").status().code(), StatusCode::kNotFound);
}

TEST_F(BackwardTest, AnOpWithoutGradientIsNamed) {
  block().AddVariable({.name = "y", .type = {DType::kFloat32, {4, 4}}});
  block().Append({.type = "mystery",
                  .inputs = {{"X", {"w"}}},
                  .outputs = {{"Out", {"y"}}},
                  .made_at = "net.py:12"});
  Status status = Run("y").status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("net.py:12: mystery"));
}

TEST_F(BackwardTest, GradientOfASparseTableHoldsRows) {
  block().AddVariable({.name = "ids", .type = {DType::kInt64, {-1}}});
  auto append = [&](const std::string& out, bool is_sparse) {
    block().Append({.type = "lookup_table_v2",
                    .inputs = {{"W", {"w"}}, {"Ids", {"ids"}}},
                    .outputs = {{"Out", {out}}},
                    .attrs = {{"is_sparse", {AttrKind::kBool, is_sparse}}}});
    ASSERT_OK(block().InferTypes(registry_, block().op(block().num_ops() - 1)));
  };
  append("a", true);
  append("b", true);
  Append("sum", {{"X", {"a", "b"}}}, {{"Out", {"both"}}});
  Append("mean", {{"X", {"both"}}}, {{"Out", {"loss"}}});
  std::unique_ptr<Program> copy = program_.Clone();
  ASSERT_OK(Run("loss").status());
  EXPECT_EQ(block().Find("w@GRAD")->kind, VariableKind::kSelectedRows);
  EXPECT_EQ(block().Find("w@GRAD@RENAME@block0@0")->kind,
            VariableKind::kSelectedRows);
  EXPECT_EQ(block().Find("a@GRAD")->kind, VariableKind::kTensor);
  // One of them is dense: so is the sum.
  copy->block(0).op(1).attrs["is_sparse"].value = false;
  ASSERT_OK(AppendBackward(registry_, *copy, {{"loss", ""}}, {}).status());
  EXPECT_EQ(copy->block(0).Find("w@GRAD")->kind, VariableKind::kTensor);
}

// As in programs that were read from Paddle's files.
TEST_F(BackwardTest, OutputThatOnlyTheGradientNeedsIsAdded) {
  AddVariable("image", {-1, 1, 4, 4});
  block().Append(
      {.type = "pool2d",
       .inputs = {{"X", {"image"}}},
       .outputs = {{"Out", {"pooled"}}},
       .attrs = {{"ksize", {AttrKind::kInts, std::vector<int64_t>{2}}},
                 {"pooling_type", {AttrKind::kString, std::string("max")}}}});
  ASSERT_OK(block().InferTypes(registry_, block().op(0)));
  Append("mean", {{"X", {"pooled"}}}, {{"Out", {"loss"}}});
  ASSERT_OK(Run("loss").status());
  const Operation& pool = block().op(0);
  ASSERT_EQ(pool.output("Mask").size(), 1);
  const Operation& grad = block().op(block().num_ops() - 1);
  EXPECT_EQ(grad.type, "pool2d_grad");
  EXPECT_EQ(grad.input("Mask"), pool.output("Mask"));
  EXPECT_EQ(block().Find(pool.output("Mask")[0])->type.dtype, DType::kInt64);
}

TEST_F(BackwardTest, VariableThatIsWrittenAgain) {
  Append("square", {{"X", {"w"}}}, {{"Out", {"h"}}});
  Append("relu", {{"X", {"h"}}}, {{"Out", {"h"}}});
  Append("mean", {{"X", {"h"}}}, {{"Out", {"loss"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("loss"));
  EXPECT_TRUE(gradients.contains("w"));
  const Operation& square = block().op(block().num_ops() - 1);
  const Operation& relu = block().op(block().num_ops() - 2);
  EXPECT_EQ(square.type, "square_grad");
  EXPECT_EQ(relu.type, "relu_grad");
  EXPECT_EQ(square.input("Out@GRAD"), relu.output("X@GRAD"));
}

TEST_F(BackwardTest, ValueThatIsGoneWhenItsGradientNeedsIt) {
  Append("tanh", {{"X", {"w"}}}, {{"Out", {"h"}}});
  Append("square", {{"X", {"h"}}}, {{"Out", {"h"}}});
  Append("mean", {{"X", {"h"}}}, {{"Out", {"loss"}}});
  EXPECT_THAT(Run("loss").status().message(),
              HasSubstr("net.py:9: square: its gradient needs the value that "
                        "the variable h had then"));
}

// Two losses, each minimized, one after the other.
TEST_F(BackwardTest, ParameterThatAnOptimizerHasChanged) {
  AddVariable("lr", {1});
  Append("tanh", {{"X", {"w"}}}, {{"Out", {"h"}}});
  Append("mean", {{"X", {"h"}}}, {{"Out", {"loss"}}});
  ASSERT_OK(Run("loss").status());
  Append("sgd",
         {{"Param", {"w"}}, {"LearningRate", {"lr"}}, {"Grad", {"w@GRAD"}}},
         {{"ParamOut", {"w"}}});
  Append("relu", {{"X", {"w"}}}, {{"Out", {"g"}}});
  Append("elementwise_add", {{"X", {"g"}}, {"Y", {"h"}}}, {{"Out", {"s"}}});
  Append("mean", {{"X", {"s"}}}, {{"Out", {"other"}}});
  ASSERT_OK_AND_ASSIGN(auto gradients, Run("other"));
  ASSERT_TRUE(gradients.contains("w"));
  const Operation& sum = block().op(block().num_ops() - 1);
  EXPECT_EQ(sum.type, "sum");
  EXPECT_THAT(sum.output("Out"), ElementsAre(gradients["w"]));
  EXPECT_EQ(sum.input("X").size(), 2);
}

TEST_F(BackwardTest, GradientsHaveTheOffsetsOfTheirVariables) {
  AddVariable("ids", {-1, 4}).is_data = true;
  program::MakeSequence(block(), "ids");
  Operation relu{.type = "relu",
                 .inputs = {{"X", {"ids"}}},
                 .outputs = {{"Out", {"act"}}}};
  ASSERT_OK(program::CompleteLod(registry_, block(), relu));
  ASSERT_OK(block().InferTypes(registry_, block().Append(std::move(relu))));
  Operation pool{.type = "sequence_pool",
                 .inputs = {{"X", {"act"}}},
                 .outputs = {{"Out", {"pool"}}},
                 .attrs = {{"pooltype",
                            {program::AttrKind::kString, std::string("SUM")}}}};
  ASSERT_OK(program::CompleteLod(registry_, block(), pool));
  ASSERT_OK(block().InferTypes(registry_, block().Append(std::move(pool))));
  ASSERT_OK(AppendBackward(registry_, program_, {{"pool", ""}}, {}).status());
  EXPECT_EQ(block().Find("act@GRAD")->lod, "ids@LOD");
  EXPECT_EQ(block().Find("pool@GRAD")->lod, "");
}

// A shared weight, a table in rows, and a value that nobody asks for.
constexpr char kForward[] = R"({ // block 0
    var ids : LOD_TENSOR.shape(-1).dtype(int64).stop_gradient(True).data(True)
    persist trainable param table : LOD_TENSOR.shape(9, 4).dtype(float32)
    persist trainable param w : LOD_TENSOR.shape(4, 4).dtype(float32)
    var e : LOD_TENSOR.shape(-1, 4).dtype(float32)
    var h : LOD_TENSOR.shape(-1, 4).dtype(float32)
    var t : LOD_TENSOR.shape(-1, 4).dtype(float32)
    var y : LOD_TENSOR.shape(-1, 4).dtype(float32)
    var aside : LOD_TENSOR.shape(-1, 4).dtype(float32)
    var loss : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['e']} = lookup_table_v2(inputs={Ids=['ids'], W=['table']}, is_sparse = True)
    {Out=['h']} = matmul_v2(inputs={X=['e'], Y=['w']})
    {Out=['t']} = tanh(inputs={X=['h']})
    {Out=['aside']} = exp(inputs={X=['t']})
    {Out=['y']} = matmul_v2(inputs={X=['t'], Y=['w']})
    {Out=['loss']} = reduce_mean(inputs={X=['y']})
}
)";

// What AppendBackward writes behind kForward, as a text.
std::string Gradients(const std::set<std::string>& no_grad) {
  OpRegistry registry;
  DefineAllOps(registry);
  auto program = program::ParseText(kForward);
  EXPECT_OK(program);
  const std::string before = ToString(**program, {.variables = false});
  EXPECT_OK(
      AppendBackward(registry, **program, {{"loss", ""}}, no_grad).status());
  const std::string after = ToString(**program, {.variables = false});
  const size_t end = before.rfind('}');
  EXPECT_EQ(after.substr(0, end), before.substr(0, end));
  return after.substr(end);
}

TEST(AppendBackwardTest, WritesGradientsBehindAProgram) {
  EXPECT_EQ(
      Gradients({}),
      R"(    {Out=['loss@GRAD']} = fill_any_like(inputs={X=['loss']}, dtype = -1, op_role = 1, value = 1.0)
    {X@GRAD=['y@GRAD']} = reduce_mean_grad(inputs={X=['y'], Out@GRAD=['loss@GRAD']}, op_role = 1)
    {X@GRAD=['t@GRAD'], Y@GRAD=['w@GRAD@RENAME@block0@0']} = matmul_v2_grad(inputs={X=['t'], Y=['w'], Out@GRAD=['y@GRAD']}, op_role = 1)
    {X@GRAD=['h@GRAD']} = tanh_grad(inputs={Out=['t'], Out@GRAD=['t@GRAD']}, op_role = 1)
    {X@GRAD=['e@GRAD'], Y@GRAD=['w@GRAD@RENAME@block0@1']} = matmul_v2_grad(inputs={X=['e'], Y=['w'], Out@GRAD=['h@GRAD']}, op_role = 1)
    {W@GRAD=['table@GRAD']} = lookup_table_v2_grad(inputs={W=['table'], Ids=['ids'], Out@GRAD=['e@GRAD']}, is_sparse = True, op_role = 1)
    {Out=['w@GRAD']} = sum(inputs={X=['w@GRAD@RENAME@block0@0', 'w@GRAD@RENAME@block0@1']}, op_role = 1)
}
)");
}

TEST(AppendBackwardTest, StopsAtWhatHasNoGradient) {
  EXPECT_EQ(
      Gradients({"h"}),
      R"(    {Out=['loss@GRAD']} = fill_any_like(inputs={X=['loss']}, dtype = -1, op_role = 1, value = 1.0)
    {X@GRAD=['y@GRAD']} = reduce_mean_grad(inputs={X=['y'], Out@GRAD=['loss@GRAD']}, op_role = 1)
    {X@GRAD=['@EMPTY@'], Y@GRAD=['w@GRAD']} = matmul_v2_grad(inputs={X=['t'], Y=['w'], Out@GRAD=['y@GRAD']}, op_role = 1)
}
)");
}

}  // namespace
}  // namespace fleet::plan
