// SPDX-License-Identifier: Apache-2.0
#include "fleet/distributed_program.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/op_role.h"
#include "fleet/program/text.h"
#include "fleet/testing/job_fixtures.h"

namespace fleet {
namespace {

using at::Tensor;
using program::Program;
using testing::HasSubstr;

constexpr int kSteps = 20;

// mean((tanh(x u) v - y)^2), with momentum.
struct Training {
  explicit Training(const program::OpRegistry& registry, double start) {
    const std::string value = std::to_string(start);
    auto made = program::ParseText(
        "{ // block 0\n"
        "    persist trainable param u : LOD_TENSOR.shape(3, "
        "4).dtype(float32)\n"
        "    persist trainable param v : LOD_TENSOR.shape(4, "
        "1).dtype(float32)\n"
        "    persist var u_velocity : LOD_TENSOR.shape(3, 4).dtype(float32)\n"
        "    persist var v_velocity : LOD_TENSOR.shape(4, 1).dtype(float32)\n"
        "    persist var rate : LOD_TENSOR.shape(1).dtype(float32)\n"
        "    {Out=['u']} = fill_constant(inputs={}, dtype = 5, shape = [3, 4], "
        "value = " +
        value +
        ")\n"
        "    {Out=['v']} = fill_constant(inputs={}, dtype = 5, shape = [4, 1], "
        "value = " +
        value +
        ")\n"
        "    {Out=['u_velocity']} = fill_constant(inputs={}, dtype = 5, "
        "shape = [3, 4], value = 0.0)\n"
        "    {Out=['v_velocity']} = fill_constant(inputs={}, dtype = 5, "
        "shape = [4, 1], value = 0.0)\n"
        "    {Out=['rate']} = fill_constant(inputs={}, dtype = 5, shape = [1], "
        "value = 0.1)\n"
        "}\n");
    EXPECT_OK(made.status());
    startup = *std::move(made);
    made = program::ParseText(
        "{ // block 0\n"
        "    persist trainable param u : LOD_TENSOR.shape(3, "
        "4).dtype(float32)\n"
        "    persist trainable param v : LOD_TENSOR.shape(4, "
        "1).dtype(float32)\n"
        "    persist var u_velocity : LOD_TENSOR.shape(3, 4).dtype(float32)"
        ".stop_gradient(True)\n"
        "    persist var v_velocity : LOD_TENSOR.shape(4, 1).dtype(float32)"
        ".stop_gradient(True)\n"
        "    persist var rate : LOD_TENSOR.shape(1).dtype(float32)"
        ".stop_gradient(True)\n"
        "    var x : LOD_TENSOR.shape(-1, 3).dtype(float32)"
        ".stop_gradient(True).data(True)\n"
        "    var y : LOD_TENSOR.shape(-1, 1).dtype(float32)"
        ".stop_gradient(True).data(True)\n"
        "}\n");
    EXPECT_OK(made.status());
    main = *std::move(made);
    auto add = [&](const std::string& type, program::Slots inputs,
                   program::Slots outputs, program::AttrMap attrs = {}) {
      program::Operation& op =
          main->block(0).Append({.type = type,
                                 .inputs = std::move(inputs),
                                 .outputs = std::move(outputs),
                                 .attrs = std::move(attrs)});
      EXPECT_OK(main->block(0).InferTypes(registry, op));
      return &op;
    };
    add("matmul_v2", {{"X", {"x"}}, {"Y", {"u"}}}, {{"Out", {"h"}}});
    add("tanh", {{"X", {"h"}}}, {{"Out", {"t"}}});
    add("matmul_v2", {{"X", {"t"}}, {"Y", {"v"}}}, {{"Out", {"z"}}});
    add("elementwise_sub", {{"X", {"z"}}, {"Y", {"y"}}}, {{"Out", {"d"}}});
    add("square", {{"X", {"d"}}}, {{"Out", {"s"}}});
    add("reduce_mean", {{"X", {"s"}}}, {{"Out", {"loss"}}});
    auto gradients = plan::AppendBackward(registry, *main, {{"loss", ""}}, {});
    EXPECT_OK(gradients.status());
    for (const std::string name : {"u", "v"}) {
      program::SetRole(
          *add("momentum",
               {{"Param", {name}},
                {"Grad", {gradients->at(name)}},
                {"Velocity", {name + "_velocity"}},
                {"LearningRate", {"rate"}}},
               {{"ParamOut", {name}}, {"VelocityOut", {name + "_velocity"}}},
               {{"mu", {program::AttrKind::kFloat, 0.9}}}),
          program::OpRole::kOptimize);
    }
  }

