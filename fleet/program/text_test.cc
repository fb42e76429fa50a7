// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/text.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = R"({ // block 0
    var x : LOD_TENSOR.shape(-1, 4).dtype(float32).lod_level(1).lod(x@LOD).stop_gradient(True).data(True)
    persist trainable param fc_0.w_0 : LOD_TENSOR.shape(4, 2).dtype(float32)
    persist param frozen : LOD_TENSOR.shape(2).dtype(float64)
    persist var learning_rate_0 : LOD_TENSOR.shape(1).dtype(float32).stop_gradient(True)
    var rows : SELECTED_ROWS.shape(100, 8).dtype(float32)
    var scopes : STEP_SCOPES
    {Out=['y']} = matmul_v2(inputs={X=['x'], Y=['fc_0.w_0']}, trans_x = False, trans_y = False)
    {Out=['y', 'z'], Rest=[]} = all_kinds(inputs={}, a = -7, b = 0.5, c = 1.0, d = 'it\'s', e = [1, -2], f = [0.25, -1.0], g = ['a', ''], h = [True, False], i = block[1], j = blocks[1, 0], k = long(3), l = longs[-1, 2], m = float64(0.1), n = float64s[0.1, 2.0], o = ints[], p = floats[], q = strings[], r = bools[], s = 1e-05, t = inf, u = 'a\nb\x00\\')
}
{ // block 1, parent 0
    {Out=['z']} = relu(inputs={X=['y']})
}
{ // block 2, parent 1, forward 1
    var inner : LOD_TENSOR.shape().dtype(int64)
}
)";

TEST(TextTest, WhatIsReadIsWrittenEqually) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> program, ParseText(kText));
  EXPECT_EQ(ToString(*program), kText);
}

TEST(TextTest, PartsAreWhatTheTextSays) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> program, ParseText(kText));
  ASSERT_EQ(program->num_blocks(), 3);
  const Block& main = program->block(0);
  EXPECT_EQ(*main.FindHere("x"), (Variable{.name = "x",
                                           .type = {DType::kFloat32, {-1, 4}},
                                           .lod_level = 1,
                                           .lod = "x@LOD",
                                           .stop_gradient = true,
                                           .is_data = true}));
  EXPECT_FALSE(main.FindHere("frozen")->trainable);
  EXPECT_EQ(main.FindHere("scopes")->kind, VariableKind::kStepScopes);
  const Operation& op = main.op(1);
  EXPECT_EQ(op.attrs.at("c"), (AttrValue{AttrKind::kFloat, 1.0}));
  EXPECT_EQ(op.attrs.at("d"), (AttrValue{AttrKind::kString, "it's"}));
  EXPECT_EQ(op.attrs.at("i"), (AttrValue{AttrKind::kBlock, int64_t{1}}));
  EXPECT_EQ(op.attrs.at("u"),
            (AttrValue{AttrKind::kString, std::string("a\nb\0\\", 5)}));
  EXPECT_EQ(program->block(2).forward_block(), 1);
}

TEST(TextTest, OperationsAlone) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> program, ParseText(R"({
      {Out=['y']} = relu(inputs={X=['x']})  // at train.py:17
      {Out=['z']} = tanh(inputs={X=['y']}, op_role = 0)
    })"));
  EXPECT_EQ(program->block(0).op(0).made_at, "train.py:17");
  EXPECT_EQ(ToString(*program, {.variables = false}),
            "{ // block 0\n"
            "    {Out=['y']} = relu(inputs={X=['x']})\n"
            "    {Out=['z']} = tanh(inputs={X=['y']}, op_role = 0)\n"
            "}\n");
  EXPECT_THAT(ToString(*program, {.lines = true}),
              HasSubstr("relu(inputs={X=['x']})  // at train.py:17\n"));
}

TEST(TextTest, CallStacksAndEmptyDevicesAreNotShown) {
  Operation op{.type = "relu",
               .attrs = {
                   {"op_callstack",
                    {AttrKind::kStrings, std::vector<std::string>{"File x"}}},
                   {"op_device", {AttrKind::kString, std::string()}},
                   {"op_namescope", {AttrKind::kString, std::string("/")}},
               }};
  EXPECT_EQ(ToString(op), "{} = relu(inputs={})");
  op.attrs["op_device"].value = std::string("gpu:0");
  EXPECT_EQ(ToString(op), "{} = relu(inputs={}, op_device = 'gpu:0')");
}

TEST(TextTest, ErrorsNameTheLine) {
  auto error = [](const char* text) {
    return ParseText(text).status().message();
  };
  EXPECT_THAT(error("{\n  {Out=['y']} = relu(inputs={X=['x']}\n}"),
              HasSubstr("line 3: expected ')'"));
  EXPECT_THAT(error("{\n  value x : LOD_TENSOR\n}"),
              HasSubstr("line 2: expected a variable or an operation"));
  EXPECT_THAT(error("{\n  {} = relu(inputs={}, a = [])\n}"),
              HasSubstr("a kind for an empty list"));
  EXPECT_THAT(error("{\n  var x : LOD_TENSOR.shape(a)\n}"),
              HasSubstr("expected a number, not 'a'"));
  EXPECT_THAT(error("{\n"), HasSubstr("expected '}'"));
  EXPECT_THAT(error("{ {Out=['y"), HasSubstr("expected"));
}

}  // namespace
}  // namespace fleet::program
