// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/serve.h"

#include <cmath>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/channel/message.h"
#include "fleet/ps/connect.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/request_faults.h"

namespace fleet::ps {
namespace {

using cluster::Environment;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr TableId kRows{3};
constexpr TableId kWeights{4};

class ServingTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/serve_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static ServeOptions Options(int num_workers) {
    ServeOptions options;
    options.server.num_workers = num_workers;
    options.server.worker_grace = 50ms;
    options.address.host = "127.0.0.1";
    options.report_every = 0ms;
    options.name_missing_after = 0ms;
    return options;
  }

  static std::unique_ptr<PsClient> Connect(Serving& serving, int worker,
                                           PsClientOptions options = {}) {
    options.worker = worker;
    auto client = PsClient::Connect({serving.address()}, options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }

  static std::vector<table::TableSpec> Specs() {
    table::SparseTableOptions rows;
    rows.name = "rows";
    rows.dim = 2;
    rows.update.learning_rate.base = 0.5;
    table::DenseSpec weights;
    weights.name = "weights";
    weights.size = 3;
    weights.update.learning_rate.base = 0.5;
    return {{kRows, rows}, {kWeights, weights}};
  }

  std::string folder_;
};

Environment ServerEnvironment() {
  return {{"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:71,10.0.0.2:72"},
          {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:81,10.0.0.2:82,10.0.0.2:83"},
          {"PADDLE_TRAINERS_NUM", "3"},
          {"TRAINING_ROLE", "PSERVER"},
          {"POD_IP", "10.0.0.2"},
          {"PADDLE_PORT", "72"}};
}

Result<ServeOptions> Read(const Environment& env) {
  ASSIGN_OR_RETURN(const cluster::Role role,
                   cluster::RoleFromEnvironment(env, false));
  return ReadServeOptions(role, env);
}

TEST(ServeOptions, ComeFromTheEnvironment) {
  Environment env = ServerEnvironment();
  env["FLEET_SECRET"] = "of the job";
  env["FLEET_LISTEN_FD"] = "7";
  env["FLEET_PS_GO_ON"] = "1";
  env["FLEET_PS_WORKER_GRACE"] = "2.5";
  env["FLEET_PS_MEMORY_MB"] = "3";
  env["FLEET_PS_LOAD"] = "models/7";
  env["FLEET_PS_REPORT"] = "0";
  env["FLEET_PS_CHANNEL"] = "tcp";
  env["FLEET_SERVER_EPOCH"] = "3";
  env["FLEET_PS_DURABILITY"] = "log";
  env["FLEET_PS_LOG_DIR"] = "logs";
  env["FLEET_PS_LOG_MB"] = "40";
  env["FLEET_PS_ON_DATA_LOSS"] = "go_on";
  const auto options = Read(env);
  ASSERT_OK(options);
  EXPECT_EQ(options->address.ToString(), "10.0.0.2:72");
  EXPECT_EQ(options->listen_fd, 7);
  EXPECT_EQ(options->report_every, 0ms);
  EXPECT_EQ(options->server.rank, 1);
  EXPECT_EQ(options->server.epoch, 3u);
  EXPECT_EQ(options->server.num_servers, 2u);
  EXPECT_EQ(options->server.num_workers, 3);
  EXPECT_EQ(options->server.processes_on_host, 3);
  EXPECT_EQ(options->server.trust.secret,
            channel::Secret::FromText("of the job").value());
  EXPECT_EQ(options->server.worker_grace, 2500ms);
  EXPECT_TRUE(options->server.go_on_without_lost_workers);
  EXPECT_EQ(options->server.max_table_byte_size, 3u << 20);
  EXPECT_EQ(options->server.load_folder, "models/7");
  EXPECT_FALSE(options->server.shared_memory);
  EXPECT_EQ(options->server.log_folder, "logs/server.1-of-2");
  EXPECT_EQ(options->server.checkpoint_byte_size, 40u << 20);
  EXPECT_EQ(options->on_data_loss, OnDataLoss::kGoOn);
}

TEST(ServeOptions, TakeTheDurabilityThatIsSaidBeforeTheDefault) {
  Environment env = ServerEnvironment();
  EXPECT_EQ(Read(env)->server.durability, Durability::kNone);
  env["FLEET_PS_DURABILITY_DEFAULT"] = "log";
  EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                  HasSubstr("FLEET_PS_LOG_DIR")));
  env["FLEET_PS_LOG_DIR"] = "logs";
  EXPECT_EQ(Read(env)->server.durability, Durability::kLog);
  env["FLEET_PS_DURABILITY"] = "none";
  EXPECT_EQ(Read(env)->server.durability, Durability::kNone);
  env["FLEET_PS_DURABILITY"] = "disk";
  EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                  HasSubstr("none, log or log-sync")));
}

