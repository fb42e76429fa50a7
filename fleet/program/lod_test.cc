// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/lod.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"
#include "fleet/program/wire.h"

namespace fleet::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LodTest : public ::testing::Test {
 protected:
  LodTest() {
    DefineAllOps(registry_);
    block().AddVariable({.name = "ids",
                         .type = {DType::kInt64, {-1, 1}},
                         .stop_gradient = true,
                         .is_data = true});
    MakeSequence(block(), "ids");
    block().AddVariable({.name = "w",
                         .type = {DType::kFloat32, {100, 8}},
                         .persistable = true});
    block().AddVariable({.name = "x", .type = {DType::kFloat32, {-1, 4}}});
  }
  Block& block() { return program_.block(0); }
  Status Append(const std::string& type, Slots inputs, Slots outputs,
                AttrMap attrs = {}) {
    Operation op{.type = type,
                 .inputs = std::move(inputs),
                 .outputs = std::move(outputs),
                 .attrs = std::move(attrs),
                 .made_at = "net.py:3"};
    RETURN_IF_ERROR(CompleteLod(registry_, block(), op));
    return block().InferTypes(registry_, block().Append(std::move(op)));
  }
  std::string LodOf(const std::string& name) { return block().Find(name)->lod; }
  void MakeNet() {
    ASSERT_OK(Append("lookup_table", {{"W", {"w"}}, {"Ids", {"ids"}}},
                     {{"Out", {"emb"}}}));
    ASSERT_OK(Append("relu", {{"X", {"emb"}}}, {{"Out", {"act"}}}));
    ASSERT_OK(Append("sequence_pool", {{"X", {"act"}}}, {{"Out", {"pool"}}},
                     {{"pooltype", {AttrKind::kString, std::string("SUM")}}}));
    ASSERT_OK(Append("mean", {{"X", {"pool"}}}, {{"Out", {"loss"}}}));
  }

  OpRegistry registry_;
  Program program_;
};

TEST_F(LodTest, RowsKeepTheirOffsetsUntilTheyArePooled) {
  MakeNet();
  EXPECT_EQ(LodOf("emb"), "ids@LOD");
  EXPECT_EQ(LodOf("act"), "ids@LOD");
  EXPECT_EQ(LodOf("pool"), "");
  EXPECT_EQ(block().Find("pool")->type.dims, (Dims{-1, 8}));
  EXPECT_THAT(block().op(2).input("Lod"), ElementsAre("ids@LOD"));
  EXPECT_TRUE(block().Find("ids@LOD")->is_data);
}

TEST_F(LodTest, NewSequencesGetOffsetsOfTheirOwn) {
  ASSERT_OK(Append("lookup_table", {{"W", {"w"}}, {"Ids", {"ids"}}},
                   {{"Out", {"emb"}}}));
  ASSERT_OK(
      Append("sequence_concat", {{"X", {"emb", "emb"}}}, {{"Out", {"both"}}}));
  EXPECT_THAT(block().op(1).input("Lod"), ElementsAre("ids@LOD", "ids@LOD"));
  EXPECT_EQ(LodOf("both"), "both@LOD");
  EXPECT_EQ(block().Find("both@LOD")->type.dtype, DType::kInt64);
  ASSERT_OK(Append("sequence_expand", {{"X", {"x"}}, {"Y", {"both"}}},
                   {{"Out", {"wide"}}}));
  EXPECT_THAT(block().op(2).input("YLod"), ElementsAre("both@LOD"));
  EXPECT_TRUE(block().op(2).input("XLod").empty());
  EXPECT_EQ(LodOf("wide"), "wide@LOD");
  ASSERT_OK(Append("sequence_reverse", {{"X", {"wide"}}}, {{"Y", {"back"}}}));
  EXPECT_EQ(LodOf("back"), "wide@LOD");
}

TEST_F(LodTest, OpsThatMoveRowsLoseTheOffsets) {
  ASSERT_OK(Append("lookup_table", {{"W", {"w"}}, {"Ids", {"ids"}}},
                   {{"Out", {"emb"}}}));
  ASSERT_OK(Append("transpose2", {{"X", {"emb"}}}, {{"Out", {"t"}}},
                   {{"axis", {AttrKind::kInts, std::vector<int64_t>{1, 0}}}}));
  EXPECT_EQ(LodOf("t"), "");
  ASSERT_OK(
      Append("reshape2", {{"X", {"emb"}}}, {{"Out", {"r"}}},
             {{"shape", {AttrKind::kInts, std::vector<int64_t>{-1, 4}}}}));
  EXPECT_EQ(LodOf("r"), "");
}

TEST_F(LodTest, AnOrdinaryTensorIsNoSequence) {
  Status status = Append("sequence_pool", {{"X", {"x"}}}, {{"Out", {"pool"}}});
  EXPECT_THAT(status.message(),
              HasSubstr("net.py:3: sequence_pool: x is no sequence"));
}

TEST_F(LodTest, PaddlesFormHasNoOffsetsAndTheyComeBack) {
  MakeNet();
  const std::string bytes = Serialize(program_);
  EXPECT_THAT(bytes, ::testing::Not(HasSubstr("@LOD")));
  EXPECT_THAT(bytes, ::testing::Not(HasSubstr("Lod")));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> read, Parse(bytes));
  ASSERT_OK(RestoreLod(registry_, *read));
  EXPECT_EQ(read->block(0).Find("act")->lod, "ids@LOD");
  EXPECT_EQ(ToString(*read, {.variables = false}),
            ToString(program_, {.variables = false}));
}

}  // namespace
}  // namespace fleet::program
