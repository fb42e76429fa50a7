// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/executor.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"

namespace fleet::exec {
namespace {

using program::DType;
using ::testing::HasSubstr;

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    program::DefineAllOps(registry_);
    AddVariable("x", {-1, 4}).is_data = true;
    block().Find("x")->stop_gradient = true;
    AddVariable("w", {4, 3}).persistable = true;
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
    Append("tanh", {{"X", {"h"}}}, {{"Out", {"y"}}});
    Append("reduce_mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  }
  program::Block& block() { return program_.block(0); }

  program::Variable& AddVariable(const std::string& name, program::Dims dims) {
    return block().AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, program::Slots inputs,
              program::Slots outputs) {
    ASSERT_OK(block().InferTypes(registry_,
                                 block().Append({.type = type,
                                                 .inputs = std::move(inputs),
                                                 .outputs = std::move(outputs),
                                                 .made_at = "net.py:5"})));
  }

  program::OpRegistry registry_;
  program::Program program_;
  ops::OpLibrary library_;
  Scope scope_;
  Executor executor_{library_, {}};
};

TEST_F(ExecutorTest, ForwardAndBackwardAgainstTorch) {
  ASSERT_OK(
      plan::AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
  // Positive, so that no sum is small beside what was added.
  at::Tensor w = (at::rand({4, 3}) + 0.1).requires_grad_();
  scope_.Get("w") = w.detach();
  for (int64_t batch : {5, 2, 5}) {
    at::Tensor x = at::rand({batch, 4}) + 0.1;
    ASSERT_OK_AND_ASSIGN(auto got, executor_.Run(program_, scope_, {{"x", x}},
                                                 {"loss", "w@GRAD"}));
    w.mutable_grad().reset();
    at::Tensor loss = at::mean(at::tanh(at::matmul(x, w)));
    loss.backward();
    EXPECT_TRUE(at::allclose(got[0], loss.detach().reshape(got[0].sizes())));
    EXPECT_TRUE(at::allclose(got[1], w.grad(), 1e-5, 1e-7));
  }
}

TEST_F(ExecutorTest, MissingParameter) {
  Status status =
      executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}}, {"loss"})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("variable w has no value"));
  EXPECT_THAT(status.message(), HasSubstr("startup program"));
}

TEST_F(ExecutorTest, WrongFeeds) {
  scope_.Get("w") = at::ones({4, 3});
  auto run = [&](const std::string& name, const at::Tensor& value) {
    return executor_.Run(program_, scope_, {{name, value}}, {"loss"}).status();
  };
  EXPECT_THAT(run("x", at::ones({2, 5})).message(),
              HasSubstr("feed x: got float32 [2, 5], but the program wants "
                        "float32 [-1, 4]"));
  EXPECT_THAT(run("x", at::ones({2, 4}, at::kDouble)).message(),
              HasSubstr("float64"));
  EXPECT_THAT(run("z", at::ones({2, 4})).message(), HasSubstr("no variable z"));
}

TEST_F(ExecutorTest, UnknownFetch) {
  scope_.Get("w") = at::ones({4, 3});
  EXPECT_THAT(
      executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}}, {"nothing"})
          .status()
          .message(),
      HasSubstr("no variable nothing"));
}

TEST_F(ExecutorTest, ErrorNamesTheOperationAndTheUsersLine) {
  scope_.Get("w") = at::ones({7, 3});
  Status status =
      executor_.Run(program_, scope_, {{"x", at::ones({2, 4})}}, {"loss"})
          .status();
  EXPECT_THAT(status.message(), HasSubstr("net.py:5: matmul_v2"));
  EXPECT_THAT(status.message(), HasSubstr("w float32 [7, 3]"));
}

TEST_F(ExecutorTest, PersistableKeepsItsMemory) {
  AddVariable("count", {1}).persistable = true;
  block().Append({.type = "scale",
                  .inputs = {{"X", {"count"}}},
                  .outputs = {{"Out", {"count"}}},
                  .attrs = {{"bias", {program::AttrKind::kFloat, 1.0}}}});
  scope_.Get("w") = at::ones({4, 3});
  scope_.Get("count") = at::ones({1});
  const void* memory = scope_.Get("count").data_ptr();
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}}, {})
                  .status());
  }
  EXPECT_EQ(scope_.Get("count").item<float>(), 4);
  EXPECT_EQ(scope_.Get("count").data_ptr(), memory);
}

TEST_F(ExecutorTest, FetchIsACopy) {
  scope_.Get("w") = at::ones({4, 3});
  ASSERT_OK_AND_ASSIGN(
      auto got,
      executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}}, {"w"}));
  got[0].zero_();
  EXPECT_EQ(scope_.Get("w").sum().item<float>(), 12);
}

