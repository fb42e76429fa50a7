// SPDX-License-Identifier: Apache-2.0

// A server with a log and checkpoints, and a worker in a process of its own.
// The server is ended at a point and started again; the worker goes on. What it
// counted as acknowledged is in the tables, once. So it is when the server that
// was started again is ended, too.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/log_file.h"
#include "fleet/ps/client.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/server.h"

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
constexpr size_t kDim = 2;
constexpr uint64_t kGroups = 4;  // of keys that are pushed together
constexpr Key kKeysOfGroup = 40;
// Its gradient comes in parts.
constexpr size_t kNumWeights = 40'000;
constexpr int kRounds = 12;

Deadline Soon() { return Deadline::After(std::chrono::seconds(30)); }

// It is ended at the point unless it is the last of this point.
Status Serve(const Point& point, Shared& shared, const Door& door,
             ps::Durability durability, uint64_t epoch, bool is_last) {
  ps::PsServerOptions options;
  options.epoch = epoch;
  options.worker_grace = std::chrono::seconds(30);
  options.shared_memory = false;
  options.durability = durability;
  options.log_folder = (point.files() / "log").string();
  options.log_segment_byte_size = 256 << 10;
  options.checkpoint_byte_size = 600 << 10;
  if (!is_last) point.Arm(shared);
  ps::PsServer server(options);
  RETURN_IF_ERROR(server.OpenLog());
  RETURN_IF_ERROR(server.ListenOn(::dup(door.socket)));
  while (true) {
    const Status stopped =
        server.WaitUntilStopped(Deadline::After(std::chrono::milliseconds(2)));
    if (stopped.ok()) return server.RemoveLog();
    // The worker was told that all is well before the first server ended.
    if (epoch > 1 && shared.done != 0) return OkStatus();
    if (stopped.code() != StatusCode::kDeadlineExceeded) return stopped;
    RETURN_IF_ERROR(server.CheckpointIfDue());
  }
}

std::vector<Key> KeysOf(uint64_t group) {
  std::vector<Key> keys;
  for (Key key = 0; key < kKeysOfGroup; ++key) {
    keys.push_back(group * kKeysOfGroup + key);
  }
  return keys;
}

// Each update adds one, because the rate is one and the gradient minus one.
struct Counts {
  uint64_t of_group[kGroups] = {};
  uint64_t of_weights = 0;
};

Status Push(PsClient& client, Counts& counts) {
  const std::vector<float> minus(kKeysOfGroup * kDim, -1.0f);
  const std::vector<float> weights(kNumWeights, -1.0f);
  const std::vector<ps::DenseGradient> gradients = {{kWeights, weights}};
  std::vector<float> values(kNumWeights);
  const std::vector<ps::DenseValues> pulled = {{kWeights, values}};
  for (int round = 0; round < kRounds; ++round) {
    for (uint64_t group = 0; group + 1 < kGroups; ++group) {
      RETURN_IF_ERROR(client.Push(kRows, KeysOf(group), minus, Soon(), 1));
      ++counts.of_group[group];
    }
    if (round % 2 == 0) {
      RETURN_IF_ERROR(client.PushDenseMany(gradients, Soon()));
    } else {
      RETURN_IF_ERROR(
          client.Accumulate(kRows, KeysOf(kGroups - 1), minus, Soon()));
      RETURN_IF_ERROR(client.FinishStep(gradients, pulled, Soon()));
      ++counts.of_group[kGroups - 1];
    }
    ++counts.of_weights;
  }
  return OkStatus();
}

// What the tables count. DataLoss where an update is there in part.
Result<Counts> Found(PsClient& client) {
  Counts found;
  for (uint64_t group = 0; group < kGroups; ++group) {
    std::vector<float> rows(kKeysOfGroup * kDim);
    RETURN_IF_ERROR(
        client.Pull(kRows, KeysOf(group), rows, {.training = false}, Soon()));
    found.of_group[group] = static_cast<uint64_t>(rows[0]);
    for (const float value : rows) {
      if (value != rows[0]) {
        return DataLoss("rows of group ", group, " are ", rows[0], " and ",
                        value);
      }
    }
  }
  std::vector<float> weights(kNumWeights);
  // They come in parts: a server that was started again between two of them may
  // have lost what the first part had.
  uint64_t num_restarts = 0;
  do {
    num_restarts = client.num_server_restarts();
    RETURN_IF_ERROR(client.PullDense(kWeights, weights, Soon()));
  } while (client.num_server_restarts() != num_restarts);
  found.of_weights = static_cast<uint64_t>(weights[0]);
  for (const float value : weights) {
    if (value != weights[0]) {
      return DataLoss("weights are ", weights[0], " and ", value);
    }
  }
  return found;
}

