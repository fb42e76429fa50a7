// SPDX-License-Identifier: Apache-2.0

// Builds a program, differentiates it and trains with it:
//
//   build/release/bin/train_static [STEPS]
//
// The network is that of the static scripts: two layers of tanh and a softmax
// over two classes. It learns whether the sum of its input is positive.

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "fleet/base/check.h"
#include "fleet/exec/executor.h"
#include "fleet/plan/backward.h"
#include "fleet/program/op_role.h"
#include "fleet/program/program.h"

namespace {

using fleet::Status;
using fleet::program::AttrKind;
using fleet::program::AttrMap;
using fleet::program::Dims;
using fleet::program::DType;
using fleet::program::Program;
using fleet::program::Slots;

// A program and, beside it, the one that gives its parameters their first
// values.
class Network {
 public:
  explicit Network(const fleet::program::OpRegistry& ops) : ops_(ops) {}

  Program main;
  Program startup;

  std::string Data(const std::string& name, DType dtype, const Dims& dims) {
    main.block(0).AddVariable({.name = name,
                               .type = {dtype, dims},
                               .stop_gradient = true,
                               .is_data = true});
    return name;
  }

  // Appends an operation whose output is a new variable; returns its name.
  std::string Append(const std::string& type, Slots inputs,
                     const std::string& out_slot, AttrMap attrs = {}) {
    const std::string out = type + "_" + std::to_string(++count_) + ".out";
    auto& op = main.block(0).Append({.type = type,
                                     .inputs = std::move(inputs),
                                     .outputs = {{out_slot, {out}}},
                                     .attrs = std::move(attrs)});
    const Status status = main.block(0).InferTypes(ops_, op);
    FLEET_CHECK(status.ok(), status.message());
    return out;
  }

  // One fully connected layer.
  std::string Fc(const std::string& x, int64_t in, int64_t out,
                 const std::string& activation) {
    const std::string name = "fc_" + std::to_string(++count_);
    const double deviation = 1.0 / static_cast<double>(in);
    std::string y = Append(
        "mul",
        {{"X", {x}}, {"Y", {Parameter(name + ".w", {in, out}, deviation)}}},
        "Out");
    y = Append("elementwise_add",
               {{"X", {y}}, {"Y", {Parameter(name + ".b", {out}, 0)}}}, "Out",
               {{"axis", {AttrKind::kInt, int64_t{1}}}});
    return Append(activation, {{"X", {y}}}, "Out");
  }

  // Gradients of `loss`, and plain descent along them.
  Status Minimize(const std::string& loss, double learning_rate) {
    RETURN_IF_ERROR(
        fleet::plan::AppendBackward(ops_, main, {{loss, ""}}, {}).status());
    Persistable("learning_rate", {1}, "fill_constant",
                {{"value", {AttrKind::kFloat, learning_rate}}});
    for (const std::string& name : parameters_) {
      main.block(0).Append(
          {.type = "sgd",
           .inputs = {{"Param", {name}},
                      {"Grad", {fleet::program::GradName(name)}},
                      {"LearningRate", {"learning_rate"}}},
           .outputs = {{"ParamOut", {name}}}});
    }
    return fleet::OkStatus();
  }

 private:
  std::string Parameter(const std::string& name, const Dims& dims,
                        double deviation) {
    Persistable(name, dims, "gaussian_random",
                {{"std", {AttrKind::kFloat, deviation}}});
    parameters_.push_back(name);
    return name;
  }

  // A variable of both programs, which `initializer` fills in the startup one.
  void Persistable(const std::string& name, const Dims& dims,
                   const std::string& initializer, AttrMap attrs) {
    for (Program* program : {&main, &startup}) {
      program->block(0).AddVariable(
          {.name = name, .type = {DType::kFloat32, dims}, .persistable = true});
    }
    attrs["shape"] = {AttrKind::kLongs, dims};
    startup.block(0).Append({.type = initializer,
                             .outputs = {{"Out", {name}}},
                             .attrs = std::move(attrs)});
  }

  const fleet::program::OpRegistry& ops_;
  std::vector<std::string> parameters_;
  int count_ = 0;
};

Status Train(int steps) {
  at::manual_seed(1);
  const fleet::ops::OpLibrary library;
  Network net(library.definitions());
  const std::string x = net.Data("x", DType::kFloat32, {-1, 32});
  const std::string y = net.Data("y", DType::kInt64, {-1, 1});
  std::string hidden = net.Fc(x, 32, 128, "tanh");
  hidden = net.Fc(hidden, 128, 128, "tanh");
  const std::string prediction = net.Fc(hidden, 128, 2, "softmax");
  const std::string losses =
      net.Append("cross_entropy", {{"X", {prediction}}, {"Label", {y}}}, "Y");
  const std::string loss = net.Append("mean", {{"X", {losses}}}, "Out");
  RETURN_IF_ERROR(net.Minimize(loss, 0.5));

  fleet::exec::Scope scope;
  fleet::exec::Executor executor(library, {});
  RETURN_IF_ERROR(executor.Run(net.startup, scope, {}, {}).status());
  for (int step = 0; step <= steps; ++step) {
    const at::Tensor batch = at::randn({128, 32});
    const at::Tensor label = (batch.sum(1, true) > 0).to(at::kLong);
    ASSIGN_OR_RETURN(
        auto fetched,
        executor.Run(net.main, scope, {{x, batch}, {y, label}}, {loss}));
    if (step % 100 == 0) {
      std::cout << "step " << step << " loss " << fetched[0].item<float>()
                << "\n";
    }
  }
  return fleet::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Train(argc > 1 ? std::atoi(argv[1]) : 500);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
