// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/mixed_precision.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/program/control.h"
#include "fleet/program/define_ops.h"
#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::AttrMap;
using program::Block;
using program::Dims;
using program::DType;
using program::Operation;
using program::OpRegistry;
using program::Precision;
using program::Program;
using program::Slots;
using program::Variable;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MixedPrecisionTest : public ::testing::Test {
 protected:
  MixedPrecisionTest() {
    DefineAllOps(registry_);
    Variable& x = AddVariable("x", {-1, 4});
    x.stop_gradient = x.is_data = true;
  }

  Block& block() { return program_.block(0); }
  Variable& AddVariable(const std::string& name, Dims dims,
                        DType dtype = DType::kFloat32) {
    return block().AddVariable(
        {.name = name, .type = {dtype, std::move(dims)}});
  }
  void AddParameter(const std::string& name, Dims dims) {
    Variable& parameter = AddVariable(name, std::move(dims));
    parameter.is_parameter = parameter.persistable = true;
  }
  Operation& Append(const std::string& type, Slots inputs, Slots outputs,
                    AttrMap attrs = {}) {
    Operation& op = block().Append({.type = type,
                                    .inputs = std::move(inputs),
                                    .outputs = std::move(outputs),
                                    .attrs = std::move(attrs)});
    EXPECT_OK(block().InferTypes(registry_, op));
    return op;
  }
  // y = tanh(x w + b)
  void AddLayer(const std::string& x, const std::string& y) {
    AddParameter(y + "_w", {4, 4});
    AddParameter(y + "_b", {4});
    Append("matmul_v2", {{"X", {x}}, {"Y", {y + "_w"}}}, {{"Out", {y + "_p"}}});
    Append("elementwise_add", {{"X", {y + "_p"}}, {"Y", {y + "_b"}}},
           {{"Out", {y + "_s"}}});
    Append("tanh", {{"X", {y + "_s"}}}, {{"Out", {y}}});
  }
  void AddLoss(const std::string& y) {
    Append("reduce_mean", {{"X", {y}}}, {{"Out", {"loss"}}});
  }
  MixedPrecisionResult Run() {
    auto result = UseMixedPrecision(registry_, program_, options_);
    EXPECT_OK(result.status());
    return result.ok() ? *std::move(result) : MixedPrecisionResult{};
  }

  std::string Print() { return plan::Print(program_); }
  DType TypeOf(const std::string& name) {
    const Variable* variable = block().FindHere(name);
    return variable == nullptr ? DType::kNone : variable->type.dtype;
  }

  OpRegistry registry_;
  Program program_;
  MixedPrecision options_;
};

TEST_F(MixedPrecisionTest, WhiteIsShortGrayFollowsTheRestIsFloat32) {
  AddLayer("x", "h");
  AddLayer("h", "y");
  AddLoss("y");
  EXPECT_EQ(Run().num_casts, 6u);
  EXPECT_EQ(Print(),
            "x.cast_fp16 = cast(x)\n"
            "h_w.cast_fp16 = cast(h_w)\n"
            "h_p = matmul_v2(x.cast_fp16, h_w.cast_fp16)\n"
            "h_b.cast_fp16 = cast(h_b)\n"
            "h_s = elementwise_add(h_p, h_b.cast_fp16)\n"
            "h = tanh(h_s)\n"
            "y_w.cast_fp16 = cast(y_w)\n"
            "y_p = matmul_v2(h, y_w.cast_fp16)\n"
            "y_b.cast_fp16 = cast(y_b)\n"
            "y_s = elementwise_add(y_p, y_b.cast_fp16)\n"
            "y = tanh(y_s)\n"
            "y.cast_fp32 = cast(y)\n"
            "loss = reduce_mean(y.cast_fp32)\n");
  EXPECT_EQ(TypeOf("h"), DType::kFloat16);
  EXPECT_EQ(TypeOf("h_w.cast_fp16"), DType::kFloat16);
  EXPECT_EQ(TypeOf("h_w"), DType::kFloat32);
  EXPECT_EQ(TypeOf("loss"), DType::kFloat32);
  EXPECT_FALSE(block().FindHere("h_w.cast_fp16")->is_parameter);
  EXPECT_FALSE(block().FindHere("h_w.cast_fp16")->persistable);
  EXPECT_FALSE(block().FindHere("x.cast_fp16")->is_data);
}

