// SPDX-License-Identifier: Apache-2.0

// Servers that are started again: what they begin with, and what they say that
// they have lost.

#include <cmath>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/channel/message.h"
#include "fleet/ps/request_log.h"
#include "fleet/testing/serving_fixtures.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST_F(ServingTest, BeginsAgainFromItsLastSave) {
  ServeOptions options = Options(1);
  options.last_save_file = folder_ + "/note";
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  options.address = (*serving)->address();
  auto client = Connect(
      **serving, 0, {.reconnect_for = 30s, .on_data_loss = OnDataLoss::kGoOn});
  ASSERT_OK(client->CreateTables(Specs(), Soon()));
  const std::vector<float> begin = {1, 2, 3};
  ASSERT_OK(client->InitializeDense(kWeights, begin, Soon()));
  const std::vector<Key> keys = {7, 8};
  const std::vector<float> ones(4, 1.0f);
  ASSERT_OK(client->Push(kRows, keys, ones, Soon()));
  EXPECT_FALSE(base::Exists(options.last_save_file));
  ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
  EXPECT_TRUE(base::Exists(options.last_save_file));
  ASSERT_OK(client->Push(kRows, keys, ones, Soon()));

  serving->reset();
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  // Nobody described the tables to the new one, except the client by itself.
  std::vector<float> rows(4);
  ASSERT_OK(client->Pull(kRows, keys, rows, {}, Soon()));
  EXPECT_THAT(rows, Each(-0.5f));
  std::vector<float> weights(3);
  ASSERT_OK(client->PullDense(kWeights, weights, Soon()));
  EXPECT_EQ(weights, begin);
}

// What was pushed since the save is lost: nobody goes on without knowing.
TEST_F(ServingTest, SaysWhichAcknowledgedUpdatesAServerLost) {
  for (const OnDataLoss policy : {OnDataLoss::kFail, OnDataLoss::kGoOn}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ServeOptions options = Options(2);
    options.last_save_file = folder_ + "/note";
    auto serving = Serving::Start(options);
    ASSERT_OK(serving);
    options.address = (*serving)->address();
    const PsClientOptions how{.reconnect_for = 30s, .on_data_loss = policy};
    auto client = Connect(**serving, 0, how);
    auto other = Connect(**serving, 1, how);
    ASSERT_OK(client->CreateTables(Specs(), Soon()));
    ASSERT_OK(other->CreateTables(Specs(), Soon()));
    ASSERT_OK(client->InitializeDense(kWeights, std::vector<float>(3), Soon()));
    const std::vector<Key> keys = {7, 8};
    const std::vector<float> ones(4, 1.0f);
    const std::vector<float> weights(3, 1.0f);
    ASSERT_OK(client->Push(kRows, keys, ones, Soon()));
    ASSERT_OK(other->Push(kRows, keys, ones, Soon()));
    ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
    // On several lanes.
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          EXPECT_OK(client->Push(kRows, keys, ones, Soon()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 12; ++i) {
      ASSERT_OK(client->PushDenseMany(One(kWeights, weights), Soon()));
    }
    serving->reset();
    serving = Serving::Start(options);
    ASSERT_OK(serving);
    testing::internal::CaptureStderr();
    std::vector<float> rows(4);
    const Status pulled = client->Pull(kRows, keys, rows, {}, Soon());
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string what =
        "server 0 was started again and has lost 300 updates of rows, 12 of "
        "weights that it had acknowledged";
    // Nothing of the other's is lost.
    EXPECT_OK(other->Pull(kRows, keys, rows, {}, Soon()));
    EXPECT_EQ(other->num_lost_updates(), 0u);
    EXPECT_EQ(client->num_lost_updates(), 312u);
    if (policy == OnDataLoss::kFail) {
      const auto lost =
          StatusIs(StatusCode::kDataLoss,
                   AllOf(HasSubstr("worker 0"), HasSubstr(what),
                         HasSubstr("FLEET_PS_ON_DATA_LOSS=go_on")));
      EXPECT_THAT(pulled, lost);
      EXPECT_THAT(client->Push(kRows, keys, ones, Soon()), lost);
      continue;
    }
    EXPECT_OK(pulled);
    EXPECT_THAT(said, HasSubstr(what));
    // Two pushes of 1 at a rate of 0.5.
    EXPECT_THAT(rows, Each(-1.0f));
    // Updates that were counted are not counted again.
    ASSERT_OK(client->Push(kRows, keys, ones, Soon()));
    serving->reset();
    serving = Serving::Start(options);
    ASSERT_OK(serving);
    EXPECT_OK(client->Pull(kRows, keys, rows, {}, Soon()));
    EXPECT_EQ(client->num_lost_updates(), 313u);
    testing::internal::CaptureStderr();
    EXPECT_OK(client->Stop(Soon()));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("lost 301 updates of rows, 12 of weights"));
  }
}

