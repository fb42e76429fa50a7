// SPDX-License-Identifier: Apache-2.0

// For tests: a small model with an embedding, as a user builds it, and workers
// that train it with servers in this process.

#ifndef FLEET_TESTING_PARAMETER_SERVER_FIXTURES_H_
#define FLEET_TESTING_PARAMETER_SERVER_FIXTURES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/parameter_server.h"
#include "fleet/plan/backward.h"
#include "fleet/program/op_role.h"
#include "fleet/program/text.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet {

inline constexpr int64_t kNumIds = 50;
inline constexpr int64_t kDim = 4;

// Rows of two ids, a layer of 8 with tanh, a number; mean squared error. `rule`
// is the type of the update operations.
struct CtrTraining {
  CtrTraining(const program::OpRegistry& registry, std::string rule,
              double rate = 0.1)
      : rule_(std::move(rule)), registry_(registry) {
    Start();
    AddParameter("emb", {kNumIds, kDim});
    AddParameter("u", {2 * kDim, 8});
    AddParameter("v", {8, 1});
    Fill("rate", {1}, rate);
    for (const char* name : {"ids", "more"}) {
      Declare(name, "var", "(-1, 1)", "int64", true);
    }
    Declare("y", "var", "(-1, 1)", "float32", true);
    Finish();
    const program::AttrMap sparse = {
        {"is_sparse", {program::AttrKind::kBool, true}}};
    Add("lookup_table", {{"W", {"emb"}}, {"Ids", {"ids"}}}, {{"Out", {"a"}}},
        sparse);
    Add("lookup_table", {{"W", {"emb"}}, {"Ids", {"more"}}}, {{"Out", {"b"}}},
        sparse);
    Add("concat", {{"X", {"a", "b"}}}, {{"Out", {"rows"}}},
        {{"axis", {program::AttrKind::kInt, int64_t{1}}}});
    Add("matmul_v2", {{"X", {"rows"}}, {"Y", {"u"}}}, {{"Out", {"h"}}});
    Add("tanh", {{"X", {"h"}}}, {{"Out", {"t"}}});
    Add("matmul_v2", {{"X", {"t"}}, {"Y", {"v"}}}, {{"Out", {"z"}}});
    Add("elementwise_sub", {{"X", {"z"}}, {"Y", {"y"}}}, {{"Out", {"d"}}});
    Add("square", {{"X", {"d"}}}, {{"Out", {"s"}}});
    Add("reduce_mean", {{"X", {"s"}}}, {{"Out", {"loss"}}});
    auto gradients = plan::AppendBackward(registry, *main, {{"loss", ""}}, {});
    EXPECT_OK(gradients.status());
    for (const char* name : {"emb", "u", "v"}) {
      AddUpdate(name, gradients->at(name));
    }
  }

  std::unique_ptr<program::Program> main;
  std::unique_ptr<program::Program> startup;

 private:
  using Shape = std::vector<int64_t>;

  // State of a rule: slot of the operation, variable, shape, first value.
  struct State {
    const char* slot;
    bool scalar;
    double initial;
  };
  std::vector<State> StateOfRule() const {
    if (rule_ == "momentum") return {{"Velocity", false, 0.0}};
    if (rule_ == "adagrad") return {{"Moment", false, 0.0}};
    if (rule_ == "adam") {
      return {{"Moment1", false, 0.0},
              {"Moment2", false, 0.0},
              {"Beta1Pow", true, 0.9},
              {"Beta2Pow", true, 0.999}};
    }
    return {};
  }

