// SPDX-License-Identifier: Apache-2.0

// Programs that python/tests/built_programs.py builds, too: both have the text
// that is recorded in python/tests/data/programs.

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

namespace init = program::init;
using program::Builder;
using program::DType;
using program::FcOptions;
using program::L1Decay;
using program::L2Decay;
using program::ParamAttr;
using program::Program;
using program::Value;
using program::Values;

Status Classifier(Builder& b) {
  const Value x = b.Data("x", {-1, 32});
  const Value label = b.Data("label", {-1, 1}, DType::kInt64);
  const Value hidden = b.Fc(x, 128, {.activation = "tanh"});
  const Value logits = b.Fc(hidden, 2);
  const Value loss = b.CrossEntropyLoss(logits, label).loss;
  return Minimize(b, loss, {.learning_rate = 0.1});
}

Status SeveralInputs(Builder& b) {
  const Value x = b.Data("x", {-1, 2, 4});
  const Value y = b.Data("y", {-1, 8});
  const Value out = b.Fc({x, y}, 5, {.activation = "tanh"});
  const Value kept = b.Fc(x, 5, {.num_flatten_dims = 2, .bias = std::nullopt});
  const Value mean = b.ReduceMean(out);
  const Value half = b.ReduceMean(kept) * 0.5;
  return Minimize(b, mean + half,
                  {.rule = optim::Momentum{.mu = 0.8, .nesterov = true},
                   .learning_rate = 0.01});
}

Status Images(Builder& b) {
  const Value image = b.Data("image", {-1, 3, 16, 16});
  const Value label = b.Data("label", {-1, 1}, DType::kInt64);
  Value x = b.Conv2d(image, 8, {3}, {.padding = {1}, .bias = std::nullopt});
  x = b.BatchNorm(x, {.activation = "relu"});
  x = b.MaxPool2dWithIndex(x, {2, 2}, {.strides = {2, 2}, .paddings = {0, 0}})
          .out;
  x = b.Conv2d(x, 16, {3, 2},
               {.stride = {2}, .groups = 2, .activation = "sigmoid"});
  x = b.BatchNorm(x, {.momentum = 0.8, .mean_name = "running_mean"});
  const Value logits = b.Fc(x, 10);
  const Value loss = b.SoftmaxWithCrossEntropy(logits, label).loss;
  return Minimize(b, b.ReduceMean(loss),
                  {.rule = optim::Momentum{},
                   .learning_rate = 0.1,
                   .clip = ClipByGlobalNorm{2.0},
                   .decay = L2Decay{1e-4}});
}

Status Clicks(Builder& b) {
  const Value ids = b.Data("ids", {-1, 26}, DType::kInt64);
  const Value user = b.Data("user", {-1, 1}, DType::kInt64);
  const Value dense = b.Data("dense", {-1, 13});
  const Value label = b.Data("label", {-1, 1});
  Value rows = b.SparseEmbedding(ids, 1000, 8);
  rows = b.Reshape2(rows, {.shape = {-1, 208}});
  Value mine = b.Embedding(user, 50, 4, {.is_sparse = true, .padding_idx = -1});
  mine = b.Reshape2(mine, {.shape = {-1, 4}});
  Value x = b.Concat({rows, mine, dense}, {.axis = 1});
  x = b.Fc(x, 16,
           {.weight = {.initializer = init::TruncatedNormal{.std = 0.1}},
            .activation = "relu"});
  x = b.Fc(x, 1);
  const Value losses = b.SigmoidCrossEntropyWithLogits(x, label);
  return Minimize(b, b.ReduceMean(losses),
                  {.rule = optim::Adam{.lazy = true}, .learning_rate = 0.001});
}

Status Norms(Builder& b) {
  Value x = b.Data("x", {-1, 4, 6, 6});
  x = b.GroupNorm(x, 2);
  x = b.InstanceNorm(x);
  x = b.LayerNorm(x, {.begin_norm_axis = 2, .activation = "relu"});
  x = b.LayerNorm(x, {.scale = std::nullopt, .bias = std::nullopt});
  x = b.Conv2d(x, 2, {3},
               {.padding_algorithm = "SAME",
                .weight = {.initializer = init::KaimingNormal{}}});
  const Value loss = b.ReduceMean(b.Square(x));
  return Minimize(b, loss,
                  {.rule = optim::RmsProp{.momentum = 0.5, .centered = true},
                   .learning_rate = 0.01});
}

