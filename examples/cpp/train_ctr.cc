// SPDX-License-Identifier: Apache-2.0

// Learns who clicks: 26 ids of an example have rows in a table on servers, 13
// numbers and these rows go through torch::nn layers, whose parameters are on
// the servers too. The examples are made up here, so nothing has to be fetched:
//
//   fleetrun --server_num 2 --worker_num 2 --server_program fleet_server
//       build/release/bin/train_ctr --mode async
//
// The table has a row for every id that was ever seen, and no worker holds it.
//
// Without --server_program the program serves, too, and says itself what its
// servers keep when they are killed:
//
//   fleetrun --server_num 2 --worker_num 2 --max_restarts 10
//       build/release/bin/train_ctr --durability log-sync

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "fleet/parameter_server.h"
#include "fleet/remote_embedding.h"

namespace {

using fleet::plan::PsMode;
using torch::Tensor;

constexpr int64_t kNumIds = 26;
constexpr int64_t kNumFeatures = 13;
constexpr int64_t kDim = 16;

struct Flags {
  PsMode mode = PsMode::kAsync;
  int steps = 300;
  int batch_size = 200;    // of each worker
  int64_t keys = 100'001;  // different ids
  std::string save;
  std::optional<fleet::ps::Durability> durability;
};

struct Batch {
  Tensor ids;       // [batch, 26]
  Tensor features;  // [batch, 13]
  Tensor clicked;   // [batch]
};

// Few ids are frequent and most are rare, as words and users are: the i-th has
// a share of i^-1.05. Each moves the chance of a click by a weight of its own,
// which nobody is told.
class Clicks final {
 public:
  Clicks(int64_t keys, unsigned seed) : random_(seed) {
    std::vector<double> shares(static_cast<size_t>(keys));
    for (size_t i = 0; i < shares.size(); ++i) {
      shares[i] = std::pow(static_cast<double>(i + 1), -1.05);
    }
    until_.resize(shares.size());
    std::partial_sum(shares.begin(), shares.end(), until_.begin());
  }

  Batch Next(int64_t size) {
    Batch batch = {torch::empty({size, kNumIds}, torch::kLong),
                   torch::empty({size, kNumFeatures}), torch::empty({size})};
    auto* id = batch.ids.data_ptr<int64_t>();
    auto* feature = batch.features.data_ptr<float>();
    auto* clicked = batch.clicked.data_ptr<float>();
    std::uniform_real_distribution<double> share(0, until_.back());
    std::uniform_real_distribution<float> chance(0, 1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < size; ++i) {
      float score = -0.5f;
      for (int64_t j = 0; j < kNumIds; ++j) {
        const auto place =
            std::upper_bound(until_.begin(), until_.end(), share(random_));
        *id = std::min<int64_t>(place - until_.begin(),
                                static_cast<int64_t>(until_.size()) - 1);
        score += 0.45f * WeightOf(*id++);
      }
      for (int64_t j = 0; j < kNumFeatures; ++j) {
        *feature = normal(random_);
        score += 0.15f * *feature++;
      }
      *clicked++ = chance(random_) < 1 / (1 + std::exp(-score)) ? 1.0f : 0.0f;
    }
    return batch;
  }

 private:
  // In [-1, 1], by the id alone.
  static float WeightOf(int64_t id) {
    const uint64_t mixed = (static_cast<uint64_t>(id) + 1) * 0x9E3779B97F4A7C15;
    return static_cast<float>(mixed >> 40) / (1 << 23) - 1.0f;
  }