TEST(ServeOptions, NameTheVariableThatIsWrong) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{
           {"FLEET_PS_GO_ON", "perhaps"},
           {"FLEET_PS_CHANNEL", "pigeon"},
           {"FLEET_PS_MEMORY_MB", "-1"},
           {"FLEET_PS_REPORT", "soon"}}) {
    Environment env = ServerEnvironment();
    env[name] = value;
    EXPECT_THAT(Read(env), StatusIs(StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr(name), HasSubstr(value))));
  }
}

TEST(ServeOptions, AreOfServersOnly) {
  Environment env = ServerEnvironment();
  env["TRAINING_ROLE"] = "TRAINER";
  env["PADDLE_TRAINER_ID"] = "2";
  EXPECT_THAT(Read(env),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no server")));
}

TEST(ConnectOptions, ComeFromTheEnvironment) {
  Environment env = ServerEnvironment();
  env["TRAINING_ROLE"] = "TRAINER";
  env["PADDLE_TRAINER_ID"] = "2";
  env["FLEET_PS_RECONNECT"] = "4";
  env["FLEET_START_TIMEOUT"] = "9";
  env["FLEET_PS_ON_DATA_LOSS"] = "go_on";
  const auto role = cluster::RoleFromEnvironment(env, false);
  ASSERT_OK(role);
  const auto options = ReadConnectOptions(*role, env);
  ASSERT_OK(options);
  EXPECT_EQ(options->client.worker, 2);
  EXPECT_EQ(options->client.reconnect_for, 4s);
  EXPECT_EQ(options->start_timeout, 9s);
  EXPECT_EQ(options->client.on_data_loss, OnDataLoss::kGoOn);
  ASSERT_EQ(options->servers.size(), 2u);
  EXPECT_EQ(options->servers[1].ToString(), "10.0.0.2:72");
  env["FLEET_PS_ON_DATA_LOSS"] = "pray";
  EXPECT_THAT(ReadConnectOptions(*role, env),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("FLEET_PS_ON_DATA_LOSS=pray")));
}

TEST_F(ServingTest, EndsWhenTheLastWorkerHasStopped) {
  auto serving = Serving::Start(Options(2));
  ASSERT_OK(serving);
  Status outcome;
  std::thread running([&] { outcome = (*serving)->Run(); });
  auto first = Connect(**serving, 0);
  auto second = Connect(**serving, 1);
  EXPECT_OK(first->Stop(Soon()));
  EXPECT_OK(second->Stop(Soon()));
  running.join();
  EXPECT_OK(outcome);
}

TEST_F(ServingTest, NamesTheWorkersThatDoNotCome) {
  ServeOptions options = Options(2);
  options.name_missing_after = 20ms;
  // Looks come before waits. Once it is time the wait ends at once, and they
  // are named before the next look.
  Deadline due = Deadline::Infinite();
  int late_looks = 0;
  options.interrupt = [&]() -> Status {
    if (due.expired()) ++late_looks;
    return late_looks < 2 ? OkStatus() : Unavailable("enough");
  };
  testing::internal::CaptureStderr();
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  due = Deadline::After(options.name_missing_after);
  auto first = Connect(**serving, 0);
  EXPECT_THAT((*serving)->Run(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("enough")));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(" s for worker 1. Do they run"));
}