  void Start() { main_text_ = startup_text_ = "{ // block 0\n"; }
  void Declare(const std::string& name, const std::string& kind,
               const std::string& shape, const std::string& dtype, bool data) {
    const std::string line = "    " + kind + " " + name +
                             " : LOD_TENSOR.shape" + shape + ".dtype(" + dtype +
                             ")";
    main_text_ += line;
    if (kind != "persist trainable param") {
      main_text_ += ".stop_gradient(True)";
    }
    if (data) main_text_ += ".data(True)";
    main_text_ += "\n";
    if (!data) startup_text_ += line + "\n";
  }
  static std::string ShapeText(const Shape& shape) {
    std::string text;
    for (int64_t dim : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(dim);
    }
    return text;
  }
  void Fill(const std::string& name, const Shape& shape, double value) {
    Declare(name, "persist var", "(" + ShapeText(shape) + ")", "float32",
            false);
    fills_ += "    {Out=['" + name +
              "']} = fill_constant(inputs={}, dtype = 5, shape = [" +
              ShapeText(shape) + "], value = " + std::to_string(value) + ")\n";
  }
  void AddParameter(const std::string& name, const Shape& shape) {
    Declare(name, "persist trainable param", "(" + ShapeText(shape) + ")",
            "float32", false);
    fills_ += "    {Out=['" + name +
              "']} = uniform_random(inputs={}, dtype = 5, max = 0.5, min = "
              "-0.5, seed = 3, shape = [" +
              ShapeText(shape) + "])\n";
    for (const State& state : StateOfRule()) {
      Fill(name + "_" + state.slot, state.scalar ? Shape{1} : shape,
           state.initial);
    }
  }
  void Finish() {
    auto made = program::ParseText(startup_text_ + fills_ + "}\n");
    EXPECT_OK(made.status());
    startup = *std::move(made);
    made = program::ParseText(main_text_ + "}\n");
    EXPECT_OK(made.status());
    main = *std::move(made);
  }
  program::Operation& Add(const std::string& type, program::Slots inputs,
                          program::Slots outputs, program::AttrMap attrs = {}) {
    program::Operation& op =
        main->block(0).Append({.type = type,
                               .inputs = std::move(inputs),
                               .outputs = std::move(outputs),
                               .attrs = std::move(attrs)});
    EXPECT_OK(main->block(0).InferTypes(registry_, op));
    return op;
  }
  void AddUpdate(const std::string& name, const std::string& gradient) {
    program::Slots inputs = {
        {"Param", {name}}, {"Grad", {gradient}}, {"LearningRate", {"rate"}}};
    program::Slots outputs = {{"ParamOut", {name}}};
    for (const State& state : StateOfRule()) {
      inputs.push_back({state.slot, {name + "_" + state.slot}});
      outputs.push_back(
          {std::string(state.slot) + "Out", {name + "_" + state.slot}});
    }
    program::AttrMap attrs;
    if (rule_ == "momentum") attrs["mu"] = {program::AttrKind::kFloat, 0.9};
    program::SetRole(
        Add(rule_, std::move(inputs), std::move(outputs), std::move(attrs)),
        program::OpRole::kOptimize);
  }

  const std::string rule_;
  const program::OpRegistry& registry_;
  std::string main_text_;
  std::string startup_text_;
  std::string fills_;
};

// Examples [begin, begin + count) of a step: other ids in every step, some of
// them twice.
inline std::vector<exec::Feed> CtrBatch(int step, int64_t begin,
                                        int64_t count) {
  const at::Tensor i = at::arange(begin, begin + count).view({-1, 1});
  return {{"ids", (i * 7 + step * 3).remainder(kNumIds)},
          {"more", (i + step).remainder(11)},
          {"y", at::sin((i + step).to(at::kFloat))}};
}

// A worker's executor, with the programs of a user that are made its own.
class CtrWorker final {
 public:
  CtrWorker(served::PsCluster& cluster, int index, plan::PsMode mode,
            const std::string& rule, WorkerOptions options = {},
            double rate = 0.1)
      : training(library.definitions(), rule, rate) {
    role.index = index;
    role.worker_num = cluster.num_workers();
    role.server_num = static_cast<int>(cluster.num_servers());
    plan::ParameterServerStrategy strategy;
    strategy.mode = mode;
    auto made = plan::ServeParameters(*training.main, *training.startup,
                                      strategy, role);
    EXPECT_OK(made.status());
    plan = *std::move(made);
    options.mode = mode;
    options.timeout = std::chrono::seconds(60);
    auto connected =
        Job::Init(cluster.Client(index), {.role = role, .servers = options});
    EXPECT_OK(connected.status());
    job = *std::move(connected);
    EXPECT_OK(job->Serve(plan.tables));
    job->AddTo(executor);
    worker = &job->servers();
  }

  Status Start() {
    return executor.Run(*training.startup, scope, {}, {}).status();
  }
  Status Train(int step, int64_t begin, int64_t count) {
    return executor
        .Run(*training.main, scope, CtrBatch(step, begin, count), {"loss"})
        .status();
  }
  at::Tensor AllRows() {
    std::vector<int64_t> ids(kNumIds);
    for (int64_t i = 0; i < kNumIds; ++i) ids[i] = i;
    auto rows = worker->PullRows("emb", ids);
    EXPECT_OK(rows.status());
    return *rows;
  }

  ops::OpLibrary library;
  CtrTraining training;
  cluster::Role role;
  plan::ParameterServerPlan plan;
  std::unique_ptr<Job> job;
  ParameterWorker* worker;
  exec::Executor executor{library, {}};
  exec::Scope scope;
};

}  // namespace fleet

#endif  // FLEET_TESTING_PARAMETER_SERVER_FIXTURES_H_