// A worker that is gone cannot be told what is lost of it: those who are here
// are, and the server's log says it, when it begins and when it ends.
TEST_F(ServingTest, SaysWhatItLostOfAWorkerThatHasSaidGoodbye) {
  for (const OnDataLoss policy : {OnDataLoss::kFail, OnDataLoss::kGoOn}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ServeOptions options = Options(2);
    options.last_save_file = folder_ + "/note";
    options.on_data_loss = policy;
    auto serving = Serving::Start(options);
    ASSERT_OK(serving);
    options.address = (*serving)->address();
    const PsClientOptions how{.reconnect_for = 30s, .on_data_loss = policy};
    auto client = Connect(**serving, 0, how);
    auto gone = Connect(**serving, 1, how);
    ASSERT_OK(client->CreateTables(Specs(), Soon()));
    ASSERT_OK(gone->CreateTables(Specs(), Soon()));
    ASSERT_OK(client->InitializeDense(kWeights, std::vector<float>(3), Soon()));
    const std::vector<Key> keys = {7};
    const std::vector<float> ones(2, 1.0f);
    ASSERT_OK(gone->Push(kRows, keys, ones, Soon()));
    ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
    for (int i = 0; i < 5; ++i) {
      ASSERT_OK(gone->Push(kRows, keys, ones, Soon()));
    }
    ASSERT_OK(gone->Stop(Soon()));
    gone.reset();
    const std::string what = "has lost 5 updates of rows of worker 1";
    // Twice: what workers left is not forgotten by the second start.
    for (int i = 0; i < 2; ++i) {
      serving->reset();
      testing::internal::CaptureStderr();
      serving = Serving::Start(options);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(what));
      ASSERT_OK(serving);
    }
    testing::internal::CaptureStderr();
    std::vector<float> row(2);
    const Status pulled = client->Pull(kRows, keys, row, {}, Soon());
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(client->num_lost_updates(), 0u);  // of its own
    if (policy == OnDataLoss::kFail) {
      EXPECT_THAT(pulled, StatusIs(StatusCode::kDataLoss, HasSubstr(what)));
      continue;
    }
    EXPECT_OK(pulled);
    EXPECT_THAT(said, HasSubstr(what));
    // Nobody waits for the worker that is gone: the end is that of this one.
    ASSERT_OK(client->FinishStep({}, {}, Soon()));
    ASSERT_OK(client->Stop(Soon()));
    testing::internal::CaptureStderr();
    EXPECT_OK((*serving)->Run());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(what));
    // Where nobody said that it may go on, the job hears of it by the server.
    serving->reset();
    options.on_data_loss = OnDataLoss::kFail;
    serving = Serving::Start(options);
    ASSERT_OK(serving);
    EXPECT_THAT((*serving)->Run(),
                StatusIs(StatusCode::kDataLoss, HasSubstr(what)));
  }
}

