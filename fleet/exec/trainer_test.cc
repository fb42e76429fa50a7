// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/trainer.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/data/dataset.h"
#include "fleet/plan/backward.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/lod.h"

namespace fleet::exec {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 330;
constexpr int64_t kBatch = 32;

// y = 2 x0 - x1, learned by a linear model over lines of a file.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    program::DefineAllOps(registry_);
    AddVariable("x", {-1, 2}).is_data = true;
    AddVariable("y", {-1, 1}).is_data = true;
    for (const char* name : {"x", "y"})
      block().Find(name)->stop_gradient = true;
    AddVariable("w", {2, 1}).persistable = true;
    AddVariable("rate", {1}).persistable = true;
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
    Append("elementwise_sub", {{"X", {"h"}}, {"Y", {"y"}}},
           {{"Out", {"error"}}});
    Append("square", {{"X", {"error"}}}, {{"Out", {"squares"}}});
    Append("reduce_mean", {{"X", {"squares"}}}, {{"Out", {"loss"}}});
    EXPECT_OK(
        plan::AppendBackward(registry_, program_, {{"loss", ""}}, {}).status());
    block().Append({.type = "sgd",
                    .inputs = {{"Param", {"w"}},
                               {"Grad", {"w@GRAD"}},
                               {"LearningRate", {"rate"}}},
                    .outputs = {{"ParamOut", {"w"}}}});
    Reset(scope_);

    path_ = ::testing::TempDir() + "/trainer_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream file(path_);
    for (int64_t i = 0; i < kSamples; ++i) {
      const float a = static_cast<float>(i % 17) / 16;
      const float b = static_cast<float>(i % 5) / 4;
      file << "2 " << a << " " << b << " 1 " << 2 * a - b << " 1 " << i << "\n";
    }
  }
  ~TrainerTest() override { std::remove(path_.c_str()); }

  static void Reset(Scope& scope) {
    scope.Get("w") = at::zeros({2, 1});
    scope.Get("rate") = at::full({1}, 0.1);
  }
  program::Block& block() { return program_.block(0); }
  program::Variable& AddVariable(const std::string& name, program::Dims dims) {
    return block().AddVariable(
        {.name = name, .type = {program::DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, program::Slots inputs,
              program::Slots outputs) {
    ASSERT_OK(block().InferTypes(registry_,
                                 block().Append({.type = type,
                                                 .inputs = std::move(inputs),
                                                 .outputs = std::move(outputs),
                                                 .made_at = "net.py:5"})));
  }

  // One pass over the file; a slot "id" is there that the program lacks.
  std::unique_ptr<data::BatchSource> Pass() {
    data::DatasetOptions options{
        .slots = {{.name = "x", .type = data::SlotType::kFloat32, .dims = {2}},
                  {.name = "y", .type = data::SlotType::kFloat32, .dims = {1}},
                  {.name = "id", .dims = {1}}}};
    auto dataset = *data::QueueDataset::Make(options);
    dataset->SetFiles({path_});
    return dataset->BeginPass({.batch_size = kBatch});
  }
  TrainOptions Options(int num_threads = 1) {
    TrainOptions options;
    options.num_threads = num_threads;
    options.print = [this](const std::string& line) { lines_.push_back(line); };
    return options;
  }
  Result<TrainStats> Train(const TrainOptions& options) {
    auto pass = Pass();
    return trainer_.Run(program_, scope_, *pass, options);
  }

  program::OpRegistry registry_;
  program::Program program_;
  ops::OpLibrary library_;
  Scope scope_;
  Trainer trainer_{[this] {
                     ++num_executors_;
                     return std::make_unique<Executor>(library_,
                                                       ops::Context{});
                   },
                   at::kCPU};
  int num_executors_ = 0;
  std::string path_;
  std::vector<std::string> lines_;
};

TEST_F(TrainerTest, OneThreadIsALoopOverTheExecutor) {
  TrainOptions options = Options();
  options.fetches = {"loss"};
  at::Tensor last;
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_OK_AND_ASSIGN(TrainStats stats, Train(options));
    EXPECT_EQ(stats.num_samples, static_cast<uint64_t>(kSamples));
    EXPECT_EQ(stats.num_batches, 11u);
    last = stats.fetched[0];
  }
  EXPECT_EQ(num_executors_, 1);

  Scope other;
  Reset(other);
  Executor executor(library_, {});
  at::Tensor loss;
  for (int epoch = 0; epoch < 3; ++epoch) {
    auto pass = Pass();
    data::Batch batch;
    while (
        *pass->Next(batch, base::Deadline::After(std::chrono::seconds(30)))) {
      const auto n = static_cast<int64_t>(batch.num_samples());
      auto wrap = [&](size_t column, int64_t width) {
        return at::from_blob(
            const_cast<float*>(batch.columns()[column].floats.data()),
            {n, width}, at::TensorOptions(at::kFloat));
      };
      ASSERT_OK_AND_ASSIGN(
          auto fetched,
          executor.Run(program_, other, {{"x", wrap(0, 2)}, {"y", wrap(1, 1)}},
                       {"loss"}));
      loss = fetched[0];
    }
  }
  EXPECT_TRUE(at::equal(scope_.Get("w"), other.Get("w")));
  EXPECT_TRUE(at::equal(last, loss));
}

TEST_F(TrainerTest, ThreadsShareWhatIsLearned) {
  for (int epoch = 0; epoch < 60; ++epoch) {
    ASSERT_OK_AND_ASSIGN(TrainStats stats, Train(Options(3)));
    EXPECT_EQ(stats.num_samples, static_cast<uint64_t>(kSamples));
  }
  EXPECT_EQ(num_executors_, 3);
  at::Tensor wanted = at::full({2, 1}, 2.0);
  wanted[1][0] = -1.0;
  EXPECT_TRUE(at::allclose(scope_.Get("w"), wanted, 0, 0.05))
      << scope_.Get("w")[0].item<float>() << " "
      << scope_.Get("w")[1].item<float>();
  EXPECT_EQ(scope_.names().size(), 2u);
}

TEST_F(TrainerTest, TellsHowManyThreadsTakePart) {
  TrainOptions options = Options(2);
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
  options.on_threads = [&](int n) { begun += n; };
  options.on_thread_end = [&] { ++ended; };
  ASSERT_OK(Train(options).status());
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 2);
}

