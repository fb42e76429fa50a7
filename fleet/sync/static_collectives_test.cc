// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/static_collectives.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/text.h"
#include "fleet/testing/ranks_as_threads.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using comm::Communicator;
using exec::Executor;
using exec::Feed;
using exec::Scope;
using program::Program;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::RunRanks;

// One rank's executor.
class Runner {
 public:
  explicit Runner(Communicator& communicator, Overlap overlap = Overlap::kAuto)
      : collectives_(std::make_shared<StaticCollectives>(
            [&communicator, overlap](int64_t) -> Result<CollectiveGroup> {
              return CollectiveGroup{.communicator = &communicator,
                                     .overlap = overlap,
                                     .timeout = std::chrono::seconds(20)};
            })) {
    collectives_->AddTo(executor_);
  }

  Result<std::vector<Tensor>> Run(const Program& program,
                                  const std::vector<Feed>& feeds,
                                  const std::vector<std::string>& fetches) {
    return executor_.Run(program, scope_, feeds, fetches);
  }
  Scope& scope() { return scope_; }

 private:
  ops::OpLibrary library_;
  Executor executor_{library_, {}};
  std::shared_ptr<StaticCollectives> collectives_;
  Scope scope_;
};

std::unique_ptr<Program> Parse(const std::string& lines) {
  Result<std::unique_ptr<Program>> program =
      program::ParseText("{ // block 0\n" + lines + "}\n");
  EXPECT_OK(program.status());
  return *std::move(program);
}

Tensor Filled(double value, int64_t count = 3) {
  return at::full({count}, value, at::kFloat);
}

bool IsFilled(const Tensor& tensor, double value) {
  return at::equal(tensor, at::full(tensor.sizes(), value, at::kFloat));
}

constexpr char kX[] =
    "    var x : LOD_TENSOR.shape(-1).dtype(float32).data(True)\n"
    "    var g : LOD_TENSOR.shape(-1).dtype(float32)\n"
    "    var h : LOD_TENSOR.shape(-1).dtype(float32)\n";

// g = 2 x and h = 4 x as one bucket.
std::string TwoGradients(const std::string& start_attrs) {
  return std::string(kX) +
         "    {Out=['g']} = scale(inputs={X=['x']}, scale = 2.0)\n"
         "    {Out=['h']} = scale(inputs={X=['x']}, scale = 4.0)\n"
         "    {Out=['g', 'h']} = c_allreduce_start(inputs={X=['g', 'h']}, " +
         start_attrs +
         "bucket = 0)\n"
         "    {Out=['g', 'h']} = c_allreduce_wait(inputs={X=['g', 'h']}, "
         "bucket = 0)\n";
}

class Overlapping : public ::testing::TestWithParam<Overlap> {};

TEST_P(Overlapping, BucketsHoldTheMeanOfAllRanks) {
  RunRanks(3, [](Communicator& c) {
    Runner runner(c, GetParam());
    auto program = Parse(TwoGradients("average = True, "));
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK_AND_ASSIGN(
          auto got,
          runner.Run(*program, {{"x", Filled(c.rank() + step)}}, {"g", "h"}));
      EXPECT_TRUE(IsFilled(got[0], 2 * (1 + step))) << got[0];
      EXPECT_TRUE(IsFilled(got[1], 4 * (1 + step))) << got[1];
    }
  });
}

TEST_P(Overlapping, OrTheirSum) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c, GetParam());
    auto program = Parse(TwoGradients("blocking = True, "));
    ASSERT_OK_AND_ASSIGN(
        auto got, runner.Run(*program, {{"x", Filled(c.rank() + 1)}}, {"h"}));
    EXPECT_TRUE(IsFilled(got[0], 12)) << got[0];
  });
}

