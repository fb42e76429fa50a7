// SPDX-License-Identifier: Apache-2.0

// For tests: a small model as a program, and programs as text.

#ifndef FLEET_TESTING_PLAN_FIXTURES_H_
#define FLEET_TESTING_PLAN_FIXTURES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/op_role.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// The arguments of all slots: "x, y".
inline std::string Names(const program::Slots& slots) {
  std::string list;
  for (const program::Slot& slot : slots) {
    for (const std::string& name : slot.arguments) {
      list += (list.empty() ? "" : ", ") + name;
    }
  }
  return list;
}

// One line for each operation from number `begin` on:
// "a, b = type(x, y) bucket=0".
inline std::string Print(const program::Program& program, size_t begin = 0) {
  std::string text;
  const program::Block& block = program.block(0);
  for (size_t i = begin; i < block.num_ops(); ++i) {
    const program::Operation& op = block.op(i);
    text += Names(op.outputs) + " = " + op.type + "(" + Names(op.inputs) + ")";
    if (const program::AttrValue* bucket = op.attr("bucket")) {
      text += " bucket=" + std::to_string(std::get<int64_t>(bucket->value));
    }
    if (op.attr("blocking") != nullptr) text += " blocking";
    if (op.attr("brief") != nullptr) text += " brief";
    text += "\n";
  }
  return text;
}

// relu layers without bias, the mean as loss, backward, and an update for each
// parameter: w0, w1, ...
class ModelProgram {
 public:
  struct Layer {
    int64_t inputs;
    int64_t outputs;
    program::DType dtype = program::DType::kFloat32;
  };

  explicit ModelProgram(const std::vector<Layer>& layers) {
    program::DefineAllOps(registry_);
    block().AddVariable({.name = "x",
                         .type = {layers[0].dtype, {-1, layers[0].inputs}},
                         .stop_gradient = true,
                         .is_data = true});
    std::string last = "x";
    for (size_t i = 0; i < layers.size(); ++i) {
      last = AddLayer(i, layers[i], last);
    }
    Add("reduce_mean", {{"X", {last}}}, {{"Out", {"loss"}}});
    AddBackward("loss");
  }

  program::Program& main() { return main_; }
  program::Program& startup() { return startup_; }
  program::Block& block() { return main_.block(0); }

  program::Operation& Add(const std::string& type, program::Slots inputs,
                          program::Slots outputs) {
    program::Operation& op = block().Append({.type = type,
                                             .inputs = std::move(inputs),
                                             .outputs = std::move(outputs)});
    EXPECT_OK(block().InferTypes(registry_, op));
    return op;
  }

  void AddBackward(const std::string& loss) {
    auto gradients = plan::AppendBackward(registry_, main_, {{loss, ""}}, {});
    ASSERT_OK(gradients.status());
    gradients_ = *std::move(gradients);
  }

  // One for each parameter, of the gradient that `gradient_of` names.
  void AddUpdates(const std::string& type = "sgd") {
    for (const std::string& name : parameters_) {
      program::Operation& op = Add(type,
                                   {{"Param", {name}},
                                    {"LearningRate", {"rate"}},
                                    {"Grad", {gradients_[name]}}},
                                   {{"ParamOut", {name}}});
      program::SetRole(op, program::OpRole::kOptimize);
    }
  }

  const std::string& gradient_of(const std::string& name) {
    return gradients_[name];
  }

 private:
  std::string AddLayer(size_t i, const Layer& layer, const std::string& input) {
    const std::string n = std::to_string(i);
    const program::Variable parameter{
        .name = "w" + n,
        .type = {layer.dtype, {layer.inputs, layer.outputs}},
        .persistable = true,
        .is_parameter = true};
    block().AddVariable(parameter);
    if (i == 0) {
      for (program::Program* p : {&main_, &startup_}) {
        p->block(0).AddVariable({.name = "rate",
                                 .type = {program::DType::kFloat32, {1}},
                                 .persistable = true,
                                 .stop_gradient = true});
      }
      startup_.block(0).Append(
          {.type = "fill_constant", .outputs = {{"Out", {"rate"}}}});
    }
    startup_.block(0).AddVariable(parameter);
    startup_.block(0).Append(
        {.type = "uniform_random", .outputs = {{"Out", {parameter.name}}}});
    parameters_.push_back(parameter.name);
    Add("matmul_v2", {{"X", {input}}, {"Y", {parameter.name}}},
        {{"Out", {"h" + n}}});
    Add("relu", {{"X", {"h" + n}}}, {{"Out", {"r" + n}}});
    return "r" + n;
  }

  program::OpRegistry registry_;
  program::Program main_;
  program::Program startup_;
  std::vector<std::string> parameters_;
  std::map<std::string, std::string> gradients_;
};

}  // namespace fleet::plan

#endif  // FLEET_TESTING_PLAN_FIXTURES_H_
