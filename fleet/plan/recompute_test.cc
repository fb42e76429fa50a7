// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/recompute.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/op_role.h"
#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using program::Block;
using program::Dims;
using program::DType;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Slots;
using program::Variable;

using ::testing::HasSubstr;
using ::testing::Not;

class RecomputeTest : public ::testing::Test {
 protected:
  RecomputeTest() {
    DefineAllOps(registry_);
    AddVariable("x", {-1, 4}).stop_gradient = true;
  }

  Block& block() { return program_.block(0); }
  Variable& AddVariable(const std::string& name, Dims dims) {
    return block().AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  Operation& Append(const std::string& type, Slots inputs, Slots outputs) {
    Operation& op = block().Append({.type = type,
                                    .inputs = std::move(inputs),
                                    .outputs = std::move(outputs)});
    EXPECT_OK(block().InferTypes(registry_, op));
    return op;
  }
  // y = tanh(x w)
  void AddLayer(const std::string& x, const std::string& w,
                const std::string& y) {
    Variable& parameter = AddVariable(w, {4, 4});
    parameter.is_parameter = parameter.persistable = true;
    Append("matmul_v2", {{"X", {x}}, {"Y", {w}}}, {{"Out", {y + "_h"}}});
    Append("tanh", {{"X", {y + "_h"}}}, {{"Out", {y}}});
  }
  void AddLossAndBackward(const std::string& y) {
    Append("reduce_mean", {{"X", {y}}}, {{"Out", {"loss"}}});
    num_forward_ = block().num_ops();
    ASSERT_OK(AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
  }

  std::string Print() { return plan::Print(program_); }
  std::string PrintBackward() { return plan::Print(program_, num_forward_); }

  OpRegistry registry_;
  Program program_;
  size_t num_forward_ = 0;
};

TEST_F(RecomputeTest, WhatLiesBetweenCheckpointsIsMadeAgainWhereItIsNeeded) {
  AddLayer("x", "w0", "a");
  AddLayer("a", "w1", "b");
  AddLayer("b", "w2", "c");
  AddLayer("c", "w3", "d");
  AddLossAndBackward("d");
  ASSERT_EQ(PrintBackward(),
            "loss@GRAD = fill_any_like(loss)\n"
            "d@GRAD = reduce_mean_grad(d, loss@GRAD)\n"
            "d_h@GRAD = tanh_grad(d, d@GRAD)\n"
            "c@GRAD, w3@GRAD = matmul_v2_grad(c, w3, d_h@GRAD)\n"
            "c_h@GRAD = tanh_grad(c, c@GRAD)\n"
            "b@GRAD, w2@GRAD = matmul_v2_grad(b, w2, c_h@GRAD)\n"
            "b_h@GRAD = tanh_grad(b, b@GRAD)\n"
            "a@GRAD, w1@GRAD = matmul_v2_grad(a, w1, b_h@GRAD)\n"
            "a_h@GRAD = tanh_grad(a, a@GRAD)\n"
            "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, a_h@GRAD)\n");
  const size_t num_forward = num_forward_;
  const std::string forward = Print().substr(0, Print().find("loss@GRAD"));
  ASSERT_OK_AND_ASSIGN(size_t count,
                       Recompute(registry_, program_, {"b", "c"}));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(PrintBackward(),
            "loss@GRAD = fill_any_like(loss)\n"
            "d@GRAD = reduce_mean_grad(d, loss@GRAD)\n"
            "d_h@GRAD = tanh_grad(d, d@GRAD)\n"
            "c@GRAD, w3@GRAD = matmul_v2_grad(c, w3, d_h@GRAD)\n"
            "c_h@GRAD = tanh_grad(c, c@GRAD)\n"
            "b@GRAD, w2@GRAD = matmul_v2_grad(b, w2, c_h@GRAD)\n"
            "b_h@GRAD = tanh_grad(b, b@GRAD)\n"
            "a_h@AGAIN = matmul_v2(x, w0)\n"
            "a@AGAIN = tanh(a_h@AGAIN)\n"
            "a@GRAD, w1@GRAD = matmul_v2_grad(a@AGAIN, w1, b_h@GRAD)\n"
            "a_h@GRAD = tanh_grad(a@AGAIN, a@GRAD)\n"
            "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, a_h@GRAD)\n");
  EXPECT_EQ(Print().substr(0, forward.size()), forward);
  EXPECT_EQ(RoleOf(block().op(num_forward + 7)), OpRole::kBackward);
  EXPECT_EQ(block().FindHere("a@AGAIN")->type, block().FindHere("a")->type);
}

TEST_F(RecomputeTest, SegmentsAreMadeAgainOneByOne) {
  AddLayer("x", "w0", "a");
  AddLayer("a", "w1", "b");
  AddLayer("b", "w2", "c");
  AddLayer("c", "w3", "d");
  AddLossAndBackward("d");
  ASSERT_OK_AND_ASSIGN(size_t count,
                       Recompute(registry_, program_, {"d", "b"}));
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(PrintBackward(),
            "loss@GRAD = fill_any_like(loss)\n"
            "d@GRAD = reduce_mean_grad(d, loss@GRAD)\n"
            "d_h@GRAD = tanh_grad(d, d@GRAD)\n"
            "c_h@AGAIN = matmul_v2(b, w2)\n"
            "c@AGAIN = tanh(c_h@AGAIN)\n"
            "c@GRAD, w3@GRAD = matmul_v2_grad(c@AGAIN, w3, d_h@GRAD)\n"
            "c_h@GRAD = tanh_grad(c@AGAIN, c@GRAD)\n"
            "b@GRAD, w2@GRAD = matmul_v2_grad(b, w2, c_h@GRAD)\n"
            "b_h@GRAD = tanh_grad(b, b@GRAD)\n"
            "a_h@AGAIN = matmul_v2(x, w0)\n"
            "a@AGAIN = tanh(a_h@AGAIN)\n"
            "a@GRAD, w1@GRAD = matmul_v2_grad(a@AGAIN, w1, b_h@GRAD)\n"
            "a_h@GRAD = tanh_grad(a@AGAIN, a@GRAD)\n"
            "@EMPTY@, w0@GRAD = matmul_v2_grad(x, w0, a_h@GRAD)\n");
}

TEST_F(RecomputeTest, WhatIsDrawnIsKept) {
  AddLayer("x", "w0", "a");
  Append("dropout", {{"X", {"a"}}}, {{"Out", {"dropped"}}, {"Mask", {"mask"}}});
  Append("square", {{"X", {"dropped"}}}, {{"Out", {"q"}}});
  AddLayer("q", "w1", "b");
  AddLossAndBackward("b");
  ASSERT_OK_AND_ASSIGN(size_t count, Recompute(registry_, program_, {"b"}));
  EXPECT_EQ(count, 3u);
  const std::string backward = PrintBackward();
  EXPECT_THAT(backward, HasSubstr("q@AGAIN = square(dropped)\n"
                                  "q@GRAD, w1@GRAD = matmul_v2_grad(q@AGAIN,"));
  EXPECT_THAT(backward, HasSubstr("a@AGAIN = tanh(a_h@AGAIN)\n"));
  EXPECT_THAT(backward, Not(HasSubstr("= dropout(")));
  EXPECT_THAT(backward, HasSubstr("dropout_grad(mask,"));
}

TEST_F(RecomputeTest, WhatChangesAPersistableVariableIsNotRepeated) {
  AddLayer("x", "w0", "a");
  AddVariable("seen", {1}).persistable = true;
  Append("scale", {{"X", {"a"}}}, {{"Out", {"s"}}});
  Append("reduce_sum", {{"X", {"s"}}}, {{"Out", {"seen"}}});
  Append("elementwise_mul", {{"X", {"s"}}, {"Y", {"seen"}}}, {{"Out", {"t"}}});
  AddLayer("t", "w1", "b");
  AddLossAndBackward("b");
  ASSERT_OK(Recompute(registry_, program_, {"b"}).status());
  EXPECT_THAT(PrintBackward(), HasSubstr("s@AGAIN = scale("));
  EXPECT_THAT(PrintBackward(),
              HasSubstr("t@AGAIN = elementwise_mul(s@AGAIN, seen)\n"));
  EXPECT_THAT(PrintBackward(), Not(HasSubstr("= reduce_sum(")));
}

TEST_F(RecomputeTest, WrongCheckpointsAndProgramsAreNamed) {
  AddLayer("x", "w0", "a");
  const Result<size_t> early = Recompute(registry_, program_, {"a"});
  EXPECT_EQ(early.status().code(), StatusCode::kFailedPrecondition);
  AddLossAndBackward("a");
  const std::string before = Print();
  const Result<size_t> absent = Recompute(registry_, program_, {"a", "nobody"});
  EXPECT_EQ(absent.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(absent.status().message(), HasSubstr("makes nobody"));
  EXPECT_EQ(Print(), before);
}

}  // namespace
}  // namespace fleet::plan
