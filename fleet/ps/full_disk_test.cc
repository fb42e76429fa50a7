// SPDX-License-Identifier: Apache-2.0

// Servers with a log whose disk is full or fails.

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "fleet/ps/wire.h"
#include "fleet/testing/server_log_fixtures.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr TableId kSmall{2};

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
    sparse.dim = kLogDim;
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
  std::vector<float> rows(keys.size() * kLogDim);
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
    const std::vector<float> ones(num_keys * kLogDim, 1.0f);
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
        client->Push(kEmb, Keys(1), std::vector<float>(kLogDim, 1.0f), Soon()));
    EXPECT_FALSE(client->Push(kEmb, keys, ones, Soon(), 1).ok());
    Free();
    ASSERT_OK(client->Push(kEmb, keys, ones, Soon(), 1));
    std::vector<float> expected = before;
    for (float& x : expected) x -= 1;
    for (size_t i = 0; i < kLogDim; ++i) expected[i] -= 1;
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
  const std::vector<float> ones(kNumKeys * kLogDim, 1.0f);
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
  while (
      client->Push(kEmb, Keys(4000), std::vector<float>(4000 * kLogDim), Soon())
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
  const std::vector<float> ones(kNumKeys * kLogDim, 1.0f);
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
  ASSERT_OK(client->Push(kEmb, of_second,
                         std::span(ones).first(of_second.size() * kLogDim),
                         Soon()));
  EXPECT_THAT(Rows(*client, of_second), testing::Each(-num_pushed - 1));
  EXPECT_EQ(Rows(*client, of_first), first);
  client.reset();
  servers_.clear();
  Start(2);
  client = Client(0);
  EXPECT_THAT(Rows(*client, of_second), testing::Each(-num_pushed - 1));
  EXPECT_EQ(Rows(*client, of_first), first);
}

TEST_F(ServerLog, APushThatCannotBeLoggedChangesNothing) {
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Adam{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(5);
  Batch batch(random, 4000);
  std::iota(batch.keys.begin(), batch.keys.end(), Key{0});
  // The next segment cannot be made.
  ASSERT_OK(base::MakeFolders(log_folder_ / "log.2"));
  uint64_t num_pushed = 0;
  Status pushed;
  while (pushed.ok() && num_pushed < 10'000) {
    pushed = client->Push(kEmb, batch.keys, batch.gradients, Soon(), 1);
    if (pushed.ok()) ++num_pushed;
  }
  EXPECT_THAT(pushed.ToString(), HasSubstr("log.2"));
  EXPECT_EQ(server().sparse(kEmb)->stats().step, num_pushed);
  std::filesystem::remove(log_folder_ / "log.2");
  EXPECT_OK(client->Push(kEmb, batch.keys, batch.gradients, Soon(), 1));
  const auto before = Everything();
  End();
  Start();
  EXPECT_EQ(server().sparse(kEmb)->stats().step, num_pushed + 1);
  EXPECT_TRUE(Everything() == before);
  End();
}

// The disk fails while workers wait for the end of a step, at every kind of
// request: nobody is told that something is done, the server ends, and the next
// one goes on.
TEST_F(ServerLog, AServerWhoseLogFailsEndsAndTheNextOneGoesOn) {
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit unlimited = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  struct rlimit nothing = unlimited;
  nothing.rlim_cur = 0;
  for (const auto durability : {Durability::kLog, Durability::kLogSync}) {
    std::filesystem::remove_all(log_folder_);
    Start(durability);
    std::vector<std::unique_ptr<PsClient>> clients;
    for (int w = 0; w < kNumLogWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(optim::Adam{}), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    const std::vector<Key> keys = {1, 2, 3};
    const std::vector<float> ones(keys.size() * kLogDim, 1.0f);
    for (const bool in_step : {false, true}) {
      std::vector<std::jthread> workers;
      if (in_step) {
        for (int w = 1; w < kNumLogWorkers; ++w) {
          workers.emplace_back([&, w] {
            EXPECT_OK(
                clients[static_cast<size_t>(w)]->FinishStep({}, {}, Soon()));
          });
        }
      }
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &nothing), 0);
      workers.emplace_back([&] {
        EXPECT_OK(in_step ? clients[0]->FinishStep({}, {}, Soon())
                          : clients[0]->Push(kEmb, keys, ones, Soon()));
      });
      const Status ended = server().WaitUntilStopped(Soon());
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
      EXPECT_THAT(ended, StatusIs(StatusCode::kDataLoss,
                                  HasSubstr((log_folder_ / "log.").string())));
      End();
      Start(durability);
    }
    EXPECT_EQ(server().dense(kDense)->step(), 1u);
    std::vector<float> rows(ones.size());
    ASSERT_OK(clients[0]->Pull(kEmb, keys, rows, {.training = false}, Soon()));
    EXPECT_EQ(server().counters().num_repeated, 0u);
    End();
  }
  (void)std::signal(SIGXFSZ, ignored);
}

// What came after a push for which there was no room may have had room: the
// push is not taken for done when it comes again.
TEST_F(ServerLog, APushThatFoundNoRoomFailsAlsoWhenItComesAgain) {
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  ASSERT_OK(base::MakeFolders(log_folder_ / "log.2"));
  auto raw = Raw(1);
  const auto push = [&](uint64_t sequence, size_t count) {
    RequestHead head;
    head.op = Op::kPush;
    head.table = kEmb;
    head.sequence = sequence;
    head.count = count;
    return Ask(*raw, head, std::string(count * (8 + 4 * kLogDim), '\0'), Soon())
        .status();
  };
  uint64_t sequence = 1;
  Status pushed;
  while (pushed.ok()) pushed = push(sequence++, 4096);
  EXPECT_THAT(pushed.ToString(), HasSubstr("log.2"));
  const uint64_t failed = sequence - 1;
  EXPECT_OK(push(sequence, 1));
  EXPECT_THAT(push(failed, 4096).ToString(), HasSubstr("log.2"));
  // More keys than turns are for.
  EXPECT_THAT(push(sequence + 1, 4097),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("4097 keys")));
  End();
}

}  // namespace
}  // namespace fleet::ps
