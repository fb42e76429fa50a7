// SPDX-License-Identifier: Apache-2.0

// Two servers save two tables: a base, deltas, another base, which removes what
// is older. Servers that are started again begin with a save that was
// acknowledged, or with the one that was being written, and a load takes such a
// one; all tables of all servers are of the same. So it is when only one of two
// servers ends and is started again with its log: the save is made anew.

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "fleet/ps/client.h"
#include "fleet/ps/serve.h"

#include "tests/crash_points/door.h"
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

// In Shared::begun: the worker has said good-bye.
constexpr uint64_t kAllSaved = 1000;

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

Status MakeTables(PsClient& client) {
  table::SparseTableOptions rows;
  rows.name = "rows";
  rows.dim = 2;
  rows.num_shards = 2;
  table::DenseSpec weights;
  weights.name = "weights";
  weights.size = kWeightsSize;
  RETURN_IF_ERROR(
      client.CreateTables({{kRows, rows}, {kWeights, weights}}, Soon()));
  return client.Refresh(Soon());
}

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
    return MakeTables(*client);
  }
};

// The version in which a row changed last, when `version` was written. The
// first writes all; later ones a few.
float RowOf(Key key, uint64_t version) {
  while (version > 1 && key % 10 != version) --version;
  return static_cast<float>(version);
}

// Writes a version into the tables.
Status Change(PsClient& client, uint64_t version) {
  std::vector<Key> keys;
  std::vector<float> deltas;
  for (Key key = 0; key < kKeys; ++key) {
    const float before = version == 1 ? 0.0f : RowOf(key, version - 1);
    const float after = RowOf(key, version);
    if (before == after) continue;
    keys.push_back(key);
    deltas.insert(deltas.end(), 2, after - before);
  }
  RETURN_IF_ERROR(client.Add(kRows, keys, deltas, Soon()));
  return client.AssignDense(
      kWeights, std::vector<float>(kWeightsSize, static_cast<float>(version)),
      Soon());
}

Status Work(const Point& point, Shared& shared) {
  Job job;
  RETURN_IF_ERROR(job.Begin(point, 1));
  uint64_t version = 0;
  for (const table::SaveKind kind : kKinds) {
    ++version;
    RETURN_IF_ERROR(Change(*job.client, version));
    if (version == 2) point.Arm(shared);
    shared.begun = version;
    RETURN_IF_ERROR(job.client->Save(job.saves, {.kind = kind}, Soon()));
    shared.done = version;
  }
  return OkStatus();
}

// Which version the tables are of; DataLoss when they are of several.
Result<uint64_t> VersionOf(PsClient& client) {
  std::vector<float> weights(kWeightsSize);
  RETURN_IF_ERROR(client.PullDense(kWeights, weights, Soon()));
  const auto version = static_cast<uint64_t>(weights[0]);
  for (const float weight : weights) {
    if (weight != weights[0]) {
      return DataLoss("weights of versions ", weights[0], " and ", weight);
    }
  }
  std::vector<Key> keys(kKeys);
  for (Key key = 0; key < kKeys; ++key) keys[key] = key;
  std::vector<float> rows(2 * kKeys);
  RETURN_IF_ERROR(client.Pull(kRows, keys, rows, {.training = false}, Soon()));
  for (Key key = 0; key < kKeys; ++key) {
    if (rows[2 * key] != RowOf(key, version)) {
      return DataLoss("weights of version ", version, ", and row ", key, " is ",
                      rows[2 * key], " instead of ", RowOf(key, version));
    }
  }
  return version;
}