Status OwnAttributes(Builder& b) {
  Value x = b.Data("x", {-1, 8});
  const ParamAttr first{.name = "first",
                        .initializer = init::Uniform{-0.5, 0.5},
                        .learning_rate = 0.5,
                        .decay = L1Decay{0.01}};
  const ParamAttr second{.initializer = init::XavierNormal{},
                         .need_clip = false};
  const ParamAttr frozen{.initializer = init::Constant{0.5},
                         .trainable = false};
  x = b.Fc(x, 8, {.weight = first, .bias = frozen, .activation = "relu"});
  x = b.Fc(x, 8, {.weight = second, .name = "middle"});
  init::Assign values;
  for (int i = 0; i < 8; ++i) values.values.push_back(0.1 * i);
  x = b.Fc(x, 1, {.weight = {.initializer = values}});
  return Minimize(b, b.ReduceMean(x),
                  {.rule = optim::Adagrad{.initial = 0.1},
                   .learning_rate = 0.1,
                   .clip = ClipByNorm{0.5},
                   .decay = L2Decay{0.001}});
}

Status KeptBetween(Builder& b) {
  Value x = b.Data("x", {-1, 8});
  Values checkpoints;
  for (int i = 0; i < 3; ++i) {
    x = b.Fc(x, 8, {.activation = "tanh"});
    checkpoints.push_back(x);
    x = b.Relu(b.Fc(x, 8));
  }
  return Minimize(
      b, b.ReduceMean(x),
      {.rule = optim::Adam{}, .learning_rate = 0.001, .decoupled_decay = 0.01},
      {.checkpoints = checkpoints});
}

Status EveryRule(Builder& b) {
  b.startup().random_seed = 7;
  const auto contains = [](const char* part) {
    return [part](const std::string& name) {
      return name.find(part) != name.npos;
    };
  };
  const std::vector<Optimizer> rules = {
      {.rule = optim::Adam{}, .learning_rate = 0.1},
      {.rule = optim::Adamax{}, .learning_rate = 0.1},
      {.rule = optim::Adadelta{.rho = 0.9, .epsilon = 1e-5},
       .learning_rate = 0.1},
      {.rule = optim::Lamb{}, .learning_rate = 0.1, .decoupled_decay = 0.02},
      {.rule = optim::Lars{},
       .learning_rate = 0.1,
       .decays = std::not_fn(contains("b_0"))},
      {.rule = optim::Ftrl{.l1 = 0.01}, .learning_rate = 0.1},
      {.rule = optim::Adam{.lazy = true},
       .learning_rate = 0.1,
       .decoupled_decay = 0.01,
       .decays = contains("w_0")},
      {.rule = optim::Momentum{},
       .learning_rate = 0.1,
       .decay = L1Decay{0.1},
       .rescale = 0.5},
      {.rule = optim::Sgd{},
       .learning_rate = 0.1,
       .clip = ClipByValue{-1.0, 0.5}}};
  Value x = b.Data("x", {-1, 4});
  for (size_t i = 0; i < rules.size(); ++i) x = b.Fc(x, 4);
  ASSIGN_OR_RETURN(Gradients gradients, Backward(b, b.ReduceMean(x)));
  for (size_t i = 0; i < rules.size(); ++i) {
    const Gradients own(gradients.begin() + 2 * i,
                        gradients.begin() + 2 * i + 2);
    RETURN_IF_ERROR(ApplyGradients(b, own, rules[i]));
  }
  return OkStatus();
}

Status Branches(Builder& b) {
  const Value x = b.Data("x", {-1, 4});
  const Value flag = b.Data("flag", {1}, DType::kBool);
  const Value number = b.Data("number", {1}, DType::kInt64);
  const Value h = b.Fc(x, 4);
  const Values pair = b.Cond(
      flag,
      [&] {
        const Value twice = h * 2.0;
        return Values{twice, b.Relu(h)};
      },
      [&] { return Values{h + 1.0, x}; });
  if (pair.size() != 2) return b.status();
  b.Cond(flag, [&] {
    b.Append({.type = "increment",
              .inputs = {{"X", {"number"}}},
              .outputs = {{"Out", {"number"}}},
              .attrs = {{"step", {program::AttrKind::kFloat, 1.0}}}});
    return Values{};
  });
  const Value equal = b.Equal(number, number);
  const Values c = b.Case({{flag, [&] { return Values{b.Tanh(pair[0])}; }},
                           {equal, [&] { return Values{pair[1]}; }}},
                          [&] {
                            return b.Cond(
                                flag, [&] { return Values{pair[0]}; },
                                [&] { return Values{-pair[1]}; });
                          });
  if (c.empty()) return b.status();
  const Values d = b.SwitchCase(
      number, {{3, [&] { return c; }}, {1, [&] { return Values{c[0] * 0.5}; }}},
      [&] { return Values{c[0] - pair[1]}; });
  if (d.empty()) return b.status();
  return Minimize(b, b.ReduceMean(d[0]), {.learning_rate = 0.1});
}