// Doubles, and remembers what it saw.
class Doubling final : public Extension {
 public:
  class Step final : public ExtensionStep {
   public:
    explicit Step(Doubling& owner) : owner_(owner) {}
    Status Run(std::span<const at::Tensor> inputs,
               std::span<at::Tensor> outputs) override {
      if (owner_.fails) return Unavailable("no way to double");
      owner_.output_had_memory = outputs[0].defined();
      outputs[0] = inputs[0] + inputs[0];
      return OkStatus();
    }

   private:
    Doubling& owner_;
  };

  Result<std::unique_ptr<ExtensionStep>> Prepare(
      const program::Operation& op) override {
    ++num_prepared;
    if (op.inputs.size() != 1) return InvalidArgument("takes one slot");
    return std::make_unique<Step>(*this);
  }

  int num_prepared = 0;
  bool fails = false;
  bool output_had_memory = true;
};

TEST_F(ExecutorTest, ExtensionRunsAnOperationThatHasNoKernel) {
  block().Append({.type = "double_it",
                  .inputs = {{"X", {"loss"}}},
                  .outputs = {{"Out", {"twice"}}},
                  .made_at = "net.py:9"});
  AddVariable("twice", {1});
  scope_.Get("w") = at::randn({4, 3});
  auto run = [&] {
    return executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}},
                         {"loss", "twice"});
  };
  EXPECT_THAT(run().status().message(), HasSubstr("no kernel"));
  auto doubling = std::make_shared<Doubling>();
  executor_.AddExtension("double_it", doubling);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(auto got, run());
    EXPECT_TRUE(at::allclose(got[1], got[0] * 2));
  }
  EXPECT_EQ(doubling->num_prepared, 1);
  EXPECT_FALSE(doubling->output_had_memory);
  doubling->fails = true;
  Status status = run().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("net.py:9: double_it(loss float32"));
}

TEST_F(ExecutorTest, ExtensionSeesTheMemoryThatItsOutputHas) {
  block().Append({.type = "double_it",
                  .inputs = {{"X", {"w"}}},
                  .outputs = {{"Out", {"w"}}}});
  auto doubling = std::make_shared<Doubling>();
  executor_.AddExtension("double_it", doubling);
  scope_.Get("w") = at::ones({4, 3});
  const void* memory = scope_.Get("w").data_ptr();
  ASSERT_OK(
      executor_.Run(program_, scope_, {{"x", at::ones({1, 4})}}, {}).status());
  EXPECT_TRUE(doubling->output_had_memory);
  EXPECT_EQ(scope_.Get("w").data_ptr(), memory);
  EXPECT_EQ(scope_.Get("w").sum().item<float>(), 24);
}

TEST_F(ExecutorTest, AProgramAtTheAddressOfAnotherIsNotTakenForIt) {
  scope_.Get("w") = at::ones({4, 3});
  Scope scope;
  std::vector<float> sums;
  for (double value : {1.0, 2.0}) {
    auto program = std::make_unique<program::Program>();
    program->block(0).AddVariable({.name = "y"});
    program->block(0).Append(
        {.type = "fill_constant",
         .outputs = {{"Out", {"y"}}},
         .attrs = {
             {"shape", {program::AttrKind::kLongs, std::vector<int64_t>{3}}},
             {"value", {program::AttrKind::kFloat, value}}}});
    ASSERT_OK_AND_ASSIGN(auto got, executor_.Run(*program, scope, {}, {"y"}));
    sums.push_back(got[0].sum().item<float>());
  }
  EXPECT_EQ(sums, (std::vector<float>{3, 6}));
}