Status Train(Shared& shared, const Door& door, bool may_lose) {
  ps::PsClientOptions options;
  options.reconnect_for = std::chrono::seconds(30);
  options.shared_memory = false;
  if (may_lose) options.on_data_loss = ps::OnDataLoss::kGoOn;
  ASSIGN_OR_RETURN(auto client,
                   PsClient::Connect({door.address}, options, Soon()));
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
      client->CreateTables({{kRows, rows}, {kWeights, weights}}, Soon()));
  RETURN_IF_ERROR(client->InitializeDense(
      kWeights, std::vector<float>(kNumWeights), Soon()));
  RETURN_IF_ERROR(client->Refresh(Soon()));
  Counts counts;
  const Status pushed = Push(*client, counts);
  if (may_lose && pushed.code() == StatusCode::kFailedPrecondition) {
    // The beginning of the job is lost, and the worker is told.
    shared.done = 1;
    return OkStatus();
  }
  RETURN_IF_ERROR(pushed);
  ASSIGN_OR_RETURN(const Counts found, Found(*client));
  const auto compare = [&](const char* what, uint64_t index, uint64_t wanted,
                           uint64_t got) -> Status {
    if (got == wanted || (may_lose && got < wanted)) return OkStatus();
    return DataLoss(what, index, ": ", wanted, " updates were acknowledged, ",
                    got, " are there");
  };
  for (uint64_t group = 0; group < kGroups; ++group) {
    RETURN_IF_ERROR(compare("group ", group, counts.of_group[group],
                            found.of_group[group]));
  }
  RETURN_IF_ERROR(compare("weights ", 0, counts.of_weights, found.of_weights));
  RETURN_IF_ERROR(client->Stop(Soon()));
  shared.done = 1;
  return OkStatus();
}

// What a server begins with, for who reads of a failure: the checkpoint, and of
// the log the turns of each part, by epoch.
Result<std::string> Describe(const base::Path& folder) {
  ASSIGN_OR_RETURN(const ps::Checkpoint checkpoint, ps::ReadCheckpoint(folder));
  std::string text = base::Concat("checkpoint of epoch ", checkpoint.epoch,
                                  ", log.", checkpoint.segment, " and later:");
  for (const ps::Checkpoint::Table& table : checkpoint.tables) {
    text += base::Concat(" table ", static_cast<uint32_t>(table.id),
                         table.cut.initialized ? "" : " (not initialized)",
                         " has turns");
    for (const table::Turn& turn : table.cut.turns) {
      text += base::Concat(" ", turn.part, ":", turn.number);
    }
    text += ";";
  }
  ASSIGN_OR_RETURN(const base::LogRecords records,
                   base::LogRecords::Read(folder, checkpoint.segment));
  // By epoch, table and part: the first and the last turn.
  std::map<std::tuple<uint64_t, TableId, uint32_t>,
           std::pair<uint64_t, uint64_t>>
      turns;
  for (const std::span<const std::byte> record : records.all()) {
    ASSIGN_OR_RETURN(const ps::LoggedRequest request, ps::DecodeLogged(record));
    for (const ps::LoggedTurn& turn : request.turns) {
      auto& [first, last] =
          turns
              .try_emplace({request.head.epoch, turn.table, turn.part},
                           turn.number, turn.number)
              .first->second;
      first = std::min(first, turn.number);
      last = std::max(last, turn.number);
    }
  }
  text += base::Concat(" ", records.all().size(), " records");
  for (const auto& [of, range] : turns) {
    const auto& [epoch, table, part] = of;
    text += base::Concat("; epoch ", epoch, ", table ",
                         static_cast<uint32_t>(table), ", turns ", part, ":",
                         range.first, " to ", range.second);
  }
  return text;
}

// The servers end at these points, one after the other, and one that is not
// ended follows. Well: the last of them came to its end before its point did.
Result<End> TryOne(const std::vector<Point>& points, Shared& shared,
                   ps::Durability durability) {
  const Door door;
  // With `log` a host that dies may lose the last 50 ms.
  const bool may_lose =
      durability == ps::Durability::kLog && points.back().disk != kDiskKeeps;
  const pid_t worker =
      Start(shared, [&] { return Train(shared, door, may_lose); });
  End end = End::kKilled;
  size_t num_killed = 0;
  std::string story;
  for (size_t life = 0; end == End::kKilled && life <= points.size(); ++life) {
    const bool is_last = life == points.size();
    const Point& point = is_last ? points.back() : points[life];
    num_killed = life;
    if (life > 0) {
      const Result<std::string> found = Describe(points[0].files() / "log");
      story += base::Concat("\n  life ", life + 1, " began with ",
                            found.ok() ? *found : found.status().ToString());
    }
    end = Run(shared, [&] {
      return Serve(point, shared, door, durability, life + 1, is_last);
    });
  }
  if (end != End::kWell) (void)::kill(worker, SIGKILL);
  const End of_worker = WaitFor(worker);
  if (end != End::kWell || of_worker != End::kWell) {
    return DataLoss(shared.failure, story);
  }
  return num_killed + 1 == points.size() ? End::kWell : End::kKilled;
}

}  // namespace

Scenario Log() {
  return {"log", true, [](const Point& point, Shared& shared) {
            return TryOne({point}, shared, ps::Durability::kLog);
          }};
}

Scenario LogSync() {
  return {"log-sync", true, [](const Point& point, Shared& shared) {
            return TryOne({point}, shared, ps::Durability::kLogSync);
          }};
}

Scenario Recovery() {
  return {"recovery", true,
          [](const Point& point, Shared& shared) -> Result<End> {
            // The first server ends before, in or after a checkpoint, and long
            // before the worker does.
            Point first = point;
            first.at = 100 + point.at % 6 * 30;
            ASSIGN_OR_RETURN(const End end, TryOne({first, point}, shared,
                                                   ps::Durability::kLogSync));
            // Where the first ended earliest, the second has the most points.
            return point.at % 6 == 0 ? end : End::kKilled;
          }};
}

}  // namespace fleet::crash_points