  std::unique_ptr<Program> main;
  std::unique_ptr<Program> startup;
};

Tensor X() { return at::linspace(-1, 1, 36).view({12, 3}); }
Tensor Y() { return at::sin(X().sum(1, true)); }

// By hand, with LibTorch's autograd, on the whole batch.
std::pair<Tensor, Tensor> TrainAlone() {
  Tensor u = at::full({3, 4}, 0.3).requires_grad_();
  Tensor v = at::full({4, 1}, 0.3).requires_grad_();
  std::vector<Tensor> velocity = {at::zeros({3, 4}), at::zeros({4, 1})};
  for (int step = 0; step < kSteps; ++step) {
    Tensor d = at::matmul(at::tanh(at::matmul(X(), u)), v) - Y();
    (d * d).mean().backward();
    int i = 0;
    for (Tensor* w : {&u, &v}) {
      velocity[i].mul_(0.9).add_(w->grad());
      w->data().sub_(velocity[i++], 0.1);
      w->mutable_grad().reset();
    }
  }
  return {u.detach(), v.detach()};
}

TEST(DistributedProgram, TrainsAsOneProcessWithTheJoinedBatch) {
  const auto [u, v] = TrainAlone();
  for (int size : {1, 2, 3}) {
    std::vector<Tensor> results(size);
    RunJob(size, [&, u = u, v = v](Job& job) {
      ops::OpLibrary library;
      // Others start elsewhere, and begin as rank 0 all the same.
      Training training(library.definitions(), job.rank() == 0 ? 0.3 : 0.7);
      ASSERT_OK(DistributeProgram(job, *training.main, *training.startup));
      const std::string text = program::ToString(*training.main);
      EXPECT_EQ(text.find("c_allreduce_start") == std::string::npos, size == 1);
      exec::Executor executor(library, {});
      job.AddTo(executor);
      exec::Scope scope;
      ASSERT_OK(executor.Run(*training.startup, scope, {}, {}).status());
      const int64_t share = 12 / size;
      Tensor x = X().narrow(0, share * job.rank(), share).contiguous();
      Tensor y = Y().narrow(0, share * job.rank(), share).contiguous();
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_OK(
            executor.Run(*training.main, scope, {{"x", x}, {"y", y}}, {"loss"})
                .status());
      }
      EXPECT_TRUE(at::allclose(scope.Get("u"), u, 1e-6, 1e-7));
      EXPECT_TRUE(at::allclose(scope.Get("v"), v, 1e-6, 1e-7));
      results[job.rank()] = scope.Get("u").clone();
    });
    for (const Tensor& result : results) {
      EXPECT_TRUE(at::equal(result, results[0]));
    }
  }
}

TEST(DistributedProgram, OnlyTheGroupOfAllRanks) {
  ASSERT_OK_AND_ASSIGN(auto job, Job::Init());
  ops::OpLibrary library;
  exec::Executor executor(library, {});
  job->AddTo(executor);
  auto program = program::ParseText(
      "{ // block 0\n"
      "    var x : LOD_TENSOR.shape(-1).dtype(float32).data(True)\n"
      "    var out : LOD_TENSOR.shape(-1).dtype(float32)\n"
      "    {Out=['out']} = c_allreduce_sum(inputs={X=['x']}, ring_id = 2)\n"
      "}\n");
  ASSERT_OK(program.status());
  exec::Scope scope;
  Status status =
      executor.Run(**program, scope, {{"x", X().view(-1)}}, {"out"}).status();
  EXPECT_THAT(status.message(), HasSubstr("there is no group 2"));
  EXPECT_OK(job->Finish());
}

}  // namespace
}  // namespace fleet