// Their memory is the same: nobody may see it, whatever a rank looks at.
TEST_P(Overlapping, BriefBucketsHoldTheirMeansApart) {
  const auto program = Parse(
      std::string(kX) +
      "    var a : LOD_TENSOR.shape(-1).dtype(float32)\n"
      "    var b : LOD_TENSOR.shape(-1).dtype(float32)\n"
      "    {Out=['g']} = scale(inputs={X=['x']}, scale = 2.0)\n"
      "    {Out=['g']} = c_allreduce_start(inputs={X=['g']}, average = True, "
      "blocking = True, brief = True, bucket = 0)\n"
      "    {Out=['a']} = scale(inputs={X=['g']}, scale = 10.0)\n"
      "    {Out=['h']} = scale(inputs={X=['x']}, scale = 4.0)\n"
      "    {Out=['h']} = c_allreduce_start(inputs={X=['h']}, average = True, "
      "blocking = True, brief = True, bucket = 1)\n"
      "    {Out=['b']} = scale(inputs={X=['h']}, scale = 10.0)\n");
  const std::map<std::string, double> expected = {
      {"g", 2}, {"h", 4}, {"a", 20}, {"b", 40}};
  using Names = std::vector<std::string>;
  for (const auto& [first, second] :
       {std::pair<Names, Names>{{"a", "b"}, {"a", "b"}},
        {{"g", "h"}, {"g", "h"}},
        {{"g", "a", "b"}, {"b"}}}) {
    RunRanks(2, [&](Communicator& c) {
      Runner runner(c, GetParam());
      const Names& fetches = c.rank() == 0 ? first : second;
      // The second shape makes another schedule; later runs have a plan.
      for (int64_t count : {30, 50, 50, 30, 30, 50}) {
        const int64_t step = count / 10;
        ASSERT_OK_AND_ASSIGN(
            auto got,
            runner.Run(*program, {{"x", Filled(2 * step * c.rank(), count)}},
                       fetches));
        for (size_t i = 0; i < fetches.size(); ++i) {
          EXPECT_TRUE(IsFilled(
              got[i], static_cast<double>(step) * expected.at(fetches[i])))
              << fetches[i] << got[i];
        }
      }
    });
  }
}

TEST_P(Overlapping, SeveralBucketsAreUnderWayAtOnce) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c, GetParam());
    auto program = Parse(
        std::string(kX) +
        "    {Out=['g']} = scale(inputs={X=['x']}, scale = 2.0)\n"
        "    {Out=['g']} = c_allreduce_start(inputs={X=['g']}, average = True, "
        "bucket = 0)\n"
        "    {Out=['h']} = scale(inputs={X=['x']}, scale = 4.0)\n"
        "    {Out=['h']} = c_allreduce_start(inputs={X=['h']}, average = True, "
        "bucket = 1)\n"
        "    {Out=['g']} = c_allreduce_wait(inputs={X=['g']}, bucket = 0)\n"
        "    {Out=['h']} = c_allreduce_wait(inputs={X=['h']}, bucket = 1)\n");
    // The second shape makes another schedule, and other buckets.
    for (int64_t count : {3, 5, 3}) {
      ASSERT_OK_AND_ASSIGN(
          auto got,
          runner.Run(*program, {{"x", Filled(c.rank(), count)}}, {"g", "h"}));
      EXPECT_TRUE(IsFilled(got[0], 1)) << got[0];
      EXPECT_TRUE(IsFilled(got[1], 2)) << got[1];
    }
  });
}

TEST_P(Overlapping, AGradientMayBeOneNumberSeenAsMany) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c, GetParam());
    auto program = Parse(
        "    var x : LOD_TENSOR.shape(1).dtype(float64).data(True)\n"
        "    var g : LOD_TENSOR.shape(3).dtype(float64)\n"
        "    {Out=['g']} = expand_v2(inputs={X=['x']}, shape = [3])\n"
        "    {Out=['g']} = c_allreduce_start(inputs={X=['g']}, average = True, "
        "bucket = 0)\n"
        "    {Out=['g']} = c_allreduce_wait(inputs={X=['g']}, bucket = 0)\n");
    for (int step = 0; step < 3; ++step) {
      const Tensor x = at::full({1}, c.rank() + step, at::kDouble);
      ASSERT_OK_AND_ASSIGN(auto got, runner.Run(*program, {{"x", x}}, {"g"}));
      EXPECT_TRUE(at::equal(got[0], at::full({3}, 0.5 + step, at::kDouble)))
          << got[0];
    }
  });
}