// The servers of a job that log, and a worker that knows them all.
class ManyServers {
 public:
  ManyServers(const std::string& folder, uint32_t num_servers) {
    std::vector<channel::Address> addresses;
    for (uint32_t rank = 0; rank < num_servers; ++rank) {
      ServeOptions options;
      options.server.rank = static_cast<int32_t>(rank);
      options.server.num_servers = num_servers;
      options.server.worker_grace = 60s;
      options.server.durability = Durability::kLog;
      options.server.log_folder =
          folder + "/" + LogFolderName(rank, num_servers);
      options.address.host = "127.0.0.1";
      options.report_every = options.name_missing_after = 0ms;
      auto serving = Serving::Start(options);
      failure_ = serving.status();
      if (!failure_.ok()) return;
      servers_.push_back(std::move(serving).value());
      addresses.push_back(servers_.back()->address());
    }
    auto connected = PsClient::Connect(addresses, {}, Soon());
    EXPECT_OK(connected);
    client_ = std::move(connected).value();
  }
  PsClient& client() { return *client_; }
  const Status& failure() const { return failure_; }
  table::SparseTableStats stats(TableId table) {
    return client_->Stats(table, Soon()).value();
  }

 private:
  std::vector<std::unique_ptr<Serving>> servers_;
  std::unique_ptr<PsClient> client_;
  Status failure_;
};

TEST_F(ServingTest, AnotherNumberOfServersGoesOnFromTheLogs) {
  constexpr TableId kRare{5};
  constexpr TableId kFromZeros{6};
  table::SparseTableOptions rare;
  rare.name = "rare";
  rare.dim = 2;
  rare.entry = table::AdmitByCount{3};
  std::vector<table::TableSpec> specs = Specs();
  auto& rows = std::get<table::SparseTableOptions>(specs[0].table);
  rows.update.rule = optim::Adam{};
  // Dense values in several blocks, so that several servers have a part.
  std::get<table::DenseSpec>(specs[1].table).size = 3000;
  specs.push_back({kRare, rare});
  // Nobody initializes it.
  specs.push_back({kFromZeros, specs[1].table});
  std::get<table::DenseSpec>(specs.back().table).name = "from zeros";
  std::vector<Key> keys(500);
  std::iota(keys.begin(), keys.end(), Key{0});
  const std::vector<float> ones(keys.size() * 2, 1.0f);
  const auto see = [&](ManyServers& servers) {
    std::vector<float> seen(keys.size() * 2 + 2 * 3000);
    const std::span<float> all(seen);
    EXPECT_OK(servers.client().Pull(kRows, keys, all.first(keys.size() * 2),
                                    {.training = false}, Soon()));
    const std::span<float> dense = all.subspan(keys.size() * 2);
    EXPECT_OK(servers.client().PullDense(kWeights, dense.first(3000), Soon()));
    EXPECT_OK(
        servers.client().PullDense(kFromZeros, dense.subspan(3000), Soon()));
    return seen;
  };
  const auto push = [&](ManyServers& servers) {
    ASSERT_OK(servers.client().Push(kRows, keys, ones, Soon(), 1));
    for (const TableId dense : {kWeights, kFromZeros}) {
      ASSERT_OK(servers.client().PushDenseMany(
          One(dense, std::vector<float>(3000, 1.0f)), Soon(), 1));
    }
    std::vector<float> pulled(ones.size());
    ASSERT_OK(servers.client().Pull(kRare, keys, pulled, {}, Soon()));
  };
  std::vector<float> seen;
  // What the same pushes make where nobody is ever started again.
  std::vector<float> expected;
  for (const bool restarts : {false, true}) {
    const std::string folder = folder_ + (restarts ? "/log" : "/other");
    auto servers = std::make_unique<ManyServers>(folder, 2);
    ASSERT_OK(servers->client().CreateTables(specs, Soon()));
    ASSERT_OK(servers->client().InitializeDense(
        kWeights, std::vector<float>(3000), Soon()));
    ASSERT_OK(servers->client().Refresh(Soon()));
    push(*servers);
    for (const uint32_t number : {3u, 3u, 1u}) {
      if (restarts) {
        seen = see(*servers);
        servers.reset();
        servers = std::make_unique<ManyServers>(folder, number);
        ASSERT_OK(servers->failure());
        EXPECT_EQ(see(*servers), seen) << number;
        const auto left = base::ListFolder(folder).value();
        EXPECT_EQ(left.size(), number);
      }
      push(*servers);
    }
    EXPECT_EQ(servers->stats(kRare).num_rows, keys.size());
    EXPECT_EQ(servers->stats(kRows).step, 4u);
    (restarts ? seen : expected) = see(*servers);
  }
  EXPECT_EQ(seen, expected);
}