class TrainingTest : public ExecutorTest {
 protected:
  void SetUp() override {
    ASSERT_OK(
        plan::AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
    AddVariable("rate", {1}).persistable = true;
    scope_.Get("w") = at::randn({4, 3});
    scope_.Get("rate") = at::full({1}, 0.1);
  }
  void AppendSgd() {
    block().Append({.type = "sgd",
                    .inputs = {{"Param", {"w"}},
                               {"Grad", {"w@GRAD"}},
                               {"LearningRate", {"rate"}}},
                    .outputs = {{"ParamOut", {"w"}}},
                    .made_at = "net.py:7"});
  }
  Result<std::vector<at::Tensor>> Run(const std::vector<std::string>& fetches) {
    return executor_.Run(program_, scope_, {{"x", x_}}, fetches);
  }

  at::Tensor x_ = at::randn({5, 4});
};

TEST_F(TrainingTest, OptimizerUpdatesInPlace) {
  AppendSgd();
  at::Tensor w = scope_.Get("w");
  for (int i = 0; i < 3; ++i) {
    at::Tensor before = w.clone();
    ASSERT_OK_AND_ASSIGN(auto got, Run({"w@GRAD"}));
    EXPECT_TRUE(at::allclose(w, before - got[0] * 0.1));
  }
  EXPECT_TRUE(scope_.Get("w").is_same(w));
}

// Run by run, first plainly and then by a plan.
TEST_F(TrainingTest, AnUpdateThatIsSkippedChangesNothing) {
  program::Variable& skip = AddVariable("skip", {1});
  skip.type.dtype = program::DType::kBool;
  skip.is_data = true;
  AddVariable("v", {4, 3}).persistable = true;
  scope_.Get("v") = at::randn({4, 3});
  AppendSgd();  // never skipped
  block().Append({.type = "momentum",
                  .inputs = {{"Param", {"w"}},
                             {"Grad", {"w@GRAD"}},
                             {"Velocity", {"v"}},
                             {"LearningRate", {"rate"}},
                             {"SkipUpdate", {"skip"}}},
                  .outputs = {{"ParamOut", {"w"}}, {"VelocityOut", {"v"}}},
                  .attrs = {{"mu", {program::AttrKind::kFloat, 0.5}}}});
  for (bool skips : {true, false, false, true, false, true}) {
    const at::Tensor w = scope_.Get("w").clone(), v = scope_.Get("v").clone();
    ASSERT_OK_AND_ASSIGN(
        auto got,
        executor_.Run(program_, scope_,
                      {{"x", x_}, {"skip", at::full({1}, skips, at::kBool)}},
                      {"w@GRAD"}));
    const at::Tensor velocity = skips ? v : v * 0.5 + got[0];
    const at::Tensor step = skips ? got[0] : got[0] + velocity;
    EXPECT_TRUE(at::allclose(scope_.Get("v"), velocity));
    EXPECT_TRUE(at::allclose(scope_.Get("w"), w - step * 0.1));
  }
}

TEST_F(TrainingTest, OneParameterUpdatedTwiceInAStep) {
  AppendSgd();
  AppendSgd();
  at::Tensor before = scope_.Get("w").clone();
  ASSERT_OK_AND_ASSIGN(auto got, Run({"w@GRAD"}));
  EXPECT_TRUE(at::allclose(scope_.Get("w"), before - got[0] * 0.2));
}

TEST_F(TrainingTest, AViewOfAParameterKeepsTheOldValues) {
  AddVariable("old", {3, 4});
  block().Append(
      {.type = "reshape2",
       .inputs = {{"X", {"w"}}},
       .outputs = {{"Out", {"old"}}},
       .attrs = {
           {"shape", {program::AttrKind::kInts, std::vector<int64_t>{3, 4}}}}});
  AppendSgd();
  at::Tensor before = scope_.Get("w").clone();
  ASSERT_OK_AND_ASSIGN(auto got, Run({"old", "w"}));
  EXPECT_TRUE(at::equal(got[0], before.reshape({3, 4})));
  EXPECT_FALSE(at::equal(got[1], before));
}

TEST_F(TrainingTest, FeedsAreNeverWritten) {
  AppendSgd();
  at::Tensor w = at::randn({4, 3}), before = w.clone();
  ASSERT_OK_AND_ASSIGN(
      auto got, executor_.Run(program_, scope_, {{"x", x_}, {"w", w}}, {"w"}));
  EXPECT_TRUE(at::equal(w, before));
  EXPECT_FALSE(at::equal(got[0], before));
}

TEST_F(TrainingTest, AFeedCanBeFetched) {
  ASSERT_OK_AND_ASSIGN(auto got, Run({"x"}));
  EXPECT_TRUE(at::equal(got[0], x_));
  EXPECT_NE(got[0].data_ptr(), x_.data_ptr());
}

TEST_F(TrainingTest, MissingDataNamesItsReader) {
  Status status = executor_.Run(program_, scope_, {}, {"loss"}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("net.py:5: matmul_v2: variable x has no value: it is "
                        "data and must be fed"));
}

TEST_F(TrainingTest, AChangedProgramIsCompiledAnew) {
  at::Tensor before = scope_.Get("w").clone();
  ASSERT_OK(Run({"loss"}).status());
  EXPECT_TRUE(at::equal(scope_.Get("w"), before));
  AppendSgd();
  ASSERT_OK(Run({"loss"}).status());
  EXPECT_FALSE(at::equal(scope_.Get("w"), before));
}

}  // namespace
}  // namespace fleet::exec