TEST_F(TrainerTest, PrintsEveryPeriod) {
  TrainOptions options = Options();
  options.fetches = {"loss", "h"};
  options.fetch_names = {"the loss"};
  options.print_period = 4;
  options.debug = true;
  ASSERT_OK(Train(options).status());
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_THAT(lines_[0], HasSubstr("batch 4, 128 samples, "));
  EXPECT_THAT(lines_[0], HasSubstr(" samples/s, the loss: [0."));
  EXPECT_THAT(lines_[0], HasSubstr("h: [0"));
  EXPECT_THAT(lines_[0], HasSubstr("... of 32]"));
  EXPECT_THAT(lines_[1], HasSubstr("batch 8, 256 samples"));
  EXPECT_THAT(lines_[2], HasSubstr("thread 0: 11 batches"));
}

// By Run in the calling thread, by its outcome in another one.
TEST_F(TrainerTest, AnExceptionEndsTheRunAndNotTheProcess) {
  TrainOptions options = Options(3);
  options.fetches = {"loss"};
  options.print_period = 1;
  std::atomic<int> num_lines = 0;
  std::atomic<int> ended = 0;
  options.on_thread_end = [&] { ++ended; };
  options.print = [&](const std::string&) {
    // The first is printed before the threads begin.
    if (++num_lines > 1) throw std::runtime_error("cannot print");
  };
  try {
    EXPECT_THAT(Train(options),
                StatusIs(StatusCode::kInternal, HasSubstr("cannot print")));
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot print");
  }
  EXPECT_EQ(ended, 3);
}

TEST_F(TrainerTest, SaysNothingWhenNothingIsAskedFor) {
  TrainOptions options = Options();
  options.print_period = 1;
  ASSERT_OK(Train(options).status());
  EXPECT_TRUE(lines_.empty());
}

TEST_F(TrainerTest, SomebodyLooksAtVariables) {
  TrainOptions options = Options(2);
  options.watch.names = {"loss", "w"};
  std::vector<at::Tensor> seen;
  options.watch.look = [&](const std::vector<at::Tensor>& values) {
    seen = values;
    return OkStatus();
  };
  ASSERT_OK(Train(options).status());
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].sizes(), at::IntArrayRef({2, 1}));

  options.watch.look = [&](const auto&) { return Unavailable("seen enough"); };
  EXPECT_THAT(Train(options).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("seen enough")));
}

