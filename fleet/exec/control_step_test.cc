// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/control_step.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/exec/executor.h"
#include "fleet/plan/backward.h"
#include "fleet/program/control.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"

namespace fleet::exec {
namespace {

using ::testing::HasSubstr;

std::string Declare(std::initializer_list<const char*> names,
                    const char* dtype = "float32", const char* shape = "3") {
  std::string text;
  for (const char* name : names) {
    text += "    var " + std::string(name) + " : LOD_TENSOR.shape(" + shape +
            ").dtype(" + dtype + ")\n";
  }
  return text;
}

class ControlStepTest : public ::testing::Test {
 protected:
  ControlStepTest() { program::DefineAllOps(registry_); }

  void Parse(const std::string& text) {
    ASSERT_OK_AND_ASSIGN(program_, program::ParseText(text));
    program::Block& main = program_->block(0);
    for (size_t i = 0; i < main.num_ops(); ++i) {
      program::FillBodySlots(*program_, main.op(i));
    }
  }

  program::OpRegistry registry_;
  std::unique_ptr<program::Program> program_;
  ops::OpLibrary library_;
  Scope scope_;
  Executor executor_{library_, {}};
};

// loss = (flag ? sin(x) * w : x * x * w) * x
const std::string kBranches =
    "{ // block 0\n" + Declare({"x", "w", "a", "b", "y", "loss"}) +
    Declare({"flag", "other", "mask"}, "bool", "1") + R"(
    {Out=['other']} = logical_not(inputs={X=['flag']})
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
    {} = conditional_block(inputs={Cond=['other']}, sub_block = block[2])
    {Out=['mask']} = assign(inputs={X=['other']})
    {Out=['y']} = select_input(inputs={X=['a', 'b'], Mask=['mask']})
    {Out=['loss']} = elementwise_mul(inputs={X=['y'], Y=['x']})
}
{ // block 1, parent 0
)" + Declare({"s"}) +
    R"(
    {Out=['s']} = sin(inputs={X=['x']})
    {Out=['a']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
{ // block 2, parent 0
)" + Declare({"s"}) +
    R"(
    {Out=['s']} = elementwise_mul(inputs={X=['x'], Y=['x']})
    {Out=['b']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
)";

TEST_F(ControlStepTest, OneBranchRunsAndSoDoesItsGradient) {
  Parse(kBranches);
  ASSERT_OK_AND_ASSIGN(
      auto gradients,
      plan::AppendBackward(registry_, *program_, {{"loss", ""}}, {}));
  for (bool flag : {true, false, true, true}) {
    at::Tensor x = at::randn({3}).requires_grad_();
    at::Tensor w = at::randn({3}).requires_grad_();
    at::Tensor loss = (flag ? x.sin() * w : x * x * w) * x;
    loss.sum().backward();
    ASSERT_OK_AND_ASSIGN(
        auto got, executor_.Run(*program_, scope_,
                                {{"x", x.detach()},
                                 {"w", w.detach()},
                                 {"flag", at::full({1}, flag, at::kBool)}},
                                {"loss", gradients["x"], gradients["w"]}));
    EXPECT_TRUE(at::allclose(got[0], loss.detach()));
    EXPECT_TRUE(at::allclose(got[1], x.grad()));
    EXPECT_TRUE(at::allclose(got[2], w.grad()));
  }
}

// loss = s_n * w with s_0 = x, s_{t+1} = sin(s_t * w) + c; n turns.
const std::string kLoop =
    "{ // block 0\n" + Declare({"x", "w", "c", "s", "loss"}) +
    Declare({"i", "n"}, "int64", "1") + Declare({"go"}, "bool", "1") + R"(
    {Out=['i']} = fill_constant(inputs={}, shape = [1], dtype = 3, value = 0.0)
    {Out=['s']} = assign(inputs={X=['x']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])  // at net.py:8
    {Out=['loss']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
{ // block 1, parent 0
)" + Declare({"p", "q", "next"}) +
    R"(
    {Out=['p']} = elementwise_mul(inputs={X=['s'], Y=['w']})
    {Out=['q']} = sin(inputs={X=['p']})  // at net.py:9
    {Out=['next']} = elementwise_add(inputs={X=['q'], Y=['c']})
    {Out=['s']} = assign(inputs={X=['next']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
)";

TEST_F(ControlStepTest, ALoopAndTheWayBack) {
  Parse(kLoop);
  ASSERT_OK_AND_ASSIGN(
      auto gradients,
      plan::AppendBackward(registry_, *program_, {{"loss", ""}}, {}));
  for (int64_t n : {3, 1, 0, 5}) {
    at::Tensor x = at::randn({3}).requires_grad_();
    at::Tensor w = at::randn({3}).requires_grad_();
    at::Tensor c = at::randn({3}).requires_grad_();
    at::Tensor s = x;
    for (int64_t i = 0; i < n; ++i) s = (s * w).sin() + c;
    at::Tensor loss = s * w;
    loss.sum().backward();
    ASSERT_OK_AND_ASSIGN(auto got,
                         executor_.Run(*program_, scope_,
                                       {{"x", x.detach()},
                                        {"w", w.detach()},
                                        {"c", c.detach()},
                                        {"n", at::full({1}, n, at::kLong)}},
                                       {"loss", gradients["x"], gradients["w"],
                                        gradients["c"]}));
    EXPECT_TRUE(at::allclose(got[0], loss.detach()));
    EXPECT_TRUE(at::allclose(got[1], x.grad()));
    EXPECT_TRUE(at::allclose(got[2], w.grad(), 1e-4, 1e-6));
    if (n > 0) {
      EXPECT_TRUE(at::allclose(got[3], c.grad()));
    } else {
      EXPECT_EQ(got[3].abs().sum().item<float>(), 0);
    }
  }
}

TEST_F(ControlStepTest, AnErrorInABodyNamesItsOperation) {
  Parse(kLoop);
  Status status = executor_
                      .Run(*program_, scope_,
                           {{"x", at::randn({3})},
                            {"w", at::randn({3})},
                            {"c", at::randn({3})},
                            {"n", at::full({1}, 2, at::kLong)}},
                           {"loss"})
                      .status();
  ASSERT_OK(status);
  program_->block(1).op(1).type = "no_such_op";
  program_->Touch();
  EXPECT_THAT(executor_
                  .Run(*program_, scope_,
                       {{"x", at::randn({3})},
                        {"w", at::randn({3})},
                        {"c", at::randn({3})},
                        {"n", at::full({1}, 2, at::kLong)}},
                       {"loss"})
                  .status()
                  .message(),
              HasSubstr("net.py:9: no_such_op"));
}

TEST_F(ControlStepTest, ArraysBeginEmptyInEveryRun) {
  Parse("{ // block 0\n" + Declare({"x", "y"}) +
        "    var list : LOD_TENSOR_ARRAY.shape(3).dtype(float32)\n" +
        Declare({"i", "length"}, "int64", "1") + R"(
    {Out=['i']} = fill_constant(inputs={}, shape = [1], dtype = 3, value = 1.0)
    {Out=['list']} = write_to_array(inputs={X=['x'], I=['i']})
    {Out=['length']} = lod_array_length(inputs={X=['list']})
    {Out=['y']} = read_from_array(inputs={X=['list'], I=['i']})
}
)");
  for (int run = 0; run < 2; ++run) {
    at::Tensor x = at::randn({3});
    ASSERT_OK_AND_ASSIGN(auto got, executor_.Run(*program_, scope_, {{"x", x}},
                                                 {"y", "length"}));
    EXPECT_TRUE(at::allclose(got[0], x));
    EXPECT_EQ(got[1].item<int64_t>(), 2);
  }
}

}  // namespace
}  // namespace fleet::exec
