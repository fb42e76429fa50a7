// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/ps_ops.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"
#include "fleet/testing/ps_cluster.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using served::DenseServed;
using served::PsCluster;
using served::PsMode;
using served::ServedTable;
using served::Soon;
using served::SparseServed;
using served::SynchronizerOptions;
using ::testing::HasSubstr;

constexpr char kVariables[] =
    "    var ids : LOD_TENSOR.shape(-1, 1).dtype(int64).data(True)\n"
    "    var more : LOD_TENSOR.shape(-1, 1).dtype(int32).data(True)\n"
    "    var g : LOD_TENSOR.shape(-1, 2).dtype(float32).data(True)\n"
    "    var h : LOD_TENSOR.shape(-1, 2).dtype(float32).data(True)\n"
    "    var a : LOD_TENSOR.shape(-1, 2).dtype(float32)\n"
    "    var b : LOD_TENSOR.shape(-1, 2).dtype(float32)\n"
    "    persist var w : LOD_TENSOR.shape(3).dtype(float32)\n"
    "    var w@GRAD : LOD_TENSOR.shape(3).dtype(float32)\n";

constexpr char kTable[] =
    "dim = 2, lookup_table_version = 'lookup_table', padding_idx = long(9), "
    "table_id = 0, table_name = 'emb')\n";

std::unique_ptr<program::Program> Parse(const std::string& lines) {
  auto program = program::ParseText("{ // block 0\n" + std::string(kVariables) +
                                    lines + "}\n");
  EXPECT_OK(program.status());
  return *std::move(program);
}

// One worker of one server: rows of two that begin at 1, a parameter w of three
// values, SGD with a rate of 0.5.
class ServedProgramsTest : public ::testing::Test {
 protected:
  explicit ServedProgramsTest(PsMode mode = PsMode::kSync)
      : cluster_(1, 1), client_(cluster_.Client(0)) {
    const std::vector<ServedTable> tables = {SparseServed(0, "emb", 2),
                                             DenseServed(1, "w", 3)};
    EXPECT_OK(client_->CreateTables({tables[0].spec, tables[1].spec}, Soon()));
    SynchronizerOptions options;
    options.mode = mode;
    options.timeout = std::chrono::seconds(30);
    auto made = Synchronizer::Make(*client_, tables, options);
    EXPECT_OK(made.status());
    sync_ = std::move(made).value();
    std::make_shared<ServedPrograms>(*sync_, homes_)->AddTo(executor_);
  }

  Result<std::vector<Tensor>> Run(const program::Program& program,
                                  const std::vector<exec::Feed>& feeds,
                                  const std::vector<std::string>& fetches) {
    return executor_.Run(program, scope_, feeds, fetches);
  }

  PsCluster cluster_;
  std::unique_ptr<ps::PsClient> client_;
  std::unique_ptr<Synchronizer> sync_;
  DenseHomes homes_;
  ops::OpLibrary library_;
  exec::Executor executor_{library_, {}};
  exec::Scope scope_;
};

