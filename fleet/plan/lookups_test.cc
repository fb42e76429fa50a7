// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/lookups.h"

#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/program/text.h"
#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kVariables[] = R"(
    persist trainable param emb : LOD_TENSOR.shape(100, 4).dtype(float32)
    var a : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
    var b : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
    var c : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
)";

std::string LookUp(const std::string& out, const std::string& ids,
                   const std::string& attrs = "",
                   const std::string& type = "lookup_table_v2") {
  return "{Out=['" + out + "']} = " + type + "(inputs={W=['emb'], Ids=['" +
         ids + "']}, is_sparse = True" + attrs + ")\n";
}

std::string LookUpGradient(const std::string& out, const std::string& ids,
                           const std::string& grad) {
  return "{W@GRAD=['" + out +
         "']} = lookup_table_v2_grad(inputs={W=['emb'], Ids=['" + ids +
         "'], Out@GRAD=['" + grad + "']}, is_sparse = True, op_role = 1)\n";
}

class LookupsTest : public ::testing::Test {
 protected:
  LookupsTest() {
    table_.spec = {table::TableId{3}, table::SparseTableOptions{}};
    table_.parameter = "emb";
    table_.shape = {100, 4};
  }

  void Read(const std::string& operations) {
    program_ = Parse(std::string("{") + kVariables + operations + "}");
    index_ = std::make_unique<ProgramIndex>(*program_);
  }
  // The only sparse parameter.
  SparseParameter Find() {
    auto found = FindSparseParameters(*program_, *index_);
    EXPECT_OK(found.status());
    if (!found.ok() || found->size() != 1) {
      ADD_FAILURE() << "no sparse parameter, or several";
      return {};
    }
    return found->begin()->second;
  }
  // The program whose look-ups are rewritten.
  std::string RewriteLookups(bool is_test = false) {
    Rewrite rewrite;
    plan::RewriteLookups(*index_, Find(), table_, is_test, rewrite);
    rewrite.Apply(program_->block(0));
    return Print(*program_);
  }
  // The program whose gradients of rows are, where `gradient` is what the
  // update in the last operation takes.
  Result<std::string> RewriteGradients(const std::string& gradient) {
    const ParameterUpdate update{.parameter = "emb",
                                 .op = program_->block(0).num_ops() - 1,
                                 .gradient = gradient,
                                 .options = {},
                                 .folded = {}};
    Rewrite rewrite;
    RETURN_IF_ERROR(
        RewriteRowGradients(*index_, Find(), table_, &update, rewrite));
    rewrite.Apply(program_->block(0));
    return Print(*program_);
  }

  std::unique_ptr<program::Program> program_;
  std::unique_ptr<ProgramIndex> index_;
  ServedTable table_;
};

TEST_F(LookupsTest, LookUpsOfATableAreAskedTogether) {
  Read(LookUp("ra", "a") + LookUp("rb", "b") +
       "{Out=['sum']} = elementwise_add(inputs={X=['ra'], Y=['rb']})\n");
  EXPECT_EQ(RewriteLookups(),
            "ra, rb = distributed_lookup_table(a, b)\n"
            "sum = elementwise_add(ra, rb)\n");
}

TEST_F(LookupsTest, TheQuestionHasWhatTheServerNeeds) {
  table_.bounded = true;
  Read(LookUp("ra", "a", ", padding_idx = long(7)"));
  RewriteLookups(/*is_test=*/true);
  EXPECT_THAT(
      program::ToString(*program_, {.variables = false}),
      HasSubstr("{Outputs=['ra']} = distributed_lookup_table(inputs={Ids="
                "['a']}, bound = long(100), dim = 4, is_test = True, "
                "lookup_table_version = 'lookup_table_v2', op_role = 0, "
                "padding_idx = long(7), table_id = 3, table_name = 'emb')"));
}

TEST_F(LookupsTest, AnEarlyOneWaitsForTheIdsOfALaterOne) {
  Read(LookUp("ra", "a") + "{Out=['made']} = cast(inputs={X=['c']})\n" +
       LookUp("rm", "made") +
       "{Out=['sum']} = elementwise_add(inputs={X=['ra'], Y=['rm']})\n");
  EXPECT_EQ(RewriteLookups(),
            "made = cast(c)\n"
            "ra, rm = distributed_lookup_table(a, made)\n"
            "sum = elementwise_add(ra, rm)\n");
}

TEST_F(LookupsTest, IdsThatDependOnRowsAreAskedForAfterThem) {
  Read(LookUp("ra", "a") + "{Out=['best']} = arg_max(inputs={X=['ra']})\n" +
       LookUp("rbest", "best"));
  EXPECT_EQ(RewriteLookups(),
            "ra = distributed_lookup_table(a)\n"
            "best = arg_max(ra)\n"
            "rbest = distributed_lookup_table(best)\n");
}