INSTANTIATE_TEST_SUITE_P(StaticCollectives, Overlapping,
                         ::testing::Values(Overlap::kNo, Overlap::kYes),
                         [](const auto& info) {
                           return info.param == Overlap::kYes ? "OnAThread"
                                                              : "OnTheSpot";
                         });

TEST(StaticCollectives, DifferentGradientsAreAnErrorThatNamesThem) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c);
    std::string text = TwoGradients("");
    if (c.rank() == 1) {
      for (size_t at = 0; (at = text.find("'h'", at)) != std::string::npos;) {
        text.replace(at, 3, "'k'");
      }
    }
    auto program = Parse(text);
    Status status = runner.Run(*program, {{"x", Filled(1)}}, {"g"}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("c_allreduce_start"));
    EXPECT_THAT(status.message(),
                HasSubstr("rank 0 has the gradient h Float [3] where"));
    EXPECT_THAT(status.message(), HasSubstr("rank 1 has the gradient k"));
  });
}

TEST(StaticCollectives, DifferentUpdatesAreAnError) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c);
    auto program =
        Parse(TwoGradients(c.rank() == 0 ? "updates = '2 x sgd, 1', "
                                         : "updates = '2 x adam, 2', "));
    Status status = runner.Run(*program, {{"x", Filled(1)}}, {"g"}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                HasSubstr("rank 0 has the updates [2 x sgd, 1] where rank 1 "
                          "has the updates [2 x adam, 2]"));
  });
}

TEST(StaticCollectives, ARankThatIsGoneIsNamed) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c);
    auto program = Parse(TwoGradients("average = True, "));
    ASSERT_OK(runner.Run(*program, {{"x", Filled(1)}}, {"g"}).status());
    if (c.rank() == 1) {
      c.Abort(Unavailable("rank 1 has enough"));
      return;
    }
    Status status = runner.Run(*program, {{"x", Filled(1)}}, {"g"}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    // It may have begun before the other rank gave up.
    EXPECT_THAT(status.message(), AnyOf(HasSubstr("c_allreduce_start"),
                                        HasSubstr("c_allreduce_wait")));
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  });
}

TEST(StaticCollectives, StateComesFromRankZero) {
  RunRanks(3, [](Communicator& c) {
    Runner runner(c);
    const std::string value = std::to_string(c.rank() + 5) + ".0";
    auto program = Parse(
        "    persist trainable param w : LOD_TENSOR.shape(2, 2)"
        ".dtype(float32)\n"
        "    persist var n : LOD_TENSOR.shape(1).dtype(int64)\n"
        "    {Out=['w']} = fill_constant(inputs={}, dtype = 5, "
        "shape = [2, 2], value = " +
        value +
        ")\n"
        "    {Out=['n']} = fill_constant(inputs={}, dtype = 3, shape = [1], "
        "value = " +
        value +
        ")\n"
        "    {Out=['w', 'n']} = c_broadcast_state(inputs={X=['w', 'n']}, "
        "root = 0)\n");
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(runner.Run(*program, {}, {}).status());
      EXPECT_TRUE(IsFilled(runner.scope().Get("w"), 5));
      EXPECT_EQ(runner.scope().Get("n").item<int64_t>(), 5);
      runner.scope().Get("w").zero_();
    }
  });
}