TEST_F(MixedPrecisionTest, CustomListsMoveOps) {
  options_.custom = {{"matmul_v2", Precision::kBlackAlways},
                     {"exp", Precision::kWhite}};
  AddLayer("x", "y");
  Append("exp", {{"X", {"y"}}}, {{"Out", {"e"}}});
  Run();
  EXPECT_EQ(Print(),
            "y_p = matmul_v2(x, y_w)\n"
            "y_s = elementwise_add(y_p, y_b)\n"
            "y = tanh(y_s)\n"
            "y.cast_fp16 = cast(y)\n"
            "e = exp(y.cast_fp16)\n");
}

TEST_F(MixedPrecisionTest, TheLevelSaysHowFarItGoes) {
  AddLayer("x", "y");
  AddLoss("y");
  const std::unique_ptr<Program> plain = program_.Clone();
  const auto at = [&](program::AmpLevel level, bool promote) {
    const std::unique_ptr<Program> program = plain->Clone();
    options_.level = level;
    options_.promote = promote;
    EXPECT_OK(UseMixedPrecision(registry_, *program, options_).status());
    std::string text;
    for (const char* name : {"y_p", "y_s", "y", "loss"}) {
      const DType type = program->block(0).FindHere(name)->type.dtype;
      text += type == DType::kFloat16 ? "16 " : "32 ";
    }
    return text;
  };
  using Level = program::AmpLevel;
  EXPECT_EQ(at(Level::kNone, false), "32 32 32 32 ");
  EXPECT_EQ(at(Level::kWhite, false), "16 32 32 32 ");
  EXPECT_EQ(at(Level::kByList, false), "16 16 16 32 ");
  EXPECT_EQ(at(Level::kAll, false), "16 16 16 16 ");
  EXPECT_EQ(at(Level::kAll, true), "16 16 16 16 ");
  options_.custom["tanh"] = Precision::kBlackAlways;
  EXPECT_EQ(at(Level::kAll, true), "16 16 32 32 ");
  EXPECT_EQ(at(Level::kAll, false), "16 16 32 16 ");
}

TEST_F(MixedPrecisionTest, Bfloat16HasItsOwnSuffix) {
  options_.dtype = DType::kBfloat16;
  AddLayer("x", "y");
  Run();
  EXPECT_THAT(Print(), HasSubstr("x.cast_bf16 = cast(x)\n"));
  EXPECT_EQ(TypeOf("y"), DType::kBfloat16);
}

TEST_F(MixedPrecisionTest, GradientsOfParametersAreFloat32) {
  AddLayer("x", "y");
  AddLoss("y");
  Run();
  ASSERT_OK(AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
  EXPECT_EQ(TypeOf("y@GRAD"), DType::kFloat16);
  EXPECT_EQ(TypeOf("y_w.cast_fp16@GRAD"), DType::kFloat16);
  EXPECT_EQ(TypeOf("y_w@GRAD"), DType::kFloat32);
  EXPECT_EQ(TypeOf("y_b@GRAD"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, AValueIsCastOnce) {
  AddParameter("w", {4, 4});
  for (const char* out : {"a", "b"}) {
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {out}}});
  }
  Append("exp", {{"X", {"a"}}}, {{"Out", {"c"}}});
  Append("log", {{"X", {"a"}}}, {{"Out", {"d"}}});
  Run();
  EXPECT_EQ(Print(),
            "x.cast_fp16 = cast(x)\n"
            "w.cast_fp16 = cast(w)\n"
            "a = matmul_v2(x.cast_fp16, w.cast_fp16)\n"
            "b = matmul_v2(x.cast_fp16, w.cast_fp16)\n"
            "a.cast_fp32 = cast(a)\n"
            "c = exp(a.cast_fp32)\n"
            "d = log(a.cast_fp32)\n");
}

