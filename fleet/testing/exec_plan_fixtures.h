// SPDX-License-Identifier: Apache-2.0

// For tests of plans: programs are built op by op and run both ways.

#ifndef FLEET_TESTING_EXEC_PLAN_FIXTURES_H_
#define FLEET_TESTING_EXEC_PLAN_FIXTURES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/exec/plan.h"
#include "fleet/exec/schedule.h"
#include "fleet/ops/conv.h"
#include "fleet/ops/gemm.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"

namespace fleet::exec {

using program::AttrKind;
using program::AttrMap;
using program::AttrValue;
using program::DType;

inline AttrValue Int(int64_t value) { return {AttrKind::kInt, value}; }
inline AttrValue Float(double value) { return {AttrKind::kFloat, value}; }
inline AttrValue Bool(bool value) { return {AttrKind::kBool, value}; }
inline AttrValue Ints(std::vector<int64_t> value) {
  return {AttrKind::kInts, value};
}

// Up to rounding, by the largest of all elements.
inline bool Near(const at::Tensor& got, const at::Tensor& wanted) {
  if (got.sizes() != wanted.sizes()) return false;
  if (wanted.numel() == 0) return true;
  const double largest = wanted.abs().max().item<double>();
  return (got - wanted).abs().max().item<double>() <= 1e-4 * largest + 1e-6;
}

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() { program::DefineAllOps(registry_); }
  program::Block& block() { return program_->block(0); }

  // Begins a program of its own.
  void Clear() {
    program_ = std::make_unique<program::Program>();
    kept_.clear();
    parameters_.clear();
  }

  std::string Data(const std::string& name, program::Dims dims,
                   DType dtype = DType::kFloat32) {
    block().AddVariable({.name = name,
                         .type = {dtype, std::move(dims)},
                         .stop_gradient = dtype != DType::kFloat32,
                         .is_data = true});
    return name;
  }
  std::string Parameter(const std::string& name, program::Dims dims) {
    block().AddVariable({.name = name,
                         .type = {DType::kFloat32, dims},
                         .persistable = true,
                         .is_parameter = true});
    kept_[name] = at::randn(dims) * 0.5;
    parameters_.push_back(name);
    return name;
  }
  std::string Scalar(const std::string& name, double value) {
    block().AddVariable({.name = name,
                         .type = {DType::kFloat32, {1}},
                         .persistable = true,
                         .stop_gradient = true});
    kept_[name] = at::full({1}, value);
    return name;
  }
  // Appends an operation and returns its first output.
  std::string Op(const std::string& type, program::Slots inputs,
                 std::vector<std::string> out_slots, AttrMap attrs = {}) {
    program::Slots outputs;
    for (const std::string& slot : out_slots) {
      outputs.push_back({slot, {"v" + std::to_string(++last_)}});
    }
    const std::string out = outputs[0].arguments[0];
    program::Operation& op =
        block().Append({.type = type,
                        .inputs = std::move(inputs),
                        .outputs = std::move(outputs),
                        .attrs = std::move(attrs),
                        .made_at = "net.py:" + std::to_string(last_)});
    EXPECT_OK(block().InferTypes(registry_, op));
    return out;
  }
  std::string Unary(const std::string& type, const std::string& x,
                    AttrMap attrs = {}) {
    return Op(type, {{"X", {x}}}, {"Out"}, std::move(attrs));
  }
  std::string Binary(const std::string& type, const std::string& x,
                     const std::string& y, AttrMap attrs = {}) {
    return Op(type, {{"X", {x}}, {"Y", {y}}}, {"Out"}, std::move(attrs));
  }
  std::string Fc(const std::string& x, const std::string& name, int64_t in,
                 int64_t out, const std::string& activation) {
    std::string y = Binary("mul", x, Parameter(name + ".w", {in, out}));
    y = Binary("elementwise_add", y, Parameter(name + ".b", {out}),
               {{"axis", Int(1)}});
    return activation.empty() ? y : Unary(activation, y);
  }
  void Backward(const std::string& loss) {
    ASSERT_OK(
        plan::AppendBackward(registry_, *program_, {{loss, ""}}, {}).status());
  }
  void Sgd(double rate) {
    Scalar("rate", rate);
    for (const std::string& name : parameters_) {
      block().Append({.type = "sgd",
                      .inputs = {{"Param", {name}},
                                 {"Grad", {name + "@GRAD"}},
                                 {"LearningRate", {"rate"}}},
                      .outputs = {{"ParamOut", {name}}}});
    }
  }

  // Runs both ways for some steps from the same state; everything must agree.
  // Returns the planned schedule.
  Schedule* Compare(const std::function<std::vector<at::Tensor>()>& feed,
                    const std::vector<std::string>& feeds,
                    const std::vector<std::string>& fetches, int steps = 5) {
    Scope plain_scope, planned_scope;
    for (const auto& [name, tensor] : kept_) {
      plain_scope.Get(name) = tensor.clone();
      planned_scope.Get(name) = tensor.clone();
    }
    auto plain =
        Schedule::Compile(*program_, library_, extensions_, feeds, fetches);
    EXPECT_OK(plain.status());
    (*plain)->set_planning(false);
    auto planned =
        Schedule::Compile(*program_, library_, extensions_, feeds, fetches);
    EXPECT_OK(planned.status());
    schedule_ = *std::move(planned);
    for (int i = 0; i < steps; ++i) {
      const std::vector<at::Tensor> values = feed();
      auto wanted = (*plain)->Run(plain_scope, values, {});
      auto got = schedule_->Run(planned_scope, values, {});
      EXPECT_OK(wanted.status());
      EXPECT_OK(got.status());
      if (!wanted.ok() || !got.ok()) return schedule_.get();
      for (size_t k = 0; k < fetches.size(); ++k) {
        EXPECT_TRUE(agrees_((*got)[k], (*wanted)[k]))
            << fetches[k] << " in step " << i << "\n"
            << (*got)[k] << "\n"
            << (*wanted)[k];
      }
      for (const auto& [name, tensor] : kept_) {
        EXPECT_TRUE(agrees_(planned_scope.Get(name), plain_scope.Get(name)))
            << name << " after step " << i;
      }
    }
    return schedule_.get();
  }

  // No step of the last run was a general one. On a machine without fast
  // products these are, and then nothing is said.
  static void ExpectAllDirect(const Schedule& schedule) {
    ASSERT_NE(schedule.last_plan(), nullptr);
    if (!ops::GemmIsFast() || !ops::ConvIsFast()) return;
    EXPECT_EQ(schedule.last_plan()->num_general(), 0);
  }

  program::OpRegistry registry_;
  std::unique_ptr<program::Program> program_ =
      std::make_unique<program::Program>();
  ops::OpLibrary library_;
  Extensions extensions_;
  std::map<std::string, at::Tensor> kept_;
  std::vector<std::string> parameters_;
  std::unique_ptr<Schedule> schedule_;
  // When two results are the same.
  std::function<bool(const at::Tensor&, const at::Tensor&)> agrees_ = Near;
  int last_ = 0;
};

}  // namespace fleet::exec

#endif  // FLEET_TESTING_EXEC_PLAN_FIXTURES_H_
