// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/program/define_ops.h"

// Shape rules over dimensions that are not known before a program runs. Every
// op call of Python's tests asks its rule also with sizes left out.

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

const OpRegistry& Definitions() {
  static const OpRegistry all = [] {
    OpRegistry ops;
    DefineAllOps(ops);
    return ops;
  }();
  return all;
}

// The shapes of the outputs of `op` with one float32 input in each slot, as
// text; or the error.
std::string Shapes(const char* op, std::vector<Dims> inputs,
                   std::vector<std::pair<const char*, Attr>> attrs = {}) {
  const OpDef& def = *Definitions().Find(op);
  std::vector<std::vector<TensorType>> types(def.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    types[i].push_back({DType::kFloat32, inputs[i]});
  }
  Attrs values = def.DefaultAttrs();
  for (auto& [name, value] : attrs) values[def.AttrIndex(name)] = value;
  auto out = def.InferTypes(OpTypes(def, types, values));
  if (!out.ok()) return out.status().ToString();
  std::string text;
  for (const TensorType& type : *out) text += ToString(type.dims);
  return text;
}

TEST(MathRules, UnknownDimensionsStayUnknown) {
  EXPECT_EQ(Shapes("elementwise_add", {{-1, 3}, {3}}), "[-1, 3]");
  EXPECT_EQ(Shapes("elementwise_div", {{-1, 1}, {4}}), "[-1, 4]");
  EXPECT_EQ(Shapes("lerp", {{-1, 3}, {3}, {1}}), "[-1, 3]");
  EXPECT_EQ(Shapes("reduce_mean", {{-1, 3}}), "[1]");
  EXPECT_EQ(Shapes("reduce_sum", {{-1, 3}}, {{"dim", Dims{1}}}), "[-1]");
  EXPECT_EQ(Shapes("var", {{-1, 3}}, {{"keep_dim", true}}), "[1, 1]");
}

TEST(NnRules, UnknownDimensionsStayUnknown) {
  EXPECT_EQ(Shapes("conv2d", {{2, 3, 5, 5}, {4, 3, -1, 3}}), "[2, 4, -1, 3]");
  EXPECT_EQ(Shapes("conv2d_transpose", {{2, 3, 5, 5}, {3, 4, -1, 3}}),
            "[2, 4, -1, 7]");
  EXPECT_EQ(Shapes("deformable_conv_v1",
                   {{2, 3, 5, 5}, {2, 18, 3, 3}, {4, 3, -1, 3}}),
            "[2, 4, -1, 3]");
  EXPECT_EQ(Shapes("grid_sampler", {{-1, 3, 5, 5}, {2, 4, 4, 2}}),
            "[2, 3, 4, 4]");
  EXPECT_EQ(Shapes("group_norm", {{2, -1, 3}}, {{"groups", int64_t{2}}}),
            "[2, -1, 3][2, 2][2, 2]");
  EXPECT_EQ(Shapes("as_complex", {{3, -1}}), "[3]");
}

TEST(LinalgRules, UnknownDimensionsStayUnknown) {
  EXPECT_EQ(Shapes("matmul_v2", {{-1, 3}, {3, 4}}), "[-1, 4]");
  EXPECT_EQ(Shapes("matmul_v2", {{2, -1}, {3, 4}}), "[2, 4]");
  EXPECT_EQ(Shapes("dot", {{-1, 3}, {-1, 3}}), "[-1, 1]");
  EXPECT_EQ(Shapes("addmm", {{4}, {-1, 3}, {3, 4}}), "[-1, 4]");
  EXPECT_EQ(Shapes("addmm", {{1, -1}, {2, 3}, {3, 4}}), "[2, 4]");
  EXPECT_EQ(Shapes("cross", {{-1, 3}, {4, 3}}), "[4, 3]");
  EXPECT_EQ(Shapes("cross", {{-1, 2}, {-1, 2}}), "[-1, 2]");
  EXPECT_EQ(Shapes("kron", {{-1, 3}, {2, 2}}), "[-1, 6]");
  EXPECT_EQ(Shapes("p_norm", {{-1, 3}}), "[-1]");
  EXPECT_EQ(Shapes("trace", {{-1, 3, 4}}), "[4]");
  EXPECT_EQ(Shapes("inverse", {{-1, 3, 3}}), "[-1, 3, 3]");
  EXPECT_EQ(Shapes("determinant", {{-1, 3, 3}}), "[-1]");
  EXPECT_EQ(Shapes("slogdeterminant", {{-1, 3, 3}}), "[2, -1]");
  EXPECT_EQ(Shapes("svd", {{-1, 3}}), "[-1, -1][-1][-1, 3]");
  EXPECT_EQ(Shapes("qr", {{5, 3}}), "[5, 3][3, 3]");
  EXPECT_EQ(Shapes("eigh", {{-1, 3, 3}}), "[-1, 3][-1, 3, 3]");
  EXPECT_EQ(Shapes("pinv", {{-1, 3}}), "[3, -1]");
  EXPECT_EQ(Shapes("solve", {{3, 3}, {-1, 3, 2}}), "[-1, 3, 2]");
}

TEST(StatRules, UnknownDimensionsStayUnknown) {
  EXPECT_EQ(Shapes("cumsum", {{-1, 3}}), "[-1, 3]");
  EXPECT_EQ(Shapes("cumsum", {{-1, 3}}, {{"flatten", true}}), "[-1]");
  EXPECT_EQ(Shapes("diff", {{-1, 3}}), "[-1, 2]");
  EXPECT_EQ(Shapes("diff", {{-1, 3}}, {{"axis", int64_t{0}}}), "[-1, 3]");
  EXPECT_EQ(Shapes("quantile", {{-1, 3}},
                   {{"q", std::vector<double>{0.5}}, {"dim", Dims{1}}}),
            "[-1][-1, 3]");
  EXPECT_EQ(Shapes("histogram", {{-1}}), "[100]");
  EXPECT_EQ(Shapes("bincount", {{-1}}), "[-1]");
}

TEST(LinalgRules, ErrorsNameTheOpAndTheShapes) {
  EXPECT_THAT(Shapes("matmul_v2", {{2, 3}, {4, 5}}),
              HasSubstr("inner dimensions differ: 3 of X against 4 of Y"));
  EXPECT_THAT(Shapes("inverse", {{2, 3}}),
              HasSubstr("inverse(Input float32 [2, 3])"));
  EXPECT_THAT(Shapes("addmm", {{3}, {2, 3}, {3, 4}}),
              HasSubstr("do not broadcast"));
  EXPECT_THAT(Shapes("cross", {{2, 2}, {2, 2}}), HasSubstr("is 3"));
  EXPECT_THAT(Shapes("solve", {{2, 2}, {3, 1}}), HasSubstr("must have 2"));
}

}  // namespace
}  // namespace fleet::program