TEST_F(ServingTest, LogsOfOtherServersThatAreNotAllThereAreRefused) {
  {
    ManyServers servers(folder_, 2);
    ASSERT_OK(servers.client().CreateTables(Specs(), Soon()));
    // They still run.
    EXPECT_THAT(ManyServers(folder_, 1).failure(),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("another server that runs")));
  }
  std::filesystem::remove_all(folder_ + "/server.1-of-2");
  EXPECT_THAT(
      ManyServers(folder_, 3).failure(),
      StatusIs(StatusCode::kDataLoss,
               HasSubstr("of the logs of 2 servers, those of server 1")));
}

// What was saved after the good-bye is there.
TEST_F(ServingTest, WhatWasSavedOfAWorkerThatHasSaidGoodbyeIsNotLost) {
  ServeOptions options = Options(2);
  options.last_save_file = folder_ + "/note";
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  options.address = (*serving)->address();
  auto client = Connect(**serving, 0, {.reconnect_for = 30s});
  auto gone = Connect(**serving, 1);
  ASSERT_OK(client->CreateTables(Specs(), Soon()));
  ASSERT_OK(gone->CreateTables(Specs(), Soon()));
  ASSERT_OK(client->InitializeDense(kWeights, std::vector<float>(3), Soon()));
  const std::vector<Key> keys = {7};
  ASSERT_OK(gone->Push(kRows, keys, std::vector<float>(2, 1.0f), Soon()));
  ASSERT_OK(gone->Stop(Soon()));
  gone.reset();
  ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
  serving->reset();
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  EXPECT_EQ((*serving)->server().lost_of_gone(), "");
  std::vector<float> row(2);
  EXPECT_OK(client->Pull(kRows, keys, row, {}, Soon()));
  EXPECT_THAT(row, Each(-0.5f));
  // A first start in the same place has nothing to do with the job before.
  serving->reset();
  options.server.epoch = 1;
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  EXPECT_FALSE(base::Exists(folder_ + "/note.goodbyes"));
}

// Sums of a step that has not ended are in no save.
TEST_F(ServingTest, CountsSumsThatWaitedForTheEndOfTheirStepAsLost) {
  ServeOptions options = Options(1);
  options.last_save_file = folder_ + "/note";
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  options.address = (*serving)->address();
  auto client = Connect(**serving, 0, {.reconnect_for = 30s});
  ASSERT_OK(client->CreateTables(Specs(), Soon()));
  ASSERT_OK(client->InitializeDense(kWeights, std::vector<float>(3), Soon()));
  const std::vector<Key> keys = {7};
  const std::vector<float> ones(2, 1.0f);
  for (int step = 0; step < 2; ++step) {
    ASSERT_OK(client->Accumulate(kRows, keys, ones, Soon()));
    ASSERT_OK(client->FinishStep({}, {}, Soon()));
  }
  ASSERT_OK(client->Accumulate(kRows, keys, ones, Soon()));
  ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
  serving->reset();
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  EXPECT_THAT(
      client->FinishStep({}, {}, Soon()),
      StatusIs(StatusCode::kDataLoss, HasSubstr("lost 1 update of rows that")));
}

