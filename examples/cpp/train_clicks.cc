// SPDX-License-Identifier: Apache-2.0

// Learns who clicks from files, by a program whose sparse table and parameters
// lie on servers:
//
//   fleetrun --server_num 2 --worker_num 2 build/release/bin/train_clicks
//       clicks --mode async
//
// Every worker reads the files of the folder that are its own, shuffles them in
// memory, and goes over them three times with two threads. Files that are
// missing are made up first. A line is a sample: "8 <ids> 4 <numbers> 1
// <clicked>".

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "fleet/data/dataset.h"
#include "fleet/dataset_training.h"
#include "fleet/parameter_server.h"
#include "fleet/plan/minimize.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/plan/prune.h"
#include "fleet/program/builder.h"

namespace {

using fleet::Status;
using fleet::program::DType;
using fleet::program::Value;

constexpr int64_t kNumIds = 8, kNumFeatures = 4, kDim = 8, kKeys = 1000;
constexpr int kFiles = 2, kLines = 4000;  // of each worker; of a file

struct Sample {
  int64_t ids[kNumIds];
  float features[kNumFeatures];
  float clicked;
};

// Each id moves the chance of a click by a weight of its own.
Sample Draw(std::mt19937& random) {
  Sample sample;
  float score = 0.0f;
  for (int64_t& id : sample.ids) {
    id = std::uniform_int_distribution<int64_t>(0, kKeys - 1)(random);
    score += static_cast<float>(id * 7919 % 1000) / 500.0f - 1.0f;
  }
  for (float& feature : sample.features) {
    feature = std::normal_distribution<float>()(random);
    score += 0.3f * feature;
  }
  const float chance = 1.0f / (1.0f + std::exp(-score));
  sample.clicked = std::uniform_real_distribution<float>()(random) < chance;
  return sample;
}

// The files of worker `rank`; those that are not there yet are written.
std::vector<std::string> FilesOf(const std::string& folder, int rank) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> files;
  for (int i = rank * kFiles; i < (rank + 1) * kFiles; ++i) {
    files.push_back(folder + "/part-" + std::to_string(i));
    if (std::filesystem::exists(files.back())) continue;
    std::ofstream out(files.back());
    std::mt19937 random(100 + static_cast<unsigned>(i));
    for (int line = 0; line < kLines; ++line) {
      const Sample sample = Draw(random);
      out << kNumIds;
      for (const int64_t id : sample.ids) out << ' ' << id;
      out << ' ' << kNumFeatures;
      for (const float feature : sample.features) out << ' ' << feature;
      out << " 1 " << sample.clicked << '\n';
    }
  }
  return files;
}

// The share of 4000 samples never seen whose score is on the right side.
fleet::Result<double> Evaluate(fleet::exec::Executor& executor,
                               fleet::exec::Scope& scope,
                               const fleet::program::Program& program,
                               const std::string& logits) {
  const int64_t count = 4000;
  const at::Tensor ids = at::empty({count, kNumIds}, at::kLong);
  const at::Tensor features = at::empty({count, kNumFeatures});
  const at::Tensor clicked = at::empty({count, 1});
  std::mt19937 random(7);
  for (int64_t i = 0; i < count; ++i) {
    const Sample sample = Draw(random);
    std::ranges::copy(sample.ids, ids.data_ptr<int64_t>() + i * kNumIds);
    std::ranges::copy(sample.features,
                      features.data_ptr<float>() + i * kNumFeatures);
    clicked.data_ptr<float>()[i] = sample.clicked;
  }
  ASSIGN_OR_RETURN(
      auto fetched,
      executor.Run(program, scope, {{"ids", ids}, {"features", features}},
                   {logits}));
  return ((fetched[0] > 0) == (clicked > 0))
      .to(at::kFloat)
      .mean()
      .item<double>();
}