TEST_F(TrainerTest, AnErrorOfAStepEndsAllAndNamesBatchAndFile) {
  AddVariable("v", {2, 1}).persistable = true;
  scope_.Get("v") = at::zeros({2, 1});
  scope_.Get("w") = at::zeros({7, 1});
  for (int threads : {1, 2}) {
    const Status status = Train(Options(threads)).status();
    EXPECT_THAT(status.message(), HasSubstr("train_from_dataset: batch 1 ("));
    EXPECT_THAT(status.message(), HasSubstr("32 samples from " + path_));
    EXPECT_THAT(status.message(), HasSubstr("net.py:5: matmul_v2"));
  }
}

TEST_F(TrainerTest, AnErrorOfTheDataEndsAll) {
  std::ofstream(path_, std::ios::app) << "2 1 x 1 1 1 1\n";
  const Status status = Train(Options(2)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr(path_ + ":331: slot 'x' (1 of 3): expected a number"));
}

TEST_F(TrainerTest, APassWithoutABatchIsAnError) {
  data::DatasetOptions options{
      .slots = {{.name = "x", .type = data::SlotType::kFloat32, .dims = {2}},
                {.name = "y", .type = data::SlotType::kFloat32, .dims = {1}},
                {.name = "id", .dims = {1}}}};
  const auto why = [&](data::BatchSource& pass) {
    const Status status =
        trainer_.Run(program_, scope_, pass, Options(2)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const data::PassOptions large = {.batch_size = 1000, .drop_last = true};
  auto queue = *data::QueueDataset::Make(options);
  EXPECT_EQ(why(*queue->BeginPass({.batch_size = kBatch})),
            "train_from_dataset: the dataset gave no batch, so nothing ran: it "
            "has no files");
  queue->SetFiles({path_});
  EXPECT_THAT(why(*queue->BeginPass(large)),
              HasSubstr("330 samples do not fill a batch of 1000"));
  auto memory = *data::InMemoryDataset::Make(options);
  memory->SetFiles({});
  ASSERT_OK(memory->Load({}));
  EXPECT_THAT(why(*memory->BeginPass({.batch_size = kBatch})),
              HasSubstr("no samples in memory: it was loaded from no files"));
  memory->SetFiles({path_});
  ASSERT_OK(memory->Load({}));
  EXPECT_THAT(why(*memory->BeginPass(large)),
              HasSubstr("330 samples do not fill a batch of 1000"));
  std::ofstream(path_, std::ios::trunc).close();
  EXPECT_THAT(why(*queue->BeginPass({.batch_size = kBatch})),
              HasSubstr("its files hold no samples"));
}

TEST_F(TrainerTest, AnInterruptEndsAll) {
  TrainOptions options = Options(2);
  options.interrupt = [] { return Unavailable("^C"); };
  EXPECT_THAT(Train(options).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("^C")));
}

TEST_F(TrainerTest, RefusesWhatCannotWork) {
  EXPECT_THAT(Train(Options(0)).status().message(), HasSubstr("at least 1"));
  block().Append({.type = "c_allreduce_sum",
                  .inputs = {{"X", {"loss"}}},
                  .outputs = {{"Out", {"loss"}}}});
  EXPECT_THAT(Train(Options(2)).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("thread=1")));
  program::Program empty;
  auto pass = Pass();
  EXPECT_THAT(trainer_.Run(empty, scope_, *pass, Options()).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("none of the variables")));
}

TEST_F(TrainerTest, RaggedSlotsAreFedWithTheirOffsets) {
  program::Program program;
  program::Block& main = program.block(0);
  main.AddVariable({.name = "ids",
                    .type = {program::DType::kInt64, {-1, 1}},
                    .stop_gradient = true,
                    .is_data = true});
  program::MakeSequence(main, "ids");
  std::ofstream(path_) << "2 5 6\n0\n1 7\n";
  auto dataset = *data::QueueDataset::Make(
      {.slots = {{.name = "ids", .ragged = true, .dims = {1}}}});
  dataset->SetFiles({path_});
  auto pass = dataset->BeginPass({.batch_size = 3});
  TrainOptions options = Options();
  options.fetches = {"ids", "ids@LOD"};
  ASSERT_OK_AND_ASSIGN(TrainStats stats,
                       trainer_.Run(program, scope_, *pass, options));
  EXPECT_EQ(stats.fetched[0].sizes(), at::IntArrayRef({3, 1}));
  const int64_t* offsets = stats.fetched[1].const_data_ptr<int64_t>();
  EXPECT_THAT(std::vector<int64_t>(offsets, offsets + 4),
              ::testing::ElementsAre(0, 2, 2, 3));
}

}  // namespace
}  // namespace fleet::exec
