// SPDX-License-Identifier: Apache-2.0

// Two servers of a job end, and three are started in their place, which take
// over what their logs have. They are ended at a point and started again, and
// have everything; so have those that are started after them, without the old
// logs.

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "fleet/ps/client.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/server.h"

#include "tests/crash_points/points.h"

namespace fleet::crash_points {
namespace {

using base::Deadline;
using ps::Key;
using ps::PsClient;
using ps::TableId;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr uint32_t kBefore = 2;
constexpr uint32_t kAfter = 3;
constexpr Key kKeys = 300;
constexpr size_t kDim = 2;
constexpr size_t kNumWeights = 3000;

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

base::Path LogOf(const Point& point, uint32_t rank, uint32_t num_servers) {
  return point.files() / "log" / ps::LogFolderName(rank, num_servers);
}

// Servers and a worker, in one process.
struct Job {
  std::vector<std::unique_ptr<ps::PsServer>> servers;
  std::unique_ptr<PsClient> client;  // first of all to end

  Status Serve(const Point& point, uint32_t num_servers, uint64_t epoch) {
    for (uint32_t k = 0; k < num_servers; ++k) {
      ps::PsServerOptions options;
      options.rank = static_cast<int32_t>(k);
      options.num_servers = num_servers;
      options.epoch = epoch;
      options.shared_memory = false;
      options.durability = ps::Durability::kLogSync;
      options.log_folder = LogOf(point, k, num_servers).string();
      options.log_segment_byte_size = 256 << 10;
      // Every look finds that one is due.
      options.checkpoint_byte_size = 1;
      servers.push_back(std::make_unique<ps::PsServer>(options));
      RETURN_IF_ERROR(servers.back()->OpenLog());
    }
    return OkStatus();
  }
  Status Connect() {
    ASSIGN_OR_RETURN(
        client,
        PsClient::Connect(
            static_cast<uint32_t>(servers.size()),
            [this](uint32_t server,
                   Deadline) -> Result<std::unique_ptr<channel::Channel>> {
              return servers[server]->ConnectInProcess("worker 0");
            },
            {}, Soon()));
    return OkStatus();
  }
};

// Each update adds one. How often each key and the weights are updated.
uint64_t UpdatesOf(Key key) { return 1 + key % 5; }
constexpr uint64_t kUpdatesOfWeights = 4;

Status Train(const Point& point) {
  Job job;
  RETURN_IF_ERROR(job.Serve(point, kBefore, 1));
  RETURN_IF_ERROR(job.Connect());
  table::SparseTableOptions rows;
  rows.name = "rows";
  rows.dim = kDim;
  rows.num_shards = 2;
  rows.initializer = table::ConstantInit{0.0f};
  rows.update.learning_rate.base = 1.0;
  table::DenseSpec weights;
  weights.name = "weights";
  weights.size = kNumWeights;
  weights.update.learning_rate.base = 1.0;
  RETURN_IF_ERROR(
      job.client->CreateTables({{kRows, rows}, {kWeights, weights}}, Soon()));
  RETURN_IF_ERROR(job.client->InitializeDense(
      kWeights, std::vector<float>(kNumWeights), Soon()));
  const std::vector<float> minus(kNumWeights, -1.0f);
  for (uint64_t update = 0; update < 5; ++update) {
    std::vector<Key> keys;
    for (Key key = 0; key < kKeys; ++key) {
      if (update < UpdatesOf(key)) keys.push_back(key);
    }
    RETURN_IF_ERROR(job.client->Push(
        kRows, keys, std::vector<float>(keys.size() * kDim, -1.0f), Soon(), 1));
    if (update < kUpdatesOfWeights) {
      const std::vector<ps::DenseGradient> gradients = {{kWeights, minus}};
      RETURN_IF_ERROR(job.client->PushDenseMany(gradients, Soon()));
    }
    // One of the two has a checkpoint, and both have a log behind it.
    if (update == 2) RETURN_IF_ERROR(job.servers[0]->CheckpointIfDue());
  }
  return OkStatus();
}

Status CheckTables(PsClient& client) {
  std::vector<Key> keys(kKeys);
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<float> rows(kKeys * kDim);
  RETURN_IF_ERROR(client.Pull(kRows, keys, rows, {.training = false}, Soon()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t wanted = UpdatesOf(keys[i / kDim]);
    if (rows[i] == static_cast<float>(wanted)) continue;
    return DataLoss("row ", keys[i / kDim], " has ", rows[i], " of ", wanted,
                    " updates");
  }
  std::vector<float> weights(kNumWeights);
  RETURN_IF_ERROR(client.PullDense(kWeights, weights, Soon()));
  for (const float weight : weights) {
    if (weight == static_cast<float>(kUpdatesOfWeights)) continue;
    return DataLoss("weights have ", weight, " of ", kUpdatesOfWeights,
                    " updates");
  }
  return OkStatus();
}

Status Check(const Point& point, uint64_t epoch) {
  Job job;
  RETURN_IF_ERROR(job.Serve(point, kAfter, epoch));
  for (uint32_t k = 0; k < kBefore; ++k) {
    if (!base::Exists(LogOf(point, k, kBefore))) continue;
    return Internal(LogOf(point, k, kBefore).string(),
                    " is there, and all have taken over what it has");
  }
  RETURN_IF_ERROR(job.Connect());
  RETURN_IF_ERROR(job.client->Refresh(Soon()));
  RETURN_IF_ERROR(CheckTables(*job.client));
  // Goes on: adds to a row what is taken away again.
  const std::vector<Key> key = {7};
  for (const float gradient : {-1.0f, 1.0f}) {
    RETURN_IF_ERROR(job.client->Push(
        kRows, key, std::vector<float>(kDim, gradient), Soon(), 1));
  }
  return OkStatus();
}

}  // namespace

Scenario TakeOver() {
  return {
      "take-over", true, [](const Point& point, Shared& shared) -> Result<End> {
        if (Run(shared, [&] { return Train(point); }) != End::kWell) {
          return Internal(shared.failure);
        }
        const End end = Run(shared, [&] {
          Job job;
          point.Arm(shared);
          return job.Serve(point, kAfter, 2);
        });
        if (end == End::kFailed) return Internal(shared.failure);
        for (const uint64_t epoch : {3, 4}) {
          if (Run(shared, [&] { return Check(point, epoch); }) != End::kWell) {
            return DataLoss(shared.failure);
          }
        }
        return end;
      }};
}

}  // namespace fleet::crash_points