Status Train(const std::string& folder, fleet::plan::PsMode mode) {
  // The model.
  fleet::program::Program main, startup;
  fleet::program::Builder b(main, startup, {.seed = 7});
  const Value ids = b.Data("ids", {-1, kNumIds}, DType::kInt64);
  const Value features = b.Data("features", {-1, kNumFeatures});
  const Value clicked = b.Data("clicked", {-1, 1});
  Value rows = b.SparseEmbedding(ids, kKeys, kDim);
  rows = b.Reshape2(rows, {.shape = {-1, kNumIds * kDim}});
  Value hidden = b.Concat({rows, features}, {.axis = 1});
  hidden = b.Fc(hidden, 32, {.activation = "relu"});
  const Value logits = b.Fc(hidden, 1);
  auto scoring = fleet::plan::CloneForTest(fleet::program::AllOps(), main);
  const Value loss = b.Mean(b.SigmoidCrossEntropyWithLogits(logits, clicked));
  RETURN_IF_ERROR(fleet::plan::Minimize(
      b, loss, {.rule = fleet::optim::Adagrad{}, .learning_rate = 0.05}));

  // What this process is, and its part of the program.
  const auto env = fleet::cluster::ReadEnvironment();
  ASSIGN_OR_RETURN(const fleet::cluster::Role role,
                   fleet::cluster::RoleFromEnvironment(env, false));
  ASSIGN_OR_RETURN(
      const fleet::plan::ParameterServerPlan plan,
      fleet::plan::ServeParameters(main, startup, {.mode = mode}, role));
  if (role.is_server()) {
    ASSIGN_OR_RETURN(auto server, fleet::ParameterServer::Start(role, {}));
    return server->Run();
  }
  ASSIGN_OR_RETURN(
      auto job,
      fleet::Job::Init(
          {.role = role, .servers = fleet::WorkerOptions{.mode = mode}}));
  RETURN_IF_ERROR(job->Serve(plan.tables));
  const fleet::ops::OpLibrary library;
  fleet::exec::Scope scope;
  fleet::exec::Executor executor(library, {});
  job->AddTo(executor);
  RETURN_IF_ERROR(executor.Run(startup, scope, {}, {}).status());

  // The files.
  using fleet::data::SlotType;
  ASSIGN_OR_RETURN(
      auto dataset,
      fleet::data::InMemoryDataset::Make(
          {.slots = {{"ids", SlotType::kInt64, false, {kNumIds}},
                     {"features", SlotType::kFloat32, false, {kNumFeatures}},
                     {"clicked", SlotType::kFloat32, false, {1}}},
           .num_threads = 2}));
  dataset->SetFiles(FilesOf(folder, role.index));
  RETURN_IF_ERROR(dataset->Load({}));
  fleet::DatasetTrainer trainer(job.get());
  for (int epoch = 0; epoch < 3; ++epoch) {
    dataset->LocalShuffle(static_cast<uint64_t>(epoch));
    auto batches = dataset->BeginPass({.batch_size = 100, .drop_last = true});
    ASSIGN_OR_RETURN(const fleet::exec::TrainStats stats,
                     trainer.TrainFromDataset(main, scope, *batches,
                                              {.num_threads = 2,
                                               .fetches = {loss.name()},
                                               .print_period = 1000}));
    std::printf("worker %d epoch %d: %lu samples, loss %.4f\n", role.index,
                epoch, static_cast<unsigned long>(stats.num_samples),
                stats.fetched[0].item<double>());
    std::fflush(stdout);
  }
  if (role.is_first_worker()) {
    RETURN_IF_ERROR(
        fleet::plan::ServeLookups(*scoring, plan.tables, true).status());
    ASSIGN_OR_RETURN(const double share,
                     Evaluate(executor, scope, *scoring, logits.name()));
    std::printf("right about %.3f of 4000 samples never seen\n", share);
    RETURN_IF_ERROR(job->servers().Save(folder + "/model"));
  }
  RETURN_IF_ERROR(job->Barrier("saved"));
  return job->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  const bool asked = argc == 4 && std::string(argv[2]) == "--mode";
  for (const auto mode :
       {fleet::plan::PsMode::kSync, fleet::plan::PsMode::kAsync}) {
    if (argc != 2 && !(asked && fleet::plan::ToString(mode) == argv[3])) {
      continue;
    }
    const Status status = Train(argv[1], mode);
    if (status.ok()) return 0;
    std::fprintf(stderr, "train_clicks: %s\n", status.ToString().c_str());
    return 1;
  }
  std::fprintf(stderr, "usage: train_clicks FOLDER [--mode sync|async]\n");
  return 2;
}