// Several runs, so that plain and planned ones are among them.
TEST_F(ServedProgramsTest, RowsAreLookedUpAndLearn) {
  auto program = Parse(
      std::string("    {Outputs=['a', 'b']} = distributed_lookup_table("
                  "inputs={Ids=['ids', 'more']}, ") +
      kTable +
      "    {} = distributed_push_sparse(inputs={Ids=['ids', 'more'], "
      "Grads=['g', 'h']}, " +
      kTable +
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n");
  scope_.Get("w") = at::full({3}, 4.0);
  const Tensor ids = at::tensor({int64_t{4}, int64_t{9}, int64_t{4}});
  const Tensor more = at::tensor({4, 7}, at::kInt).view({2, 1});
  for (int step = 0; step < 4; ++step) {
    ASSERT_OK_AND_ASSIGN(auto rows, Run(*program,
                                        {{"ids", ids.view({3, 1})},
                                         {"more", more},
                                         {"g", at::ones({3, 2})},
                                         {"h", at::full({2, 2}, 2.0)}},
                                        {"a", "b"}));
    // Key 4 has gradients 1 + 1 + 2, key 7 has 2, and 9 is padding.
    const auto four = static_cast<float>(1 - 2.0 * step);
    const auto seven = static_cast<float>(1 - 1.0 * step);
    EXPECT_TRUE(at::equal(
        rows[0], at::tensor({four, four, 0.0f, 0.0f, four, four}).view({3, 2})))
        << rows[0];
    EXPECT_TRUE(
        at::equal(rows[1], at::tensor({four, four, seven, seven}).view({2, 2})))
        << rows[1];
  }
}

TEST_F(ServedProgramsTest, DenseParametersChangeInTheirMemory) {
  scope_.Get("w") = at::full({3}, 4.0);
  auto startup =
      Parse("    {Out=['w']} = ps_init(inputs={X=['w']}, table_ids = [1])\n");
  ASSERT_OK(Run(*startup, {}, {}).status());
  const void* const memory = scope_.Get("w").data_ptr();
  auto program = Parse(
      "    {Out=['w@GRAD']} = scale(inputs={X=['w']}, scale = 0.5)\n"
      "    {} = send(inputs={X=['w@GRAD']}, table_ids = [1])\n"
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n");
  float expected = 4;
  for (int step = 0; step < 4; ++step) {
    ASSERT_OK(Run(*program, {}, {}).status());
    expected -= 0.5f * 0.5f * expected;
    EXPECT_TRUE(at::equal(scope_.Get("w"), at::full({3}, expected)))
        << scope_.Get("w");
    EXPECT_EQ(scope_.Get("w").data_ptr(), memory);
  }
  // Where a last exchange would find them.
  ASSERT_EQ(homes_.values().size(), 1u);
  EXPECT_EQ(homes_.values()[0].values.data(), memory);
}

TEST_F(ServedProgramsTest, LoaderOfAServedParameterDoesNothing) {
  auto startup = Parse("    {Out=['w']} = fake_init(inputs={}, shape = [3])\n");
  ASSERT_OK(Run(*startup, {}, {}).status());
  EXPECT_EQ(scope_.Find("w"), nullptr);
}

TEST_F(ServedProgramsTest, ATableThatIsNotServedIsAnError) {
  auto program = Parse(
      "    {Outputs=['a']} = distributed_lookup_table(inputs={Ids=['ids']}, "
      "dim = 2, table_id = 5, table_name = 'other')\n");
  const Status status =
      Run(*program, {{"ids", at::ones({1, 1}, at::kLong)}}, {"a"}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("table 5 of other"));
}

class AsyncProgramsTest : public ServedProgramsTest {
 protected:
  AsyncProgramsTest() : ServedProgramsTest(PsMode::kAsync) {}
};

// A scope that is gone may leave its addresses to another one.
TEST_F(AsyncProgramsTest, AnotherParameterAtTheSameAddressIsFilledToo) {
  std::vector<float> memory(3);
  auto place = [&](float value) {
    scope_.Get("w") = at::from_blob(memory.data(), {3}, at::kFloat);
    scope_.Get("w").fill_(value);
  };
  place(4);
  ASSERT_OK(sync_->Initialize(std::vector<DenseValues>{{TableId{1}, memory}}));
  auto train = Parse(
      "    {Out=['w@GRAD']} = scale(inputs={X=['w']}, scale = 0.5)\n"
      "    {} = send(inputs={X=['w@GRAD']}, table_ids = [1])\n"
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n");
  auto receive = Parse(
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n");
  ASSERT_OK(Run(*train, {}, {}).status());
  ASSERT_OK(sync_->Flush({}));
  for (int run = 0; run < 3; ++run) {
    ASSERT_OK(Run(*receive, {}, {}).status());
    EXPECT_THAT(memory, ::testing::Each(3.0f));
  }
  for (int scope = 0; scope < 3; ++scope) {
    place(7);
    ASSERT_OK(Run(*receive, {}, {}).status());
    EXPECT_THAT(memory, ::testing::Each(3.0f));
  }
}

// What the servers sent is written once, whichever program asks for it.
TEST_F(AsyncProgramsTest, ValuesThatAreHereAreNotWrittenAgain) {
  scope_.Get("w") = at::full({3}, 4.0);
  auto startup =
      Parse("    {Out=['w']} = ps_init(inputs={X=['w']}, table_ids = [1])\n");
  ASSERT_OK(Run(*startup, {}, {}).status());
  auto train = Parse(
      "    {Out=['w@GRAD']} = scale(inputs={X=['w']}, scale = 0.5)\n"
      "    {} = send(inputs={X=['w@GRAD']}, table_ids = [1])\n"
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n");
  ASSERT_OK(Run(*train, {}, {}).status());
  ASSERT_OK(sync_->Flush({}));
  const std::string receive =
      "    {Out=['w']} = send_barrier(inputs={X=['w']}, table_ids = [1])\n";
  ASSERT_OK(Run(*Parse(receive), {}, {}).status());
  EXPECT_TRUE(at::equal(scope_.Get("w"), at::full({3}, 3.0f)));
  scope_.Get("w").fill_(7);
  ASSERT_OK(Run(*Parse(receive), {}, {}).status());
  EXPECT_TRUE(at::equal(scope_.Get("w"), at::full({3}, 7.0f)));
}

TEST(DenseMemories, ForgetThoseThatAreGone) {
  DenseMemories memories;
  const std::vector<Tensor> lives = {at::ones({3}), at::ones({2})};
  const std::shared_ptr<HeldValues> held = memories.Find(lives);
  for (int scope = 0; scope < 100; ++scope) {
    const std::vector<Tensor> goes = {at::ones({3}), at::ones({2})};
    EXPECT_NE(memories.Find(goes), held);
  }
  EXPECT_LE(memories.size(), 2u);
  EXPECT_EQ(memories.Find(lives), held);
  // One of them is replaced.
  EXPECT_NE(memories.Find(std::vector<Tensor>{lives[0], at::ones({2})}), held);
}

}  // namespace
}  // namespace fleet::sync
