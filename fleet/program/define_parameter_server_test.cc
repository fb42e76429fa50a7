// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/program.h"
#include "fleet/program/text.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

// The program of `op`, the last of its operations, with its types worked out.
class ParameterServerOps : public ::testing::Test {
 protected:
  ParameterServerOps() { DefineAllOps(registry_); }

  Status Infer(const std::string& op) {
    auto parsed = ParseText(
        "{\nvar ids : LOD_TENSOR.shape(-1, 3, 1).dtype(int64)\n"
        "var flat : LOD_TENSOR.shape(-1).dtype(int32)\n"
        "var x : LOD_TENSOR.shape(4, 2).dtype(float32)\n"
        "var g : LOD_TENSOR.shape(-1, 3, 8).dtype(float32)\n" +
        op + "\n}");
    RETURN_IF_ERROR(parsed.status());
    program_ = *std::move(parsed);
    return program_->block(0).InferTypes(registry_, program_->block(0).op(0));
  }
  const Dims& dims(const std::string& name) const {
    return program_->block(0).Find(name)->type.dims;
  }

 private:
  OpRegistry registry_;
  std::unique_ptr<Program> program_;
};

TEST_F(ParameterServerOps, RowsHaveTheShapeOfTheirIds) {
  ASSERT_OK(Infer(
      "{Outputs=['a', 'b']} = distributed_lookup_table(inputs={Ids=['ids', "
      "'flat']}, dim = 8, table_id = 0, table_name = 'emb')"));
  EXPECT_EQ(dims("a"), (Dims{-1, 3, 1, 8}));
  EXPECT_EQ(dims("b"), (Dims{-1, 8}));
  ASSERT_OK(
      Infer("{Outputs=['a']} = distributed_lookup_table(inputs={Ids=['ids']}, "
            "dim = 8, lookup_table_version = 'lookup_table', table_id = 0, "
            "table_name = 'emb')"));
  EXPECT_EQ(dims("a"), (Dims{-1, 3, 8}));
}

TEST_F(ParameterServerOps, IdsAreIntegersOfTheRightShape) {
  EXPECT_THAT(
      Infer("{Outputs=['a']} = distributed_lookup_table(inputs={Ids=['x']}, "
            "dim = 8, table_id = 0, table_name = 'emb')"),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("ids must be int64 or int32, not float32")));
  EXPECT_THAT(
      Infer("{Outputs=['a']} = distributed_lookup_table(inputs={Ids=['ids']}, "
            "dim = 8, lookup_table_version = 'v3', table_id = 0, "
            "table_name = 'emb')"),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("'v3'")));
  EXPECT_THAT(
      Infer("{} = distributed_push_sparse(inputs={Ids=['ids', 'flat'], "
            "Grads=['g']}, dim = 8, table_id = 0, table_name = 'emb')"),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("2 Ids but 1 Grads")));
}

TEST_F(ParameterServerOps, EveryTensorHasATable) {
  EXPECT_OK(Infer("{} = send(inputs={X=['x', 'g']}, table_ids = [1, 2])"));
  EXPECT_THAT(Infer("{} = send(inputs={X=['x', 'g']}, table_ids = [1])"),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("2 tensors in X but 1 table_ids")));
  for (const char* type : {"send_barrier", "recv", "geo_step", "ps_init"}) {
    EXPECT_OK(Infer("{Out=['x']} = " + std::string(type) +
                    "(inputs={X=['x']}, table_ids = [1])"));
    EXPECT_EQ(dims("x"), (Dims{4, 2}));
    EXPECT_OK(Infer("{Out=[]} = " + std::string(type) +
                    "(inputs={X=[]}, table_ids = ints[])"));
  }
}

}  // namespace
}  // namespace fleet::program