TEST_F(ServingTest, TellsThoseWhoComeLaterWhoWasLost) {
  auto serving = Serving::Start(Options(2));
  ASSERT_OK(serving);
  Status outcome;
  std::thread running([&] { outcome = (*serving)->Run(); });
  auto first = Connect(**serving, 0);
  Connect(**serving, 1).reset();
  // The grace of the lost one is over.
  EXPECT_THAT((*serving)->server().WaitUntilStopped(Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_THAT(first->FinishStep({}, {}, Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  first.reset();
  running.join();
  EXPECT_THAT(outcome, StatusIs(StatusCode::kUnavailable,
                                HasSubstr("worker 1 is lost")));
}

TEST_F(ServingTest, GoesOnWithoutLostWorkersButNotWithoutAll) {
  ServeOptions options = Options(2);
  options.server.go_on_without_lost_workers = true;
  for (const bool all : {false, true}) {
    auto serving = Serving::Start(options);
    ASSERT_OK(serving);
    Status outcome;
    std::thread running([&] { outcome = (*serving)->Run(); });
    auto first = Connect(**serving, 0);
    Connect(**serving, 1).reset();
    EXPECT_OK(first->FinishStep({}, {}, Soon()));
    if (!all) {
      EXPECT_OK(first->Stop(Soon()));
    }
    first.reset();
    running.join();
    EXPECT_EQ(outcome.ok(), !all) << outcome;
  }
}

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
  std::vector<Key> keys(500);
  std::iota(keys.begin(), keys.end(), Key{0});
  const std::vector<float> ones(keys.size() * 2, 1.0f);
  const auto see = [&](ManyServers& servers) {
    std::vector<float> seen(keys.size() * 2 + 3000);
    const std::span<float> all(seen);
    EXPECT_OK(servers.client().Pull(kRows, keys, all.first(keys.size() * 2),
                                    {.training = false}, Soon()));
    EXPECT_OK(servers.client().PullDense(kWeights, all.subspan(keys.size() * 2),
                                         Soon()));
    return seen;
  };
  const auto push = [&](ManyServers& servers) {
    ASSERT_OK(servers.client().Push(kRows, keys, ones, Soon(), 1));
    ASSERT_OK(servers.client().PushDenseMany(
        One(kWeights, std::vector<float>(3000, 1.0f)), Soon(), 1));
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

TEST_F(ServingTest, IsGivenUpWhenTheSignOfItsLifeIsLost) {
  auto serving = Serving::Start(Options(1));
  ASSERT_OK(serving);
  const auto faults = std::make_shared<testing::RequestFaults>();
  faults->Arm(Op::kPush, testing::RequestFault::kUnanswered);
  // Connections in the order in which they are made: the one that carries
  // nothing, then one for calls.
  std::vector<channel::Channel*> made;
  auto client = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        auto channel = std::make_unique<testing::FaultyChannel>(
            (*serving)->server().ConnectInProcess("worker 0"), faults);
        made.push_back(channel.get());
        return channel;
      },
      {}, Soon());
  ASSERT_OK(client);
  ASSERT_OK((*client)->CreateTables(Specs(), Soon()));
  ASSERT_EQ(made.size(), 2u);
  made[0]->Abort(Unavailable("its host is gone"));
  EXPECT_THAT(
      (*client)->Push(kRows, std::vector<Key>{1}, std::vector<float>(2),
                      Soon()),
      StatusIs(StatusCode::kUnavailable,
               AllOf(HasSubstr("server 0"), HasSubstr("its host is gone"))));
}

TEST_F(ServingTest, AWorkerWithoutASignOfLifeIsLostThoughItsCallsAreOpen) {
  auto serving = Serving::Start(Options(1));
  ASSERT_OK(serving);
  std::vector<channel::Channel*> made;
  auto client = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        auto channel = (*serving)->server().ConnectInProcess("worker 0");
        made.push_back(channel.get());
        return channel;
      },
      {}, Soon());
  ASSERT_OK(client);
  ASSERT_EQ(made.size(), 2u);
  made[0]->Abort(Unavailable("its host is gone"));
  // The connection for calls is as it was, and nothing comes over it.
  EXPECT_THAT(
      (*serving)->server().WaitUntilStopped(Soon()),
      StatusIs(StatusCode::kUnavailable, HasSubstr("worker 0 is lost")));
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
      RequestHead head;
      head.op = Op::kHello;
      const std::string body =
          channel::MessageWriter().U32(worker).U32(0).U64(0).Take();
      const auto bytes = Ask(*raw, head, body, Soon());
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

// A server of which a checkpoint is being written, on a disk that is too slow
// for any test.
class ServingOnASlowDisk : public ServingTest {
 protected:
  void Start(std::chrono::milliseconds heartbeat_timeout = 0ms) {
    ServeOptions options = Options(2);
    options.server.durability = Durability::kLog;
    options.server.log_folder = log_folder();
    options.server.checkpoint_byte_size = 1;
    options.server.write_delay = 1h;
    options.server.heartbeat_timeout = heartbeat_timeout;
    auto serving = Serving::Start(options);
    ASSERT_OK(serving);
    serving_ = std::move(serving).value();
    running_ = std::thread([this] { outcome_ = serving_->Run(); });
    // By hand: a worker that gives no sign of life is not watched.
    by_hand_ = serving_->server().ConnectInProcess("worker 0");
    RequestHead head;
    head.op = Op::kHello;
    ASSERT_OK(Ask(*by_hand_, head,
                  channel::MessageWriter().U32(0).U32(0).U64(0).Take(),
                  Soon()));
    head.op = Op::kCreate;
    std::vector<std::string> specs;
    for (const table::TableSpec& spec : Specs()) specs.push_back(Encode(spec));
    ASSERT_OK(Ask(*by_hand_, head, RequestsToCreate(specs)[0], Soon()));
    const Deadline deadline = Soon();
    while (!base::Exists(log_folder() + "/base.1.1")) {
      ASSERT_FALSE(deadline.expired());
      std::this_thread::sleep_for(1ms);
    }
  }
  std::string log_folder() const { return folder_ + "/log"; }
  void ExpectCheckpointIsStillWritten() {
    EXPECT_TRUE(base::Exists(log_folder() + "/base.1.1"));
    EXPECT_FALSE(base::Exists(log_folder() + "/checkpoint"));
  }

  void TearDown() override {
    if (running_.joinable()) {
      serving_->Stop(Unavailable("the test ends"));
      running_.join();
    }
    ServingTest::TearDown();
  }

  std::unique_ptr<Serving> serving_;
  std::unique_ptr<channel::Channel> by_hand_;
  Status outcome_;
  std::thread running_;
};

TEST_F(ServingOnASlowDisk, NoticesAWorkerThatStandsStill) {
  Start(1ms);
  auto silent = serving_->server().ConnectInProcess("worker 1");
  RequestHead head;
  head.op = Op::kHello;
  const std::string hello =
      channel::MessageWriter().U32(1).U32(kLifeLane).U64(0).Take();
  ASSERT_OK(Ask(*silent, head, hello, Soon()));
  head.op = Op::kBeat;
  const std::string beat =
      channel::MessageWriter().Text("process 7").U32(1).U64(1).Take();
  ASSERT_OK(Ask(*silent, head, beat, Soon()));
  // It is named, and its connection ended.
  const Status ended = silent->NextSize(Soon()).status();
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended;
  ExpectCheckpointIsStillWritten();
}

TEST_F(ServingOnASlowDisk, EndsWhenTheLastWorkerHasStopped) {
  Start();
  auto first = Connect(*serving_, 0);
  auto second = Connect(*serving_, 1);
  ExpectCheckpointIsStillWritten();
  EXPECT_OK(first->Stop(Soon()));
  EXPECT_OK(second->Stop(Soon()));
  running_.join();
  EXPECT_OK(outcome_);
  EXPECT_FALSE(base::Exists(log_folder()));
}

TEST_F(ServingTest, SaysWhichFolderIsNotThere) {
  ServeOptions options = Options(1);
  options.server.load_folder = folder_ + "/absent";
  EXPECT_THAT(Serving::Start(options).status(),
              StatusIs(StatusCode::kNotFound, HasSubstr("/absent")));
}

TEST_F(ServingTest, RefusesRowsBeyondItsMemory) {
  ServeOptions options = Options(1);
  options.server.max_table_byte_size = 1 << 20;
  auto serving = Serving::Start(options);
  ASSERT_OK(serving);
  auto client = Connect(**serving, 0);
  ASSERT_OK(client->CreateTables(Specs(), Soon()));
  std::vector<Key> keys(200'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  std::vector<float> rows(keys.size() * 2);
  EXPECT_THAT(client->Pull(kRows, keys, rows, {}, Soon()),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("rows"), HasSubstr("server 0"))));
  // Rows that are there are still served.
  ASSERT_OK(client->Pull(kRows, std::span(keys).first(1),
                         std::span(rows).first(2), {}, Soon()));
}

}  // namespace
}  // namespace fleet::ps
