// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/op_def.h"

#include <gtest/gtest.h>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

TEST(OpRegistry, ReadsSlotsAttributesAndDefaults) {
  OpRegistry ops;
  ops.Define(
      "demo(X, Rest*, Bias?; axis: int = -1, eps: float = 1e-5, "
      "mode: string = 'mean', shape: ints = [1, 2], dtype: dtype = int64, "
      "needed: bool) -> Out, Mask!",
      SameAs("X"), "X, Mask, Out' -> X', Bias'");
  const OpDef* def = ops.Find("demo");
  ASSERT_NE(def, nullptr);
  ASSERT_EQ(def->inputs.size(), 3);
  EXPECT_TRUE(def->inputs[1].variadic);
  EXPECT_TRUE(def->inputs[2].optional);
  ASSERT_EQ(def->attrs.size(), 6);
  EXPECT_EQ(std::get<int64_t>(def->attrs[0].initial), -1);
  EXPECT_EQ(std::get<double>(def->attrs[1].initial), 1e-5);
  EXPECT_EQ(std::get<std::string>(def->attrs[2].initial), "mean");
  EXPECT_EQ(std::get<std::vector<int64_t>>(def->attrs[3].initial),
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(std::get<int64_t>(def->attrs[4].initial),
            static_cast<int64_t>(DType::kInt64));
  EXPECT_TRUE(def->attrs[5].required);
  EXPECT_TRUE(def->outputs[1].constant);
  EXPECT_EQ(def->grad.uses[1].kind, GradSource::kOutput);
  EXPECT_EQ(def->grad.uses[2].kind, GradSource::kOutputGrad);
  EXPECT_EQ(def->grad.gives, (std::vector<int>{0, 2}));
}

TEST(OpDefiner, ListsTheFacesOfAnOpForWhomWantsThem) {
  OpRegistry registry;
  std::vector<PythonFace> faces;
  OpDefiner ops(registry, &faces);
  ops.Define("plain(X) -> Out", SameAs("X"));
  ops.Define("demo(X) -> Out", SameAs("X"))
      .Python("tensor.math.demo(x, name)", "The demonstration.")
      .Python("nn.functional.activation.demo(x, name); Demo", "The same.");
  EXPECT_NE(registry.Find("plain"), nullptr);
  ASSERT_EQ(faces.size(), 2);
  EXPECT_EQ(faces[0].op, "demo");
  EXPECT_EQ(faces[0].names, "tensor.math.demo(x, name)");
  EXPECT_EQ(faces[1].help, "The same.");
}

TEST(OpDefinerDeathTest, AFaceNeedsAnOp) {
  OpRegistry registry;
  OpDefiner ops(registry);
  EXPECT_DEATH(ops.Python("tensor.math.demo(x)", "None."), "no op was defined");
}

TEST(OpRegistryDeathTest, AMistakeInASchemaAborts) {
  OpRegistry ops;
  EXPECT_DEATH(ops.Define("demo(X ->", SameAs("X")), "demo");
  EXPECT_DEATH(ops.Define("demo(X) -> Out", SameAs("X"), "Y, Out' -> X'"),
               "unknown slot Y");
  ops.Define("demo(X) -> Out", SameAs("X"));
  EXPECT_DEATH(ops.Define("demo(X) -> Out", SameAs("X")), "twice");
}

TEST(OpDef, AnErrorOfTheShapeRuleNamesTheOpAndItsInputs) {
  OpRegistry ops;
  DefineAllOps(ops);
  const OpDef* matmul = ops.Find("matmul_v2");
  Attrs attrs = matmul->DefaultAttrs();
  OpTypes types(*matmul,
                {{{DType::kFloat32, {2, 3}}}, {{DType::kFloat32, {4, 5}}}},
                attrs);
  auto result = matmul->InferTypes(types);
  ASSERT_FALSE(result.ok());
  std::string text = result.status().ToString();
  EXPECT_NE(text.find("matmul_v2(X float32 [2, 3], Y float32 [4, 5])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("3 of X against 4 of Y"), std::string::npos) << text;
}

}  // namespace
}  // namespace fleet::program
