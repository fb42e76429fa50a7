// SPDX-License-Identifier: Apache-2.0

// What differs in a schedule for a GPU, run on the CPU.

#include "fleet/exec/schedule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"

namespace fleet::exec {
namespace {

using program::DType;
using Names = std::vector<std::string>;

class GpuSchedule : public ::testing::Test {
 protected:
  GpuSchedule() { program::DefineAllOps(registry_); }

  program::Block& block() { return program_.block(0); }
  program::Variable& AddVariable(const std::string& name, program::Dims dims) {
    return block().AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, program::Slots inputs,
              program::Slots outputs) {
    ASSERT_OK(block().InferTypes(
        registry_, block().Append({.type = type,
                                   .inputs = std::move(inputs),
                                   .outputs = std::move(outputs)})));
  }
  // loss = mean(tanh(x w + b)), differentiated. `bias`: of this shape.
  void MakeNet(program::Dims data, program::Dims bias) {
    AddVariable("x", std::move(data)).is_data = true;
    block().Find("x")->stop_gradient = true;
    AddVariable("w", {4, 3}).persistable = true;
    AddVariable("b", std::move(bias)).persistable = true;
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
    Append("elementwise_add", {{"X", {"h"}}, {"Y", {"b"}}}, {{"Out", {"s"}}});
    Append("tanh", {{"X", {"s"}}}, {{"Out", {"y"}}});
    Append("reduce_mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
    ASSERT_OK(
        plan::AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
  }
  // How many steps fewer there are than for the CPU; both must give the same.
  size_t StepsSaved(const at::Tensor& x, const Names& fetches) {
    auto make = [&](Schedule::Target target) {
      auto made =
          Schedule::Compile(program_, library_, {}, {"x"}, fetches, target);
      EXPECT_OK(made.status());
      (*made)->set_planning(false);
      return *std::move(made);
    };
    auto plain = make(Schedule::Target::kAny);
    auto fused = make(Schedule::Target::kGpu);
    const std::vector<at::Tensor> feeds = {x};
    for (int run = 0; run < 2; ++run) {
      auto wanted = plain->Run(scope_, feeds, {});
      auto got = fused->Run(scope_, feeds, {});
      EXPECT_OK(wanted.status());
      EXPECT_OK(got.status());
      for (size_t i = 0; i < fetches.size(); ++i) {
        EXPECT_TRUE(at::allclose((*got)[i], (*wanted)[i], 1e-5, 1e-7))
            << fetches[i];
      }
    }
    return plain->num_steps() - fused->num_steps();
  }

  program::OpRegistry registry_;
  program::Program program_;
  ops::OpLibrary library_;
  Scope scope_;
};

const Names kAll = {"loss", "w@GRAD", "b@GRAD"};

TEST_F(GpuSchedule, AProductAndItsBiasAreOneStep) {
  MakeNet({-1, 4}, {3});
  scope_.Get("w") = at::randn({4, 3});
  scope_.Get("b") = at::randn({3});
  EXPECT_EQ(StepsSaved(at::randn({5, 4}), kAll), 1u);
}

TEST_F(GpuSchedule, SoAreThoseOfSeveralMatrices) {
  MakeNet({-1, 6, 4}, {3});
  scope_.Get("w") = at::randn({4, 3});
  scope_.Get("b") = at::randn({3});
  EXPECT_EQ(StepsSaved(at::randn({2, 6, 4}), kAll), 1u);
}

TEST_F(GpuSchedule, AProductThatSomebodyWantsStaysAlone) {
  MakeNet({-1, 4}, {3});
  scope_.Get("w") = at::randn({4, 3});
  scope_.Get("b") = at::randn({3});
  EXPECT_EQ(StepsSaved(at::randn({5, 4}), {"loss", "h"}), 0u);
}

TEST_F(GpuSchedule, ASumThatIsNoBiasStaysAlone) {
  MakeNet({5, 4}, {5, 3});
  scope_.Get("w") = at::randn({4, 3});
  scope_.Get("b") = at::randn({5, 3});
  EXPECT_EQ(StepsSaved(at::randn({5, 4}), kAll), 0u);
}

}  // namespace
}  // namespace fleet::exec
