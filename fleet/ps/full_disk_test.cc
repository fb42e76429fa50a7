// SPDX-License-Identifier: Apache-2.0

// Updates of many requests that find the disk of a log full.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fleet/ps/wire.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr TableId kSmall{2};
constexpr size_t kDim = 4;

// Servers with logs of small segments, of which the next cannot be made after
// Fill, as if the disk were full.
class FullDisk : public testing::Test {
 protected:
  void Start(uint32_t num_servers, int num_workers = 1) {
    ++epoch_;
    for (uint32_t i = 0; i < num_servers; ++i) {
      PsServerOptions options;
      options.rank = static_cast<int32_t>(i);
      options.num_servers = num_servers;
      options.num_workers = num_workers;
      options.worker_grace = 60s;
      options.epoch = epoch_;
      options.durability = Durability::kLog;
      options.log_folder = LogFolder(i).string();
      options.log_segment_byte_size = 2 << 20;
      servers_.push_back(std::make_unique<PsServer>(options));
      ASSERT_OK(servers_.back()->OpenLog());
    }
  }
  base::Path LogFolder(uint32_t server) {
    return temporary_.path() / base::Concat("log.", server);
  }
  // The next segment of the server's log cannot be made.
  void Fill(uint32_t server) {
    uint64_t last = 0;
    const std::vector<std::string> names =
        base::ListFolder(LogFolder(server)).value();
    for (const std::string& name : names) {
      if (!name.starts_with("log.")) continue;
      last = std::max<uint64_t>(last, std::stoull(name.substr(4)));
    }
    in_the_way_ = LogFolder(server) / base::Concat("log.", last + 1);
    ASSERT_OK(base::MakeFolders(in_the_way_));
  }
  void Free() { std::filesystem::remove(in_the_way_); }

  std::unique_ptr<PsClient> Client(int worker) {
    PsClientOptions options;
    options.worker = worker;
    auto client = PsClient::Connect(
        static_cast<uint32_t>(servers_.size()),
        [this, worker](uint32_t server,
                       Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return servers_[server]->ConnectInProcess(
              base::Concat("worker ", worker));
        },
        options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }
  std::unique_ptr<PsClient> ClientWithTables(int worker) {
    auto client = Client(worker);
    table::SparseTableOptions sparse;
    sparse.name = "emb";
    sparse.dim = kDim;
    sparse.initializer = table::ConstantInit{0.0f};
    sparse.update.learning_rate.base = 1.0;
    DenseSpec dense;
    dense.name = "fc.w";
    dense.size = 100'000;
    dense.update.learning_rate.base = 1.0;
    DenseSpec small = dense;
    small.name = "fc.b";
    small.size = 20'000;
    EXPECT_OK(client->CreateTables(
        {{kEmb, sparse}, {kDense, dense}, {kSmall, small}}, Soon()));
    return client;
  }

  testing::TemporaryFolder temporary_;
  base::Path in_the_way_;
  uint64_t epoch_ = 0;
  std::vector<std::unique_ptr<PsServer>> servers_;
};

std::vector<Key> Keys(size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), Key{0});
  return keys;
}

std::vector<float> Rows(PsClient& client, const std::vector<Key>& keys) {
  std::vector<float> rows(keys.size() * kDim);
  EXPECT_OK(client.Pull(kEmb, keys, rows, {.training = false}, Soon()));
  return rows;
}

