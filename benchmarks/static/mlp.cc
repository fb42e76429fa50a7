// SPDX-License-Identifier: Apache-2.0

// The MLP of the static scripts from C++, and the sum of its matrix products in
// oneDNN, in turns:
//
//   mlp WIDTH BATCH TURNS STEPS
//
// prints microseconds: best of a step, best of the products, the first step.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "fleet/base/check.h"
#include "fleet/exec/executor.h"
#include "fleet/ops/gemm.h"
#include "fleet/plan/backward.h"

namespace {

using fleet::ops::GemmShape;
using fleet::ops::PreparedGemm;
using fleet::program::AttrKind;
using fleet::program::AttrMap;
using fleet::program::Dims;
using fleet::program::DType;
using fleet::program::Program;
using fleet::program::Slots;

constexpr int64_t kInputs = 32;
constexpr int64_t kClasses = 2;

template <class T>
T Must(fleet::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(result.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(result);
}

double Now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Mlp {
  explicit Mlp(const fleet::ops::OpLibrary& ops) : library(ops) {}

  const fleet::ops::OpLibrary& library;
  Program program;
  fleet::exec::Scope scope;
  std::vector<std::string> parameters;
  int count = 0;

  std::string Append(const std::string& type, Slots inputs,
                     const std::string& slot, AttrMap attrs = {}) {
    const std::string out = "v" + std::to_string(++count);
    auto& op = program.block(0).Append({.type = type,
                                        .inputs = std::move(inputs),
                                        .outputs = {{slot, {out}}},
                                        .attrs = std::move(attrs)});
    const fleet::Status status =
        program.block(0).InferTypes(library.definitions(), op);
    if (!status.ok()) std::exit(1);
    return out;
  }
  std::string Kept(const std::string& name, const Dims& dims, double scale) {
    program.block(0).AddVariable(
        {.name = name, .type = {DType::kFloat32, dims}, .persistable = true});
    scope.Get(name) = at::randn(dims).mul_(scale);
    return name;
  }
  std::string Fc(const std::string& x, int64_t in, int64_t out,
                 const std::string& activation) {
    const std::string name = "fc" + std::to_string(++count);
    parameters.push_back(Kept(name + ".w", {in, out}, 0.1));
    std::string y = Append("mul", {{"X", {x}}, {"Y", {name + ".w"}}}, "Out");
    parameters.push_back(Kept(name + ".b", {out}, 0.1));
    y = Append("elementwise_add", {{"X", {y}}, {"Y", {name + ".b"}}}, "Out",
               {{"axis", {AttrKind::kInt, int64_t{1}}}});
    return Append(activation, {{"X", {y}}}, "Out");
  }
  std::string Build(int64_t width) {
    program.block(0).AddVariable({.name = "x",
                                  .type = {DType::kFloat32, {-1, kInputs}},
                                  .stop_gradient = true,
                                  .is_data = true});
    program.block(0).AddVariable({.name = "y",
                                  .type = {DType::kInt64, {-1, 1}},
                                  .stop_gradient = true,
                                  .is_data = true});
    std::string h = Fc("x", kInputs, width, "tanh");
    h = Fc(h, width, width, "tanh");
    h = Fc(h, width, kClasses, "softmax");
    std::string loss =
        Append("cross_entropy", {{"X", {h}}, {"Label", {"y"}}}, "Y");
    loss = Append("mean", {{"X", {loss}}}, "Out");
    Must(fleet::plan::AppendBackward(library.definitions(), program,
                                     {{loss, ""}}, {}));
    Kept("rate", {1}, 0);
    scope.Get("rate").fill_(0.01);
    for (const std::string& name : parameters) {
      program.block(0).Append({.type = "sgd",
                               .inputs = {{"Param", {name}},
                                          {"Grad", {name + "@GRAD"}},
                                          {"LearningRate", {"rate"}}},
                               .outputs = {{"ParamOut", {name}}}});
    }
    return loss;
  }
};

// The products of a step, each on memory of its own.
class Products {
 public:
  Products(int64_t width, int64_t batch) {
    const int64_t sizes[] = {kInputs, width, width, kClasses};
    for (int layer = 0; layer < 3; ++layer) {
      const int64_t in = sizes[layer], out = sizes[layer + 1];
      Add({batch, out, in});
      Add({in, out, batch, true, false});                 // weights
      if (layer > 0) Add({batch, in, out, false, true});  // inputs
    }
  }
  void Run() {
    for (One& one : all_) {
      one.gemm.Run(one.a.data(), one.b.data(), nullptr, one.c.data());
    }
  }

 private:
  struct One {
    PreparedGemm gemm;
    std::vector<float> a, b, c;
  };
  void Add(const GemmShape& s) {
    all_.push_back({PreparedGemm(s, false, fleet::ops::Activation::kNone),
                    std::vector<float>(s.m * s.k, 0.5f),
                    std::vector<float>(s.k * s.n, 0.5f),
                    std::vector<float>(s.m * s.n)});
  }
  std::vector<One> all_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int64_t width = std::atoi(argv[1]), batch = std::atoi(argv[2]);
  const int turns = std::atoi(argv[3]), steps = std::atoi(argv[4]);
  at::set_num_threads(1);
  const fleet::ops::OpLibrary library;
  Mlp mlp(library);
  const std::string loss = mlp.Build(width);
  fleet::exec::Executor executor(library, {});
  const std::vector<fleet::exec::Feed> feeds = {
      {"x", at::randn({batch, kInputs})},
      {"y", at::randint(0, kClasses, {batch, 1}, at::kLong)}};
  const std::vector<std::string> fetches = {loss};
  auto run = [&] {
    Must(executor.Run(mlp.program, mlp.scope, feeds, fetches));
  };
  const double begin = Now();
  run();
  const double first = Now() - begin;
  run();
  const double second = Now() - begin - first;
  Products products(width, batch);
  products.Run();
  double step = std::numeric_limits<double>::max(), sum = step;
  for (int turn = 0; turn < turns; ++turn) {
    double start = Now();
    for (int i = 0; i < steps; ++i) run();
    step = std::min(step, (Now() - start) / steps);
    start = Now();
    for (int i = 0; i < steps; ++i) products.Run();
    sum = std::min(sum, (Now() - start) / steps);
  }
  std::printf("%.2f %.2f %.0f %.0f\n", step, sum, first, second);
  return 0;
}
