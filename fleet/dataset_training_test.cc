// SPDX-License-Identifier: Apache-2.0
#include "fleet/dataset_training.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/data/dataset.h"
#include "fleet/ops/kernels.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"

namespace fleet {
namespace {

using program::Value;

// y is the sum of the two numbers of x.
class DatasetTrainingTest : public ::testing::Test {
 protected:
  DatasetTrainingTest() {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("dataset_training_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    std::ofstream file(folder_ / "part-0");
    for (int i = 0; i < 64; ++i) {
      const double a = (i % 8) / 8.0, b = (i / 8) / 8.0;
      file << "2 " << a << ' ' << b << " 1 " << a + b << '\n';
    }
    const Value x = builder_.Data("x", {-1, 2});
    const Value y = builder_.Data("y", {-1, 1});
    const Value error = builder_.Fc(x, 1) - y;
    loss_ = builder_.Mean(builder_.Square(error));
  }
  ~DatasetTrainingTest() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<data::InMemoryDataset>> Load() {
    using data::SlotType;
    ASSIGN_OR_RETURN(auto dataset,
                     data::InMemoryDataset::Make(
                         {.slots = {{"x", SlotType::kFloat32, false, {2}},
                                    {"y", SlotType::kFloat32, false, {1}}}}));
    dataset->SetFiles({folder_ / "part-0"});
    RETURN_IF_ERROR(dataset->Load({}));
    return dataset;
  }

  std::filesystem::path folder_;
  program::Program main_, startup_;
  program::Builder builder_{main_, startup_, {.seed = 3}};
  Value loss_;
};

TEST_F(DatasetTrainingTest, PassesOverFilesTrainTheProgram) {
  ASSERT_OK(plan::Minimize(builder_, loss_, {.learning_rate = 0.3}));
  const ops::OpLibrary library;
  exec::Scope scope;
  exec::Executor executor(library, {});
  ASSERT_OK(executor.Run(startup_, scope, {}, {}).status());
  ASSERT_OK_AND_ASSIGN(auto dataset, Load());
  DatasetTrainer trainer;
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    dataset->LocalShuffle(static_cast<uint64_t>(epoch));
    auto batches = dataset->BeginPass({.batch_size = 16});
    ASSERT_OK_AND_ASSIGN(
        const exec::TrainStats stats,
        trainer.TrainFromDataset(
            main_, scope, *batches,
            {.fetches = {loss_.name()}, .print = [](const std::string&) {}}));
    EXPECT_EQ(stats.num_batches, 4u);
    EXPECT_EQ(stats.num_samples, 64u);
    last = stats.fetched[0].item<double>();
    if (epoch == 0) first = last;
  }
  EXPECT_LT(last, first / 10);
}

TEST_F(DatasetTrainingTest, AnEmptyPassSaysWhy) {
  exec::Scope scope;
  ASSERT_OK_AND_ASSIGN(auto dataset, Load());
  auto batches = dataset->BeginPass({.batch_size = 100, .drop_last = true});
  DatasetTrainer trainer;
  EXPECT_THAT(trainer.TrainFromDataset(main_, scope, *batches).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("do not fill a batch of 100")));
}

TEST_F(DatasetTrainingTest, AProgramWithoutServersDoesNotEndThere) {
  EXPECT_FALSE(EndsAtServers(main_));
  EXPECT_FALSE(EndsAtServers(program::Program()));
}

}  // namespace
}  // namespace fleet
