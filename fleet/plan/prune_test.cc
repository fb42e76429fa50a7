// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/prune.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

using program::OpRegistry;
using program::ParseText;
using program::Program;
using program::Variable;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTraining[] = R"({ // block 0
    var x : LOD_TENSOR.shape(-1, 4).dtype(float32).stop_gradient(True).data(True)
    var label : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
    persist trainable param w : LOD_TENSOR.shape(4, 2).dtype(float32)
    persist var lr : LOD_TENSOR.shape(1).dtype(float32)
    persist var steps : LOD_TENSOR.shape(1).dtype(float32)
    persist var velocity : LOD_TENSOR.shape(4, 2).dtype(float32)
    var h : LOD_TENSOR.shape(-1, 2).dtype(float32)
    var d : LOD_TENSOR.shape(-1, 2).dtype(float32)
    var mask : LOD_TENSOR.shape(-1, 2).dtype(float32)
    var p : LOD_TENSOR.shape(-1, 2).dtype(float32)
    var cost : LOD_TENSOR.shape(-1, 1).dtype(float32)
    var w@GRAD : LOD_TENSOR.shape(4, 2).dtype(float32)
    var unused : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['steps']} = increment(inputs={X=['steps']}, op_role = 16)
    {Out=['h']} = matmul_v2(inputs={X=['x'], Y=['w']})
    {Out=['d'], Mask=['mask']} = dropout(inputs={X=['h']})
    {Out=['p']} = softmax(inputs={X=['d']})
    {Out=['cost']} = cross_entropy2(inputs={X=['p'], Label=['label']}, op_role = 256)
    {W@GRAD=['w@GRAD']} = everything_grad(inputs={X=['cost']}, op_role = 1)
    {ParamOut=['w'], VelocityOut=['velocity']} = momentum(inputs={Param=['w'], Grad=['w@GRAD'], Velocity=['velocity'], LearningRate=['lr']}, op_role = 2)
}
)";

std::vector<std::string> Names(const Program& program) {
  std::vector<std::string> names;
  for (const Variable* v : program.block(0).variables()) {
    names.push_back(v->name);
  }
  return names;
}

TEST(PruneTest, WhatTheTargetNeeds) {
  ASSERT_OK_AND_ASSIGN(auto program, ParseText(kTraining));
  ASSERT_OK_AND_ASSIGN(auto pruned, Prune(*program, {"x"}, {"p"}));
  EXPECT_EQ(ToString(*pruned, {.variables = false}), R"({ // block 0
    {Out=['h']} = matmul_v2(inputs={X=['x'], Y=['w']})
    {Out=['d'], Mask=['mask']} = dropout(inputs={X=['h']})
    {Out=['p']} = softmax(inputs={X=['d']})
}
)");
  EXPECT_THAT(Names(*pruned), ElementsAre("x", "w", "h", "d", "mask", "p"));
  EXPECT_EQ(ToString(*program), kTraining) << "the original is untouched";
}

TEST(PruneTest, AFeedInTheMiddleCutsWhatIsBeforeIt) {
  ASSERT_OK_AND_ASSIGN(auto program, ParseText(kTraining));
  ASSERT_OK_AND_ASSIGN(auto pruned, Prune(*program, {"d"}, {"p"}));
  EXPECT_EQ(ToString(*pruned, {.variables = false}),
            "{ // block 0\n"
            "    {Out=['p']} = softmax(inputs={X=['d']})\n"
            "}\n");
}

TEST(PruneTest, DataThatNobodyFeeds) {
  ASSERT_OK_AND_ASSIGN(auto program, ParseText(kTraining));
  EXPECT_THAT(Prune(*program, {"x"}, {"cost"}).status().message(),
              HasSubstr("depend on the data label"));
  EXPECT_EQ(Prune(*program, {"x"}, {"nothing"}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Prune(*program, {"nothing"}, {"p"}).status().code(),
            StatusCode::kNotFound);
}

constexpr char kLoop[] = R"({ // block 0
    var go : LOD_TENSOR.shape(1).dtype(bool)
    var i : LOD_TENSOR.shape(1).dtype(int64)
    var total : LOD_TENSOR.shape(1).dtype(float32)
    var other : LOD_TENSOR.shape(1).dtype(float32)
    var ready : LOD_TENSOR.shape(1).dtype(bool)
    {Out=['ready']} = fill_constant(inputs={})
    {} = conditional_block(inputs={Cond=['ready']}, sub_block = block[1])
    {Out=['i']} = fill_constant(inputs={})
    {Out=['go']} = fill_constant(inputs={})
    {Out=['total']} = fill_constant(inputs={})
    {} = while(inputs={Condition=['go']}, sub_block = block[2])
    {Out=['other']} = tanh(inputs={X=['total']})
}
{ // block 1, parent 0
    {Out=['other']} = fill_constant(inputs={})
}
{ // block 2, parent 0
    var local : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['local']} = cast(inputs={X=['i']})
    {Out=['total']} = elementwise_add(inputs={X=['total'], Y=['local']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['i']})
}
)";

TEST(PruneTest, BodiesCountAsTheOperationThatRunsThem) {
  ASSERT_OK_AND_ASSIGN(auto program, ParseText(kLoop));
  ASSERT_OK_AND_ASSIGN(auto pruned, Prune(*program, {}, {"total"}));
  EXPECT_EQ(ToString(*pruned, {.variables = false}), R"({ // block 0
    {Out=['i']} = fill_constant(inputs={})
    {Out=['go']} = fill_constant(inputs={})
    {Out=['total']} = fill_constant(inputs={})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])
}
{ // block 1, parent 0
    {Out=['local']} = cast(inputs={X=['i']})
    {Out=['total']} = elementwise_add(inputs={X=['total'], Y=['local']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['i']})
}
)");
}

TEST(PruneTest, CloneForTestHasOnlyForward) {
  OpRegistry registry;
  DefineAllOps(registry);
  ASSERT_OK_AND_ASSIGN(auto program, ParseText(kTraining));
  std::unique_ptr<Program> clone = CloneForTest(registry, *program);
  EXPECT_EQ(ToString(*clone, {.variables = false}), R"({ // block 0
    {Out=['h']} = matmul_v2(inputs={X=['x'], Y=['w']})
    {Out=['d'], Mask=['mask']} = dropout(inputs={X=['h']}, is_test = True)
    {Out=['p']} = softmax(inputs={X=['d']})
    {Out=['cost']} = cross_entropy2(inputs={X=['p'], Label=['label']}, op_role = 256)
}
)");
  EXPECT_THAT(Names(*clone), ElementsAre("x", "label", "w", "h", "d", "mask",
                                         "p", "cost", "unused"));
  EXPECT_EQ(ToString(*program), kTraining);
}

}  // namespace
}  // namespace fleet::plan
