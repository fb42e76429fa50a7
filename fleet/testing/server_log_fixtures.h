// SPDX-License-Identifier: Apache-2.0

// For tests of servers with a log, which end and are started again.

#ifndef FLEET_TESTING_SERVER_LOG_FIXTURES_H_
#define FLEET_TESTING_SERVER_LOG_FIXTURES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/channel/message.h"
#include "fleet/ps/connect.h"
#include "fleet/ps/ledger.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {

inline constexpr TableId kWide{2};
inline constexpr int kNumLogWorkers = 3;
inline constexpr size_t kLogDim = 4;

inline TableSpec SparseSpec(TableId id,
                            const table::SparseTableOptions& given) {
  table::SparseTableOptions options = given;
  options.dim = kLogDim;
  options.num_shards = 4;
  options.initializer = table::UniformInit{-1.0f, 1.0f};
  return {id, options};
}

inline TableSpec DenseSpecOf(TableId id, const std::string& name, uint64_t size,
                             const optim::UpdateRule& rule) {
  DenseSpec spec;
  spec.name = name;
  spec.size = size;
  spec.update.rule = rule;
  spec.update.learning_rate.base = 0.1;
  return {id, spec};
}

class ServerLog : public testing::Test {
 protected:
  // A server with the next epoch.
  void Start(Durability durability = Durability::kLog) {
    PsServerOptions options;
    options.num_workers = num_workers_;
    options.worker_grace = 60s;
    options.epoch = ++epoch_;
    options.durability = durability;
    options.log_folder = log_folder_.string();
    options.checkpoint_byte_size = checkpoint_byte_size_;
    options.load_folder = load_folder_;
    auto server = std::make_unique<PsServer>(options);
    ASSERT_OK(server->OpenLog());
    base::MutexLock lock(mutex_);
    server_ = std::move(server);
  }
  // It ends, as far as others see, as if it were killed; what it was doing is
  // finished.
  void End() {
    std::unique_ptr<PsServer> ended;
    base::MutexLock lock(mutex_);
    ended = std::move(server_);
  }
  PsServer& server() {
    base::MutexLock lock(mutex_);
    return *server_;
  }
  std::unique_ptr<PsClient> Client(int worker) {
    PsClientOptions options;
    options.worker = worker;
    options.reconnect_for = 60s;
    auto client = PsClient::Connect(
        1,
        [this, worker](uint32_t,
                       Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          base::MutexLock lock(mutex_);
          if (server_ == nullptr) return Unavailable("no server");
          return server_->ConnectInProcess(base::Concat("worker ", worker));
        },
        options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }

  // A connection of a worker, for requests that no client sends.
  std::unique_ptr<channel::Channel> Raw(int worker,
                                        uint64_t* incarnation = nullptr) {
    auto channel = server().ConnectInProcess(base::Concat("worker ", worker));
    const auto answer = SayHello(*channel, static_cast<uint32_t>(worker), 0,
                                 incarnation == nullptr ? 0 : *incarnation);
    EXPECT_OK(answer.status());
    if (incarnation != nullptr) {
      *incarnation = DecodeHelloAnswer(*answer)->incarnation;
    }
    return channel;
  }
  // The files and folders of the log whose names begin so.
  std::vector<std::string> Named(std::string_view prefix) {
    std::vector<std::string> found;
    const std::vector<std::string> names =
        base::ListFolder(log_folder_).value();
    for (const std::string& name : names) {
      if (name.starts_with(prefix)) found.push_back(name);
    }
    return found;
  }

  // All rows and values with their state, as a save has them.
  std::map<std::string, std::string> Everything() {
    const base::Path folder =
        temporary_.path() / base::Concat("seen.", num_seen_++);
    EXPECT_OK(base::MakeFolders(folder));
    table::SaveId id;
    id.number = 1;
    id.num_servers = 1;
    for (const TableId table : {kEmb, kDense, kWide}) {
      if (table::SparseTable* sparse = server().sparse(table)) {
        EXPECT_OK(sparse->WriteSave(folder, {id}).status());
        sparse->EndSave(false);
      }
      if (table::DenseTable* dense = server().dense(table)) {
        EXPECT_OK(dense->WriteSave(folder, id).status());
      }
    }
    std::map<std::string, std::string> files;
    const std::vector<std::string> names = base::ListFolder(folder).value();
    for (const std::string& name : names) {
      files[name] = base::ReadFile(folder / name).value();
    }
    return files;
  }

  testing::TemporaryFolder temporary_;
  const base::Path log_folder_ = temporary_.path() / "log";
  uint64_t checkpoint_byte_size_ = 0;
  std::string load_folder_;
  int num_workers_ = kNumLogWorkers;
  uint64_t epoch_ = 0;
  int num_seen_ = 0;
  base::Mutex mutex_;
  std::unique_ptr<PsServer> server_ GUARDED_BY(mutex_);
};

// Random keys, with many that meet, and gradients.
struct Batch {
  std::vector<Key> keys;
  std::vector<float> gradients;

  Batch(std::mt19937& random, size_t count) {
    std::uniform_int_distribution<Key> key(0, 200);
    std::normal_distribution<float> value;
    for (size_t i = 0; i < count; ++i) keys.push_back(key(random));
    for (size_t i = 0; i < count * kLogDim; ++i)
      gradients.push_back(value(random));
  }
};

// Two tables of rows, a small dense one and one whose gradient comes in parts.
inline std::vector<TableSpec> Specs(const optim::UpdateRule& rule,
                                    table::SparseTableOptions sparse = {}) {
  sparse.name = "emb";
  sparse.update.rule = rule;
  sparse.update.learning_rate.base = 0.1;
  return {SparseSpec(kEmb, sparse), DenseSpecOf(kDense, "fc.b", 10, rule),
          DenseSpecOf(kWide, "fc.w", 100'000, rule)};
}

inline void PushSome(PsClient& client, std::mt19937& random, int count) {
  std::vector<float> small(10);
  std::vector<float> wide(100'000);
  for (int i = 0; i < count; ++i) {
    const Batch batch(random, 50);
    ASSERT_OK(client.Push(kEmb, batch.keys, batch.gradients, Soon(), 1));
    std::normal_distribution<float> value;
    for (float& x : small) x = value(random);
    wide[random() % wide.size()] = value(random);
    std::vector<DenseGradient> gradients = {{kDense, small}};
    if (i % 8 == 0) gradients.push_back({kWide, wide});
    ASSERT_OK(client.PushDenseMany(gradients, Soon(), 1));
  }
}

}  // namespace fleet::ps

#endif  // FLEET_TESTING_SERVER_LOG_FIXTURES_H_
