// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/sync_batch_norm.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

// What the pass makes of a main block with these lines.
std::string Rewritten(const std::string& lines, bool expected) {
  Result<std::unique_ptr<program::Program>> made =
      program::ParseText("{ // block 0\n" + lines + "}\n");
  EXPECT_OK(made.status());
  program::Program& program = **made;
  const uint64_t version = program.version();
  EXPECT_EQ(SyncBatchNorm(program), expected);
  EXPECT_EQ(program.version() > version, expected);
  return program::ToString(program);
}

TEST(SyncBatchNorm, ReplacesThoseThatTrainAndTheirGradients) {
  EXPECT_EQ(Rewritten("    {Y=['y']} = batch_norm(inputs={X=['x']})\n"
                      "    {Out=['z']} = relu(inputs={X=['y']})\n"
                      "    {X@GRAD=['x@GRAD']} = batch_norm_grad("
                      "inputs={X=['x'], Y@GRAD=['y@GRAD']})\n",
                      true),
            "{ // block 0\n"
            "    {Y=['y']} = sync_batch_norm(inputs={X=['x']})\n"
            "    {Out=['z']} = relu(inputs={X=['y']})\n"
            "    {X@GRAD=['x@GRAD']} = sync_batch_norm_grad("
            "inputs={X=['x'], Y@GRAD=['y@GRAD']})\n"
            "}\n");
}

TEST(SyncBatchNorm, ThoseThatEvaluateStay) {
  const std::string lines =
      "    {Y=['y']} = batch_norm(inputs={X=['x']}, is_test = True)\n"
      "    {Y=['z']} = batch_norm(inputs={X=['y']}, use_global_stats = True)\n";
  EXPECT_EQ(Rewritten(lines, false), "{ // block 0\n" + lines + "}\n");
}

}  // namespace
}  // namespace fleet::plan