TEST_F(MixedPrecisionTest, GrayBesideFloat32IsFloat32) {
  AddLayer("x", "h");
  Append("exp", {{"X", {"h"}}}, {{"Out", {"e"}}});
  Append("elementwise_add", {{"X", {"h"}}, {"Y", {"e"}}}, {{"Out", {"s"}}});
  // A sum of parameters and feeds alone stays: nothing is gained.
  Append("elementwise_add", {{"X", {"x"}}, {"Y", {"h_b"}}}, {{"Out", {"t"}}});
  Run();
  EXPECT_THAT(Print(), HasSubstr("s = elementwise_add(h.cast_fp32, e)\n"
                                 "t = elementwise_add(x, h_b)\n"));
  EXPECT_EQ(TypeOf("s"), DType::kFloat32);
  EXPECT_EQ(TypeOf("t"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, WhatABlackVariableTouchesIsFloat32) {
  options_.black_variables = {"y_w"};
  AddLayer("x", "h");
  AddLayer("h", "y");
  Run();
  EXPECT_THAT(Print(), HasSubstr("y_p = matmul_v2(h.cast_fp32, y_w)\n"
                                 "y_s = elementwise_add(y_p, y_b)\n"));
}

TEST_F(MixedPrecisionTest, OutsideOfTheScopeAllIsFloat32) {
  options_.scope = "__use_fp16__";
  AddLayer("x", "h");
  AddLayer("h", "y");
  for (size_t i = 3; i < 6; ++i) {
    block().op(i).attrs["op_namescope"] = {AttrKind::kString,
                                           std::string("/__use_fp16___1/")};
  }
  Run();
  EXPECT_EQ(Print(),
            "h_p = matmul_v2(x, h_w)\n"
            "h_s = elementwise_add(h_p, h_b)\n"
            "h = tanh(h_s)\n"
            "h.cast_fp16 = cast(h)\n"
            "y_w.cast_fp16 = cast(y_w)\n"
            "y_p = matmul_v2(h.cast_fp16, y_w.cast_fp16)\n"
            "y_b.cast_fp16 = cast(y_b)\n"
            "y_s = elementwise_add(y_p, y_b.cast_fp16)\n"
            "y = tanh(y_s)\n");
}

TEST_F(MixedPrecisionTest, ParametersOfANormStayFloat32) {
  AddVariable("image", {-1, 3, 8, 8}).is_data = true;
  AddParameter("filter", {5, 3, 3, 3});
  for (const char* name : {"mean", "variance", "scale", "bias"}) {
    AddParameter(name, {5});
  }
  Append("conv2d", {{"Input", {"image"}}, {"Filter", {"filter"}}},
         {{"Output", {"c"}}});
  Append("batch_norm",
         {{"X", {"c"}},
          {"Mean", {"mean"}},
          {"Variance", {"variance"}},
          {"Scale", {"scale"}},
          {"Bias", {"bias"}}},
         {{"Y", {"n"}}, {"SavedMean", {"m"}}, {"SavedVariance", {"v"}}});
  Append("relu", {{"X", {"n"}}}, {{"Out", {"r"}}});
  Run();
  EXPECT_EQ(Print(),
            "image.cast_fp16 = cast(image)\n"
            "filter.cast_fp16 = cast(filter)\n"
            "c = conv2d(image.cast_fp16, filter.cast_fp16)\n"
            "n, m, v = batch_norm(c, mean, variance, scale, bias)\n"
            "r = relu(n)\n");
  EXPECT_EQ(TypeOf("n"), DType::kFloat16);
  EXPECT_EQ(TypeOf("m"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, WhatIsKeptOrWrittenTwiceStaysFloat32) {
  AddParameter("w", {4, 4});
  AddVariable("kept", {-1, 4}).persistable = true;
  Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"kept"}}});
  Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"twice"}}});
  Append("tanh", {{"X", {"twice"}}}, {{"Out", {"twice"}}});
  EXPECT_EQ(Run().num_casts, 0u);
  EXPECT_EQ(TypeOf("kept"), DType::kFloat32);
  EXPECT_EQ(TypeOf("twice"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, WhatTheUserCastsHasTheTypeThatTheUserSays) {
  AddLayer("x", "h");
  Append("cast", {{"X", {"h"}}}, {{"Out", {"f"}}},
         {{"in_dtype", {AttrKind::kInt, int64_t{5}}},
          {"out_dtype", {AttrKind::kInt, int64_t{5}}}});
  Run();
  const Operation& cast = block().op(block().num_ops() - 1);
  EXPECT_EQ(cast.input("X"), std::vector<std::string>{"h"});
  // The gradient goes back to the type that the input has now.
  EXPECT_EQ(std::get<int64_t>(cast.attr("in_dtype")->value), 4);
  EXPECT_EQ(TypeOf("f"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, Float64StaysFloat64) {
  AddVariable("z", {-1, 4}, DType::kFloat64).is_data = true;
  Variable& w = AddVariable("w", {4, 4}, DType::kFloat64);
  w.is_parameter = w.persistable = true;
  Append("matmul_v2", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Run().num_casts, 0u);
  EXPECT_EQ(TypeOf("y"), DType::kFloat64);
}

TEST_F(MixedPrecisionTest, BodiesReadFloat32) {
  AddLayer("x", "h");
  AddVariable("c", {1}, DType::kBool).is_data = true;
  AddVariable("out", {-1, 4});
  Block& body = program_.AddBlock(0);
  Operation& inside = body.Append({.type = "tanh",
                                   .inputs = {{"X", {"h"}}},
                                   .outputs = {{"Out", {"out"}}}});
  ASSERT_OK(body.InferTypes(registry_, inside));
  Operation& op = block().Append(
      {.type = "conditional_block",
       .inputs = {{"Cond", {"c"}}},
       .attrs = {{"sub_block", {AttrKind::kBlock, int64_t{1}}}}});
  FillBodySlots(program_, op);
  Append("tanh", {{"X", {"out"}}}, {{"Out", {"last"}}});
  Run();
  EXPECT_EQ(body.op(0).input("X"), std::vector<std::string>{"h.cast_fp32"});
  EXPECT_THAT(Print(), HasSubstr("h.cast_fp32 = cast(h)\n"
                                 "out = conditional_block(c, h.cast_fp32)\n"
                                 "last = tanh(out)\n"));
  EXPECT_EQ(TypeOf("last"), DType::kFloat32);
}

TEST_F(MixedPrecisionTest, AnOpThatRefusesTheShortTypeIsFloat32) {
  options_.custom["as_complex"] = Precision::kWhite;  // takes float32, float64
  AddVariable("pairs", {-1, 2}).is_data = true;
  Append("as_complex", {{"X", {"pairs"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(Run().num_casts, 0u);
  EXPECT_EQ(Print(), "z = as_complex(pairs)\n");
  EXPECT_EQ(block().FindHere("pairs.cast_fp16"), nullptr);
}

TEST_F(MixedPrecisionTest, ParametersMayBecomeShortThemselves) {
  options_.short_parameters = true;
  AddLayer("x", "y");
  AddLoss("y");
  Append("exp", {{"X", {"y_b"}}}, {{"Out", {"e"}}});
  const MixedPrecisionResult result = Run();
  EXPECT_THAT(result.parameters, ElementsAre("y_w"));
  EXPECT_EQ(result.num_casts, 3u);
  EXPECT_EQ(Print(),
            "x.cast_fp16 = cast(x)\n"
            "y_p = matmul_v2(x.cast_fp16, y_w)\n"
            "y_b.cast_fp16 = cast(y_b)\n"
            "y_s = elementwise_add(y_p, y_b.cast_fp16)\n"
            "y = tanh(y_s)\n"
            "y.cast_fp32 = cast(y)\n"
            "loss = reduce_mean(y.cast_fp32)\n"
            "e = exp(y_b)\n");
  EXPECT_EQ(TypeOf("y_w"), DType::kFloat16);
  EXPECT_EQ(TypeOf("y_b"), DType::kFloat32);  // exp reads it, too
}

TEST_F(MixedPrecisionTest, ASecondTimeChangesNothing) {
  AddLayer("x", "y");
  AddLoss("y");
  Run();
  const std::string before = Print();
  EXPECT_EQ(Run().num_casts, 0u);
  EXPECT_EQ(Print(), before);
}

TEST_F(MixedPrecisionTest, RefusesProgramsWithBackwardAndOtherTypes) {
  AddLayer("x", "y");
  AddLoss("y");
  options_.dtype = DType::kFloat64;
  EXPECT_THAT(UseMixedPrecision(registry_, program_, options_).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("float16 or bfloat16, not float64")));
  options_.dtype = DType::kFloat16;
  ASSERT_OK(AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
  const std::string before = Print();
  EXPECT_THAT(UseMixedPrecision(registry_, program_, options_).status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("has its backward already")));
  EXPECT_EQ(Print(), before);
}

}  // namespace
}  // namespace fleet::plan