  std::mt19937 random_;
  std::vector<double> until_;  // sums of shares
};

struct NetImpl : torch::nn::Module {
  NetImpl()
      : layers(torch::nn::Linear(kNumIds * kDim + kNumFeatures, 64),
               torch::nn::ReLU(), torch::nn::Linear(64, 32), torch::nn::ReLU(),
               torch::nn::Linear(32, 1)) {
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& rows, const Tensor& features) {
    return layers->forward(torch::cat({rows.flatten(1), features}, 1))
        .squeeze(1);
  }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);

// How often of two examples, one clicked and one not, the first gets the higher
// score.
double AreaUnderCurve(const Tensor& scores, const Tensor& clicked) {
  const Tensor sorted = clicked.index_select(0, scores.argsort());
  const double positive = sorted.sum().item<double>();
  const double negative = static_cast<double>(sorted.size(0)) - positive;
  // For each clicked one: how many that were not clicked are before it.
  const Tensor before = (1 - sorted).cumsum(0, torch::kDouble) * sorted;
  return before.sum().item<double>() / (positive * negative);
}

fleet::table::UpdateOptions Adagrad(double rate) {
  fleet::table::UpdateOptions update;
  update.rule = fleet::optim::Adagrad{};
  update.learning_rate.base = rate;
  return update;
}

fleet::Status Train(fleet::Job& job, const Flags& flags) {
  const int rank = job.rank();
  const bool first = rank == 0;
  torch::manual_seed(1);
  Net net;
  fleet::RemoteEmbedding embedding(
      job, fleet::RemoteEmbeddingOptions{
               .name = "embedding", .dim = kDim, .update = Adagrad(0.05)});
  fleet::RemoteParameters parameters(job, net->named_parameters(),
                                     Adagrad(0.01));
  // In geo mode each worker makes its own steps, and servers add them up.
  torch::optim::Adagrad own(net->parameters(), 0.01);

  Clicks clicks(flags.keys, 100 + static_cast<unsigned>(rank));
  const auto start = std::chrono::steady_clock::now();
  for (int step = 1; step <= flags.steps; ++step) {
    const Batch batch = clicks.Next(flags.batch_size);
    net->zero_grad();
    Tensor scores = net(embedding(batch.ids), batch.features);
    Tensor loss =
        torch::binary_cross_entropy_with_logits(scores, batch.clicked);
    loss.backward();
    if (flags.mode == PsMode::kGeo) own.step();
    parameters.EndStep();
    if (first && (step % 50 == 0 || step == flags.steps)) {
      const std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - start;
      const fleet::served::SynchronizerStats stats = job.servers().stats();
      std::printf(
          "step %d loss %.4f  %.0f examples/s on this worker  staleness %ld\n",
          step, loss.item<float>(), step * flags.batch_size / spent.count(),
          static_cast<long>(stats.staleness));
      std::fflush(stdout);
    }
  }
  RETURN_IF_ERROR(job.servers().Flush());
  RETURN_IF_ERROR(job.Barrier("trained"));
  if (!first) return job.Barrier("shown");

  // Examples that nobody has trained with; rows that are not there stay so.
  const torch::NoGradGuard no_grad;
  embedding->eval();
  const Batch unseen = Clicks(flags.keys, 7).Next(4000);
  const Tensor scores = net(embedding(unseen.ids), unseen.features);
  ASSIGN_OR_RETURN(const fleet::table::SparseTableStats table,
                   job.servers().TableStats("embedding"));
  std::printf("AUC on 4000 examples never seen: %.3f; %lu rows, %.1f MB\n",
              AreaUnderCurve(scores, unseen.clicked),
              static_cast<unsigned long>(table.num_rows),
              static_cast<double>(table.byte_size) / 1e6);
  if (!flags.save.empty()) {
    RETURN_IF_ERROR(job.servers().Save(flags.save));
    std::printf("saved to %s\n", flags.save.c_str());
  }
  return job.Barrier("shown");
}

fleet::Status Run(const Flags& flags) {
  const auto env = fleet::cluster::ReadEnvironment();
  ASSIGN_OR_RETURN(const fleet::cluster::Role role,
                   fleet::cluster::RoleFromEnvironment(env, false));
  if (role.server_num == 0) {
    return fleet::FailedPrecondition(
        "there are no servers: fleetrun --server_num 2 --worker_num 2 "
        "--server_program fleet_server train_ctr");
  }
  if (role.is_server()) {
    fleet::ServerOptions options;
    options.durability = flags.durability;
    options.log_folder = "train_ctr-log";  // where no launcher names one
    ASSIGN_OR_RETURN(auto server, fleet::ParameterServer::Start(role, options));
    return server->Run();
  }
  const fleet::WorkerOptions servers{.mode = flags.mode, .geo_steps = 10};
  ASSIGN_OR_RETURN(auto job,
                   fleet::Job::Init({.role = role, .servers = servers}));
  RETURN_IF_ERROR(Train(*job, flags));
  // Without it the servers would count this worker as lost.
  return job->Finish();
}

bool ReadFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--steps") {
      flags.steps = std::stoi(value);
    } else if (name == "--batch-size") {
      flags.batch_size = std::stoi(value);
    } else if (name == "--keys") {
      flags.keys = std::stoll(value);
    } else if (name == "--save") {
      flags.save = value;
    } else if (name == "--durability") {
      const auto kind = fleet::ps::ParseDurability(value);
      if (!kind.ok()) return false;
      flags.durability = *kind;
    } else if (name == "--mode") {
      const auto mode = fleet::plan::ParsePsMode(value);
      if (!mode.ok()) return false;
      flags.mode = *mode;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (!ReadFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: train_ctr [--mode sync|half_async|async|geo] "
                 "[--steps N] [--batch-size N] [--keys N] [--save FOLDER] "
                 "[--durability none|log|log-sync]\n");
    return 2;
  }
  try {
    const fleet::Status status = Run(flags);
    if (status.ok()) return 0;
    std::fprintf(stderr, "train_ctr: %s\n", status.ToString().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_ctr: %s\n", error.what());
  }
  return 1;
}
