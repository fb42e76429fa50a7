// SPDX-License-Identifier: Apache-2.0

// Two servers save two tables: a base, deltas, another base, which removes what
// is older. Servers that are started again begin with a save that was
// acknowledged, or with the one that was being written, and a load takes such a
// one; all tables of all servers are of the same.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "fleet/ps/client.h"
#include "fleet/ps/serve.h"

#include "tests/crash_points/points.h"

namespace fleet::crash_points {
namespace {

using base::Deadline;
using ps::Key;
using ps::PsClient;
using ps::TableId;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr uint32_t kServers = 2;
constexpr Key kKeys = 200;
constexpr size_t kWeightsSize = 3000;
// What each version is saved as. The first is there before calls are counted.
constexpr table::SaveKind kKinds[] = {
    table::SaveKind::kBase, table::SaveKind::kDelta, table::SaveKind::kDelta,
    table::SaveKind::kBase, table::SaveKind::kDelta, table::SaveKind::kBase};

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

// Both servers and a worker, in one process.
struct Job {
  std::vector<std::unique_ptr<ps::Serving>> servers;
  std::unique_ptr<PsClient> client;

  std::string saves;

  Status Begin(const Point& point, uint64_t epoch) {
    saves = (point.files() / "saves").string();
    for (uint32_t i = 0; i < kServers; ++i) {
      ps::ServeOptions options;
      options.server.rank = static_cast<int32_t>(i);
      options.server.num_servers = kServers;
      options.server.epoch = epoch;
      options.server.shared_memory = false;
      options.server.on_arrival = [](int, const char*) {};
      options.address.host = "127.0.0.1";
      options.last_save_file =
          (point.files() / base::Concat("note.", i)).string();
      ASSIGN_OR_RETURN(auto serving, ps::Serving::Start(options));
      servers.push_back(std::move(serving));
    }
    ASSIGN_OR_RETURN(
        client,
        PsClient::Connect(
            kServers,
            [this](uint32_t server,
                   Deadline) -> Result<std::unique_ptr<channel::Channel>> {
              return servers[server]->server().ConnectInProcess("worker 0");
            },
            {}, Soon()));
    table::SparseTableOptions rows;
    rows.name = "rows";
    rows.dim = 2;
    rows.num_shards = 2;
    table::DenseSpec weights;
    weights.name = "weights";
    weights.size = kWeightsSize;
    RETURN_IF_ERROR(
        client->CreateTables({{kRows, rows}, {kWeights, weights}}, Soon()));
    return client->Refresh(Soon());
  }
};

// The version in which a row changed last, when `version` was written. The
// first writes all; later ones a few.
float RowOf(Key key, uint64_t version) {
  while (version > 1 && key % 10 != version) --version;
  return static_cast<float>(version);
}

// Writes a version into the tables.
Status Change(Job& job, uint64_t version) {
  std::vector<Key> keys;
  std::vector<float> deltas;
  for (Key key = 0; key < kKeys; ++key) {
    const float before = version == 1 ? 0.0f : RowOf(key, version - 1);
    const float after = RowOf(key, version);
    if (before == after) continue;
    keys.push_back(key);
    deltas.insert(deltas.end(), 2, after - before);
  }
  RETURN_IF_ERROR(job.client->Add(kRows, keys, deltas, Soon()));
  return job.client->AssignDense(
      kWeights, std::vector<float>(kWeightsSize, static_cast<float>(version)),
      Soon());
}

Status Work(const Point& point, Shared& shared) {
  Job job;
  RETURN_IF_ERROR(job.Begin(point, 1));
  uint64_t version = 0;
  for (const table::SaveKind kind : kKinds) {
    ++version;
    RETURN_IF_ERROR(Change(job, version));
    if (version == 2) point.Arm(shared);
    shared.begun = version;
    RETURN_IF_ERROR(job.client->Save(job.saves, {.kind = kind}, Soon()));
    shared.done = version;
  }
  return OkStatus();
}

// Which version the tables are of; DataLoss when they are of several.
Result<uint64_t> VersionOf(Job& job) {
  std::vector<float> weights(kWeightsSize);
  RETURN_IF_ERROR(job.client->PullDense(kWeights, weights, Soon()));
  const auto version = static_cast<uint64_t>(weights[0]);
  for (const float weight : weights) {
    if (weight != weights[0]) {
      return DataLoss("weights of versions ", weights[0], " and ", weight);
    }
  }
  std::vector<Key> keys(kKeys);
  for (Key key = 0; key < kKeys; ++key) keys[key] = key;
  std::vector<float> rows(2 * kKeys);
  RETURN_IF_ERROR(
      job.client->Pull(kRows, keys, rows, {.training = false}, Soon()));
  for (Key key = 0; key < kKeys; ++key) {
    if (rows[2 * key] != RowOf(key, version)) {
      return DataLoss("weights of version ", version, ", and row ", key, " is ",
                      rows[2 * key], " instead of ", RowOf(key, version));
    }
  }
  return version;
}

Status CheckVersion(Job& job, const Shared& shared, const char* how) {
  ASSIGN_OR_RETURN(const uint64_t version, VersionOf(job));
  if (version == shared.done || version == shared.begun) return OkStatus();
  return DataLoss(how, ": version ", version, ", and ", shared.done,
                  " was acknowledged");
}

Status Check(const Point& point, const Shared& shared) {
  {
    Job job;
    RETURN_IF_ERROR(job.Begin(point, 2));
    RETURN_IF_ERROR(CheckVersion(job, shared, "started again"));
    RETURN_IF_ERROR(job.client->Load(job.saves, Soon()));
    RETURN_IF_ERROR(CheckVersion(job, shared, "loaded"));
    // Goes on as if nothing had been.
    for (const table::SaveKind kind :
         {table::SaveKind::kDelta, table::SaveKind::kBase}) {
      RETURN_IF_ERROR(job.client->Save(job.saves, {.kind = kind}, Soon()));
    }
  }
  Job job;
  RETURN_IF_ERROR(job.Begin(point, 3));
  RETURN_IF_ERROR(CheckVersion(job, shared, "saved again"));
  // What was broken off was cleared away.
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   base::ListFolder(job.saves));
  for (const std::string& name : names) {
    if (name.ends_with(".tmp")) return Internal(name, " is left over");
  }
  return OkStatus();
}

}  // namespace

Scenario Saves() {
  return {
      "saves", true, [](const Point& point, Shared& shared) -> Result<End> {
        const End end = Run(shared, [&] { return Work(point, shared); });
        if (end == End::kFailed) return Internal(shared.failure);
        if (Run(shared, [&] { return Check(point, shared); }) != End::kWell) {
          return DataLoss(shared.failure);
        }
        return end;
      }};
}

}  // namespace fleet::crash_points