// The disk is full in the middle of pushes of all sizes, whose last request may
// be one for which there would be room.
TEST_F(FullDisk, APushOfManyRequestsIsNotHalfApplied) {
  for (const size_t num_keys : {10'000, 17'000, 20'500}) {
    std::filesystem::remove_all(LogFolder(0));
    Start(1);
    auto client = ClientWithTables(0);
    const std::vector<Key> keys = Keys(num_keys);
    const std::vector<float> ones(num_keys * kDim, 1.0f);
    ASSERT_OK(client->Push(kEmb, keys, ones, Soon()));
    Fill(0);
    std::vector<float> before;
    Status pushed;
    while (pushed.ok()) {
      before = Rows(*client, keys);
      pushed = client->Push(kEmb, keys, ones, Soon(), 1);
    }
    EXPECT_THAT(pushed.ToString(),
                AllOf(HasSubstr("server 0"), HasSubstr(in_the_way_.string())));
    EXPECT_EQ(Rows(*client, keys), before);
    // What has room is done, and what has not is not.
    EXPECT_OK(
        client->Push(kEmb, Keys(1), std::vector<float>(kDim, 1.0f), Soon()));
    EXPECT_FALSE(client->Push(kEmb, keys, ones, Soon(), 1).ok());
    Free();
    ASSERT_OK(client->Push(kEmb, keys, ones, Soon(), 1));
    std::vector<float> expected = before;
    for (float& x : expected) x -= 1;
    for (size_t i = 0; i < kDim; ++i) expected[i] -= 1;
    EXPECT_EQ(Rows(*client, keys), expected);
    const uint64_t step = servers_[0]->sparse(kEmb)->stats().step;
    client.reset();
    servers_.clear();
    Start(1);
    EXPECT_EQ(servers_[0]->sparse(kEmb)->stats().step, step);
    EXPECT_EQ(Rows(*Client(0), keys), expected);
    servers_.clear();
  }
}

// Workers that push at the same time take no room from each other.
TEST_F(FullDisk, PushesOfSeveralWorkersAreNotHalfApplied) {
  constexpr int kNumWorkers = 3;
  Start(1, kNumWorkers);
  std::vector<std::unique_ptr<PsClient>> clients;
  for (int w = 0; w < kNumWorkers; ++w) clients.push_back(ClientWithTables(w));
  Fill(0);
  constexpr size_t kNumKeys = 12'000;
  const std::vector<float> ones(kNumKeys * kDim, 1.0f);
  const auto keys_of = [&](int worker) {
    std::vector<Key> keys = Keys(kNumKeys);
    for (Key& key : keys) key += static_cast<Key>(worker) * kNumKeys;
    return keys;
  };
  std::vector<int> num_pushed(kNumWorkers);
  {
    std::vector<std::jthread> workers;
    for (int w = 0; w < kNumWorkers; ++w) {
      workers.emplace_back([&, w] {
        const auto at = static_cast<size_t>(w);
        while (clients[at]->Push(kEmb, keys_of(w), ones, Soon()).ok()) {
          ++num_pushed[at];
        }
      });
    }
  }
  for (int w = 0; w < kNumWorkers; ++w) {
    const auto at = static_cast<size_t>(w);
    const std::vector<float> rows = Rows(*clients[at], keys_of(w));
    EXPECT_THAT(rows, testing::Each(-static_cast<float>(num_pushed[at]))) << w;
  }
  Free();
}

TEST_F(FullDisk, DenseGradientsOfOneCallAreNotHalfApplied) {
  Start(1);
  auto client = ClientWithTables(0);
  for (const auto& [id, size] :
       {std::pair(kDense, 100'000), {kSmall, 20'000}}) {
    ASSERT_OK(client->InitializeDense(
        id, std::vector<float>(static_cast<size_t>(size)), Soon()));
  }
  const std::vector<float> ones(100'000, 1.0f);
  const std::vector<float> small(20'000, 1.0f);
  const std::vector<DenseGradient> gradients = {{kSmall, small},
                                                {kDense, ones}};
  Fill(0);
  float num_pushed = 0;
  const auto expect_values = [&] {
    for (const auto& [id, size] :
         {std::pair(kDense, 100'000), {kSmall, 20'000}}) {
      std::vector<float> values(static_cast<size_t>(size));
      ASSERT_OK(client->PullDense(id, values, Soon()));
      EXPECT_THAT(values, testing::Each(-num_pushed));
    }
  };
  Status pushed;
  while (pushed.ok()) {
    pushed = client->PushDenseMany(gradients, Soon(), 1);
    if (pushed.ok()) ++num_pushed;
  }
  EXPECT_THAT(pushed.ToString(), HasSubstr(in_the_way_.string()));
  expect_values();
  // The step does not end without them, either.
  while (client->Push(kEmb, Keys(4000), std::vector<float>(4000 * kDim), Soon())
             .ok()) {
  }
  EXPECT_THAT(client->FinishStep(gradients, {}, Soon()).ToString(),
              HasSubstr(in_the_way_.string()));
  expect_values();
  Free();
  ASSERT_OK(client->PushDenseMany(gradients, Soon(), 1));
  ++num_pushed;
  expect_values();
}

// Each server does its part of a push, or does not: the caller is told which
// server had no room, and sends its part again when there is some.
TEST_F(FullDisk, OfTwoServersOneMayHaveDoneItsPart) {
  Start(2);
  auto client = ClientWithTables(0);
  constexpr size_t kNumKeys = 40'000;
  const std::vector<Key> keys = Keys(kNumKeys);
  const std::vector<float> ones(kNumKeys * kDim, 1.0f);
  Fill(1);
  float num_pushed = 0;
  Status pushed;
  while (pushed.ok()) {
    pushed = client->Push(kEmb, keys, ones, Soon());
    if (pushed.ok()) ++num_pushed;
  }
  EXPECT_THAT(pushed.ToString(),
              AllOf(HasSubstr("server 1"), HasSubstr(in_the_way_.string())));
  // Nothing of its part is done, whatever the other one did.
  std::vector<Key> of_first;
  std::vector<Key> of_second;
  for (const Key key : keys) {
    (table::ServerOfKey(key, 2) == 0 ? of_first : of_second).push_back(key);
  }
  EXPECT_THAT(Rows(*client, of_second), testing::Each(-num_pushed));
  const std::vector<float> first = Rows(*client, of_first);
  Free();
  ASSERT_OK(client->Push(
      kEmb, of_second, std::span(ones).first(of_second.size() * kDim), Soon()));
  EXPECT_THAT(Rows(*client, of_second), testing::Each(-num_pushed - 1));
  EXPECT_EQ(Rows(*client, of_first), first);
  client.reset();
  servers_.clear();
  Start(2);
  client = Client(0);
  EXPECT_THAT(Rows(*client, of_second), testing::Each(-num_pushed - 1));
  EXPECT_EQ(Rows(*client, of_first), first);
}

}  // namespace
}  // namespace fleet::ps