Status Loops(Builder& b) {
  const Value x = b.Data("x", {2, 4});
  const Value w = b.Fc(x, 4);
  const auto number = [&b](double value) {
    return b.FillConstant(
        {.shape = {1}, .value = value, .dtype = DType::kInt64});
  };
  const Value i = number(0);
  const Value n = number(3);
  const auto inner = [&](const Values& v) {
    const Value j = number(0);
    const Value a = b.Tanh(v[1]);
    const Values inside =
        b.While([&](const Values& u) { return b.LessThan(u[0], v[0]); },
                [&](const Values& u) {
                  const Value next = u[0] + 1.0;
                  return Values{next, u[1] * 0.5};
                },
                {j, a});
    if (inside.empty()) return Values{};
    return Values{v[0] + 1.0, v[2], inside[1]};
  };
  const Values out = b.While(
      [&](const Values& v) { return b.LessThan(v[0], n); }, inner, {i, w, x});
  if (out.empty()) return b.status();
  const Value first = b.ReduceMean(out[1]);
  const Value second = b.ReduceMean(out[2]);
  return Minimize(b, first + second,
                  {.rule = optim::Momentum{}, .learning_rate = 0.1});
}

Status Indices(Builder& b) {
  using Ints = std::vector<int64_t>;
  using program::IndexRange;
  using program::kNewAxis;
  using program::kRest;
  const Value x = b.Data("x", {4, 6, 3});
  const Value i = b.Data("i", {1}, DType::kInt64);
  const Value ids = b.Data("ids", {-1}, DType::kInt64);
  const Value mask = b.Data("mask", {4}, DType::kBool);
  const auto above = [&](double limit) {
    return b.GreaterThan(x, b.Constant({1}, DType::kFloat32, {limit}));
  };
  b.Item(x, {IndexRange{1, 3}});
  b.Item(x, {kRest, -1});
  b.Item(x, {0, IndexRange{}, kNewAxis, IndexRange{.step = 2}});
  b.Item(x, {IndexRange{.step = -1}});
  b.Item(x, {i});
  b.Item(x, {IndexRange{1, i}, 2});
  b.Item(x, {ids});
  b.Item(x, {IndexRange{}, ids, 0});
  b.Item(x, {Ints{0, 2}, Ints{1, 1}});
  b.Item(x, {mask});
  b.Item(x, {above(0.0)});
  const Value y = b.Tanh(x);
  b.SetItem(y, {1, IndexRange{2, 4}}, b.Item(x, {1, IndexRange{0, 2}}));
  const Value ones = 1.0 * x;
  b.SetItem(y, {above(0.5)}, ones);
  return b.status();
}

Status ShortAndMerged(Builder& b) {
  const Value image = b.Data("image", {-1, 3, 8, 8});
  const Value label = b.Data("label", {-1, 1}, DType::kInt64);
  Value x = b.Conv2d(image, 4, {3}, {.activation = "relu"});
  x = b.Fc(x, 8, {.activation = "tanh"});
  const Value logits = b.Fc(x, 2);
  const Value loss = b.CrossEntropyLoss(logits, label).loss;
  return Minimize(
      b, loss, {.rule = optim::Adam{}, .learning_rate = 0.01},
      {.checkpoints = {x},
       .amp = Amp{.precision = {.custom = {{"tanh",
                                            program::Precision::kBlackAlways}}},
                  .scaling = {.initial = 1024.0}},
       .merge = {.steps = 4}});
}

const std::map<std::string, Status (*)(Builder&)> kPrograms = {
    {"classifier", Classifier},
    {"several_inputs", SeveralInputs},
    {"images", Images},
    {"clicks", Clicks},
    {"norms", Norms},
    {"own_attributes", OwnAttributes},
    {"kept_between", KeptBetween},
    {"every_rule", EveryRule},
    {"branches", Branches},
    {"loops", Loops},
    {"indices", Indices},
    {"short_and_merged", ShortAndMerged},
};

class ProgramsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ProgramsTest, HaveTheTextOfThoseThatPythonBuilds) {
  Program main, startup;
  Builder b(main, startup);
  ASSERT_OK(kPrograms.at(GetParam())(b));
  std::ifstream file(FLEET_RECORDED_PROGRAMS "/" + GetParam() + ".txt");
  const std::string recorded((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(ToString(main) + ToString(startup), recorded);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, build] : kPrograms) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ProgramsTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fleet::plan