TEST(StaticCollectives, DifferentStateIsAnErrorThatNamesIt) {
  RunRanks(2, [](Communicator& c) {
    Runner runner(c);
    auto program = Parse(
        "    persist trainable param w : LOD_TENSOR.shape(2).dtype(float32)\n"
        "    {Out=['w']} = fill_constant(inputs={}, dtype = 5, shape = [" +
        std::to_string(c.rank() + 2) +
        "], value = 1.0)\n"
        "    {Out=['w']} = c_broadcast_state(inputs={X=['w']}, root = 0)\n");
    Status status = runner.Run(*program, {}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("variable 0 of rank 0 is 'w'"));
  });
}

// What `op` makes of x = [rank + 2, ...] of four elements.
Result<Tensor> RunPlain(Communicator& c, const std::string& op,
                        const std::string& out = "g") {
  Runner runner(c);
  auto program =
      Parse(std::string(kX) +
            "    {Out=['h']} = scale(inputs={X=['x']}, scale = 1.0)\n"
            "    {Out=['" +
            out + "']} = " + op + "\n");
  Result<std::vector<Tensor>> got =
      runner.Run(*program, {{"x", Filled(c.rank() + 2, 4)}}, {out, "x"});
  if (!got.ok()) return got.status();
  EXPECT_TRUE(IsFilled((*got)[1], c.rank() + 2));
  return (*got)[0];
}

TEST(StaticCollectives, PaddlesReductions) {
  const std::vector<std::pair<std::string, double>> expected = {
      {"sum", 9}, {"max", 4}, {"min", 2}, {"prod", 24}};
  for (const auto& [name, value] : expected) {
    RunRanks(3, [&](Communicator& c) {
      const std::string op = "c_allreduce_" + name;
      ASSERT_OK_AND_ASSIGN(Tensor apart,
                           RunPlain(c, op + "(inputs={X=['x']}, ring_id = 0)"));
      EXPECT_TRUE(IsFilled(apart, value)) << op << apart;
      ASSERT_OK_AND_ASSIGN(
          Tensor in_place,
          RunPlain(c, op + "(inputs={X=['h']}, ring_id = 0)", "h"));
      EXPECT_TRUE(IsFilled(in_place, value)) << op << in_place;
    });
  }
}

TEST(StaticCollectives, PaddlesOtherCalls) {
  RunRanks(2, [](Communicator& c) {
    ASSERT_OK_AND_ASSIGN(
        Tensor sent, RunPlain(c, "c_broadcast(inputs={X=['x']}, root = 1)"));
    EXPECT_TRUE(IsFilled(sent, 3)) << sent;
    ASSERT_OK_AND_ASSIGN(
        Tensor all, RunPlain(c, "c_allgather(inputs={X=['x']}, nranks = 2)"));
    EXPECT_TRUE(
        at::equal(all, at::tensor({2, 2, 2, 2, 3, 3, 3, 3}, at::kFloat)))
        << all;
    ASSERT_OK_AND_ASSIGN(
        Tensor part,
        RunPlain(c, "c_reducescatter(inputs={X=['x']}, nranks = 2)"));
    EXPECT_EQ(part.numel(), 2);
    EXPECT_TRUE(IsFilled(part, 5)) << part;
    ASSERT_OK_AND_ASSIGN(
        Tensor same,
        RunPlain(c, "c_sync_comm_stream(inputs={X=['h']}, ring_id = 0)", "h"));
    EXPECT_TRUE(IsFilled(same, c.rank() + 2)) << same;
  });
}

TEST(StaticCollectives, AGroupThatDoesNotExist) {
  ops::OpLibrary library;
  Executor executor(library, {});
  Scope scope;
  auto collectives = std::make_shared<StaticCollectives>(
      [](int64_t ring) -> Result<CollectiveGroup> {
        return NotFound("there is no group ", ring);
      });
  collectives->AddTo(executor);
  auto program = Parse(std::string(kX) +
                       "    {Out=['g']} = c_allreduce_sum(inputs={X=['x']}, "
                       "ring_id = 7)\n");
  Status status =
      executor.Run(*program, scope, {{"x", Filled(1)}}, {"g"}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("there is no group 7"));
}

}  // namespace
}  // namespace fleet::sync