TEST_F(LookupsTest, OtherPaddingAndOtherShapesAreOtherQuestions) {
  Read(LookUp("ra", "a") + LookUp("rb", "b", ", padding_idx = long(0)") +
       LookUp("rc", "c", "", "lookup_table") + LookUp("rd", "a"));
  EXPECT_EQ(RewriteLookups(),
            "ra, rd = distributed_lookup_table(a, a)\n"
            "rb = distributed_lookup_table(b)\n"
            "rc = distributed_lookup_table(c)\n");
}

TEST_F(LookupsTest, AreSparseOrDistributedOrLeftAlone) {
  Read("{Out=['ra']} = lookup_table_v2(inputs={W=['emb'], Ids=['a']})\n");
  ASSERT_OK_AND_ASSIGN(const auto none,
                       FindSparseParameters(*program_, *index_));
  EXPECT_THAT(none, IsEmpty());
  Read(
      "{Out=['ra']} = lookup_table_v2(inputs={W=['emb'], Ids=['a']}, "
      "is_distributed = True, entry = 'count_filter_entry:10')\n" +
      LookUp("rb", "b"));
  const SparseParameter found = Find();
  EXPECT_TRUE(found.distributed);
  EXPECT_EQ(found.entry, "count_filter_entry:10");
  EXPECT_THAT(found.lookups, SizeIs(2));
}

TEST_F(LookupsTest, GradientsOfAllLookUpsLeaveInOnePush) {
  Read(LookUpGradient("g1", "a", "ra@GRAD") +
       LookUpGradient("g2", "b", "rb@GRAD") + R"(
    {Out=['g']} = sum(inputs={X=['g1', 'g2']}, op_role = 1)
    {Out=['w@GRAD']} = matmul_v2_grad(inputs={X=['x'], Y=['ra@GRAD']}, op_role = 1)
    {ParamOut=['emb']} = sgd(inputs={Param=['emb'], Grad=['g'], LearningRate=['rate']}, op_role = 2)
)" + LookUp("ra", "a"));
  // The update is the last but one: the look-up makes the parameter sparse.
  const ParameterUpdate update{.parameter = "emb",
                               .op = 4,
                               .gradient = "g",
                               .options = {},
                               .folded = {}};
  Rewrite rewrite;
  ASSERT_OK(RewriteRowGradients(*index_, Find(), table_, &update, rewrite));
  rewrite.Apply(program_->block(0));
  EXPECT_EQ(Print(*program_),
            " = distributed_push_sparse(a, b, ra@GRAD, rb@GRAD)\n"
            "w@GRAD = matmul_v2_grad(x, ra@GRAD)\n"
            "emb = sgd(emb, g, rate)\n"
            "ra = lookup_table_v2(emb, a)\n");
}

TEST_F(LookupsTest, ShowsAndClicksGoWithTheGradients) {
  Read(LookUp("ra", "a", ", entry = 'show_click_entry:s:k'") +
       LookUpGradient("g", "a", "ra@GRAD") +
       "{ParamOut=['emb']} = sgd(inputs={Param=['emb'], Grad=['g'], "
       "LearningRate=['rate']}, op_role = 2)\n");
  ASSERT_OK_AND_ASSIGN(const std::string text, RewriteGradients("g"));
  EXPECT_THAT(text,
              HasSubstr(" = distributed_push_sparse(a, ra@GRAD, s, k)\n"));
}

TEST_F(LookupsTest, AGradientThatSomethingElseMakesOrReadsIsRefused) {
  const std::string update =
      "{ParamOut=['emb']} = sgd(inputs={Param=['emb'], Grad=['g'], "
      "LearningRate=['rate']}, op_role = 2)\n";
  Read(LookUp("ra", "a") + LookUpGradient("raw", "a", "ra@GRAD") +
       "{Out=['g']} = clip_by_norm(inputs={X=['raw']}, op_role = 2)\n" +
       update);
  EXPECT_THAT(RewriteGradients("g"),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("comes from clip_by_norm")));
  Read(LookUp("ra", "a") + LookUpGradient("g", "a", "ra@GRAD") +
       "{Out=['norm']} = p_norm(inputs={X=['g']})\n" + update);
  EXPECT_THAT(RewriteGradients("g"),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("its gradient g is read by p_norm")));
  Read(LookUp("ra", "a") + LookUpGradient("g", "a", "ra@GRAD") +
       "{Out=['norm']} = p_norm(inputs={X=['emb']})\n" + update);
  EXPECT_THAT(RewriteGradients("g"),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("it is read by p_norm besides its look-ups")));
}

}  // namespace
}  // namespace fleet::plan
