// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/control.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"

namespace fleet::program {
namespace {

using ::testing::ElementsAre;

TEST(ControlTest, BodySlotsAreWhatABodyReadsAndWrites) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> program,
                       ParseText(R"({ // block 0
    var x : LOD_TENSOR.shape(1).dtype(float32)
    var w : LOD_TENSOR.shape(1).dtype(float32)
    var a : LOD_TENSOR.shape(1).dtype(float32)
    var flag : LOD_TENSOR.shape(1).dtype(bool)
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
}
{ // block 1, parent 0
    var s : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['s']} = sin(inputs={X=['x']})
    {Out=['a']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
)"));
  Operation& op = program->block(0).op(0);
  FillBodySlots(*program, op);
  EXPECT_THAT(op.input("Input"), ElementsAre("w", "x"));
  EXPECT_THAT(op.output("Out"), ElementsAre("a"));
  EXPECT_THAT(op.input("Cond"), ElementsAre("flag"));
}

}  // namespace
}  // namespace fleet::program