TEST_F(ServingTest, IsToldItsRatesAgain) {
  ServeOptions options = Options(1);
  options.last_save_file = folder_ + "/note";
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  options.address = (*serving)->address();
  auto client = Connect(**serving, 0, {.reconnect_for = 30s});
  std::vector<table::TableSpec> specs = Specs();
  const table::ToldRate told{.name = "lr"};
  std::get<table::SparseTableOptions>(specs[0].table)
      .update.learning_rate.schedule = told;
  std::get<table::DenseSpec>(specs[1].table).update.learning_rate.schedule =
      told;
  ASSERT_OK(client->CreateTables(specs, Soon()));
  ASSERT_OK(client->InitializeDense(kWeights, std::vector<float>(3), Soon()));
  ASSERT_OK(client->SetRate("another", 100.0, Soon()));
  const std::vector<Key> keys = {7};
  const std::vector<float> ones(3, 1.0f);
  std::vector<float> row(2);
  std::vector<float> weights(3);
  auto push = [&] {
    EXPECT_OK(client->Push(kRows, keys, std::vector<float>{1, 1}, Soon()));
    EXPECT_OK(client->PushDenseMany(One(kWeights, ones), Soon()));
    EXPECT_OK(client->Pull(kRows, keys, row, {}, Soon()));
    EXPECT_OK(client->PullDense(kWeights, weights, Soon()));
  };
  push();
  EXPECT_THAT(row, Each(-0.5f));
  EXPECT_THAT(weights, Each(-0.5f));
  ASSERT_OK(client->SetRate("lr", 2.0, Soon()));
  push();
  EXPECT_THAT(row, Each(-2.5f));
  EXPECT_THAT(weights, Each(-2.5f));
  EXPECT_THAT(client->SetRate("lr", std::nan(""), Soon()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rate")));
  ASSERT_OK(client->SetRate("lr", 3.0, Soon()));
  ASSERT_OK(client->Save(folder_ + "/model", {}, Soon()));
  serving->reset();
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  push();
  EXPECT_THAT(row, Each(-5.5f));
  EXPECT_THAT(weights, Each(-5.5f));
}

TEST_F(ServingTest, SaysSoWhenAServerCameBackWithoutValues) {
  ServeOptions options = Options(1);
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  options.address = (*serving)->address();
  auto client = Connect(
      **serving, 0, {.reconnect_for = 30s, .on_data_loss = OnDataLoss::kGoOn});
  ASSERT_OK(client->CreateTables(Specs(), Soon()));
  ASSERT_OK(
      client->InitializeDense(kWeights, std::vector<float>(3, 1.0f), Soon()));
  serving->reset();
  serving = Serving::Start(options);
  ASSERT_OK(serving);
  std::vector<float> weights(3);
  EXPECT_THAT(client->PullDense(kWeights, weights, Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("server 0"), HasSubstr("weights"),
                             HasSubstr("no save"))));
}

// Nothing counts its starts, and the worker that is new comes first: its
// incarnation is none that was given before.
TEST_F(ServingTest, AServerWithoutAnyFileAscendsWhenItIsStartedAgain) {
  uint64_t highest = 0;
  uint64_t epoch = 0;
  for (int life = 0; life < 2; ++life) {
    auto serving = Serving::Start(Options(2));
    ASSERT_OK(serving);
    for (uint32_t worker = 0; worker < 2; ++worker) {
      auto raw = (*serving)->server().ConnectInProcess("a worker");
      const auto bytes = SayHello(*raw, worker);
      ASSERT_OK(bytes);
      const auto answer = DecodeHelloAnswer(*bytes);
      ASSERT_OK(answer);
      EXPECT_GT(answer->incarnation, highest);
      highest = answer->incarnation;
      epoch = answer->epoch;
    }
    serving->reset();
    // As long as an epoch lasts.
    while (static_cast<uint64_t>(std::time(nullptr)) <= epoch) {
      std::this_thread::sleep_for(10ms);
    }
  }
}

}  // namespace
}  // namespace fleet::ps