Status CheckVersion(Job& job, const Shared& shared, const char* how) {
  ASSIGN_OR_RETURN(const uint64_t version, VersionOf(*job.client));
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

// ---- both servers and the worker as processes, of which one server is ended

// A server with a log, from its start to the last good-bye.
Status ServeOne(const Point& point, Shared& shared, const Door& door,
                uint32_t rank, uint64_t epoch, bool is_ended) {
  ps::ServeOptions options;
  options.server.rank = static_cast<int32_t>(rank);
  options.server.num_servers = kServers;
  options.server.epoch = epoch;
  options.server.shared_memory = false;
  options.server.worker_grace = std::chrono::seconds(30);
  options.server.on_arrival = [](int, const char*) {};
  options.server.durability = ps::Durability::kLog;
  options.server.log_folder = (point.files() / base::Concat("log.", rank));
  options.server.log_segment_byte_size = 1 << 20;
  options.address = door.address;
  options.listen_fd = ::dup(door.socket);
  // The worker may have been told that all is well before one of them ended.
  const Status is_over = FailedPrecondition("the worker has ended");
  options.interrupt = [&shared, is_over, epoch] {
    return epoch > 1 && shared.begun == kAllSaved ? is_over : OkStatus();
  };
  if (is_ended) point.Arm(shared);
  ASSIGN_OR_RETURN(auto serving, ps::Serving::Start(options));
  const Status ended = serving->Run();
  return ended.message() == is_over.message() ? OkStatus() : ended;
}

Status SaveAll(const Point& point, Shared& shared,
               const std::vector<channel::Address>& servers) {
  ps::PsClientOptions options;
  options.reconnect_for = std::chrono::seconds(30);
  options.shared_memory = false;
  ASSIGN_OR_RETURN(auto client, PsClient::Connect(servers, options, Soon()));
  RETURN_IF_ERROR(MakeTables(*client));
  uint64_t version = 0;
  for (const table::SaveKind kind : kKinds) {
    ++version;
    RETURN_IF_ERROR(Change(*client, version));
    shared.begun = version;
    // Anew, where a server was started again meanwhile.
    RETURN_IF_ERROR(
        client->Save(point.files() / "saves", {.kind = kind}, Soon()));
    ASSIGN_OR_RETURN(const uint64_t found, VersionOf(*client));
    if (found != version) {
      return DataLoss("tables of version ", found, " instead of ", version);
    }
    shared.done = version;
  }
  RETURN_IF_ERROR(client->Stop(Soon()));
  shared.begun = kAllSaved;
  return OkStatus();
}

Status CheckSaved(const Point& point, const Shared& shared) {
  Job job;
  RETURN_IF_ERROR(job.Begin(point, 1));
  RETURN_IF_ERROR(job.client->Load(job.saves, Soon()));
  return CheckVersion(job, shared, "loaded");
}

Result<End> TryWithOneOfTwo(uint32_t victim, const Point& point,
                            Shared& shared) {
  const std::vector<Door> doors(kServers);
  std::vector<channel::Address> addresses;
  for (const Door& door : doors) addresses.push_back(door.address);
  std::vector<pid_t> servers;
  for (uint32_t i = 0; i < kServers; ++i) {
    servers.push_back(Start(shared, [&, i] {
      return ServeOne(point, shared, doors[i], i, 1, i == victim);
    }));
  }
  const pid_t worker =
      Start(shared, [&] { return SaveAll(point, shared, addresses); });
  End end = WaitFor(servers[victim]);
  const bool was_killed = end == End::kKilled;
  if (was_killed) {
    end = Run(shared, [&] {
      return ServeOne(point, shared, doors[victim], victim, 2, false);
    });
  }
  if (end != End::kWell) (void)::kill(worker, SIGKILL);
  const End of_worker = WaitFor(worker);
  const pid_t other = servers[1 - victim];
  if (of_worker != End::kWell) (void)::kill(other, SIGKILL);
  const End of_other = WaitFor(other);
  if (end != End::kWell || of_worker != End::kWell || of_other != End::kWell) {
    return DataLoss(shared.failure);
  }
  if (Run(shared, [&] { return CheckSaved(point, shared); }) != End::kWell) {
    return DataLoss(shared.failure);
  }
  return was_killed ? End::kKilled : End::kWell;
}

}  // namespace

Scenario SaveOfFirst() {
  return {"save-of-0", false, [](const Point& point, Shared& shared) {
            return TryWithOneOfTwo(0, point, shared);
          }};
}

Scenario SaveOfSecond() {
  return {"save-of-1", false, [](const Point& point, Shared& shared) {
            return TryWithOneOfTwo(1, point, shared);
          }};
}

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
