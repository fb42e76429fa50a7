// SPDX-License-Identifier: Apache-2.0

// Servers that end and have their tables again from their log.

#include <atomic>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fleet/ps/heartbeats.h"
#include "fleet/ps/request_log.h"
#include "fleet/testing/server_log_fixtures.h"

namespace fleet::ps {
namespace {

using testing::HasSubstr;

class ServerLogOfRule : public ServerLog,
                        public testing::WithParamInterface<optim::UpdateRule> {
};

// Workers push at the same time, so that turns mix, and checkpoints come
// between; whatever is cut, the bits are the same.
TEST_P(ServerLogOfRule, TablesAreTheSameToTheBit) {
  for (const bool missed_steps : {false, true}) {
    std::filesystem::remove_all(log_folder_);
    checkpoint_byte_size_ = missed_steps ? 1 : 0;
    table::SparseTableOptions sparse;
    sparse.count_missed_steps = missed_steps;
    Start();
    std::vector<std::unique_ptr<PsClient>> clients;
    for (int w = 0; w < kNumLogWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(GetParam(), sparse), Soon()));
    ASSERT_OK(clients[0]->InitializeDense(kDense, std::vector<float>(10, 1.0f),
                                          Soon()));
    ASSERT_OK(clients[0]->InitializeDense(
        kWide, std::vector<float>(100'000, 1.0f), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    for (int round = 0; round < 3; ++round) {
      {
        std::vector<std::jthread> workers;
        for (int w = 0; w < kNumLogWorkers; ++w) {
          workers.emplace_back([&, w] {
            std::mt19937 random(static_cast<uint32_t>(10 * round + w));
            PushSome(*clients[static_cast<size_t>(w)], random, 20);
          });
        }
        if (missed_steps) {
          for (int i = 0; i < 5; ++i) EXPECT_OK(server().CheckpointIfDue());
        }
      }
      const auto before = Everything();
      End();
      Start();
      const auto after = Everything();
      ASSERT_EQ(before.size(), after.size());
      for (const auto& [name, bytes] : before) {
        EXPECT_TRUE(bytes == after.at(name)) << name << ", round " << round;
      }
    }
    End();
    clients.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(All, ServerLogOfRule,
                         testing::Values(optim::UpdateRule(optim::Sgd{}),
                                         optim::UpdateRule(optim::Momentum{}),
                                         optim::UpdateRule(optim::Adam{}),
                                         optim::UpdateRule(optim::Adagrad{}),
                                         optim::UpdateRule(optim::Adamax{}),
                                         optim::UpdateRule(optim::RmsProp{}),
                                         optim::UpdateRule(optim::Adadelta{}),
                                         optim::UpdateRule(optim::Lamb{}),
                                         optim::UpdateRule(optim::Lars{}),
                                         optim::UpdateRule(optim::Ftrl{})));

// Servers end in the middle of steps, with and without checkpoints; one that
// never ends has the same tables.
TEST_F(ServerLog, SumsOfAStepSurvive) {
  std::map<std::string, std::string> first;
  for (const int run : {0, 1, 2}) {
    std::filesystem::remove_all(log_folder_);
    checkpoint_byte_size_ = run == 2 ? 1 : 0;
    Start();
    std::vector<std::unique_ptr<PsClient>> clients;
    for (int w = 0; w < kNumLogWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(optim::Adam{}), Soon()));
    ASSERT_OK(clients[0]->InitializeDense(kDense, std::vector<float>(10, 1.0f),
                                          Soon()));
    ASSERT_OK(clients[0]->InitializeDense(
        kWide, std::vector<float>(100'000, 1.0f), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    std::mt19937 random(1);
    for (int step = 0; step < 6; ++step) {
      std::vector<Batch> batches;
      for (int w = 0; w < kNumLogWorkers; ++w) batches.emplace_back(random, 30);
      const std::vector<float> gradient(10, static_cast<float>(step));
      for (int w = 0; w < 2; ++w) {
        const Batch& batch = batches[static_cast<size_t>(w)];
        ASSERT_OK(clients[static_cast<size_t>(w)]->Accumulate(
            kEmb, batch.keys, batch.gradients, Soon()));
      }
      // Two have sent their sums.
      if (run == 2) {
        ASSERT_OK(server().CheckpointIfDue());
      }
      if (run > 0 && step != 2) {
        End();
        Start();
      }
      std::vector<std::jthread> workers;
      for (int w = 0; w < kNumLogWorkers; ++w) {
        workers.emplace_back([&, w] {
          PsClient& client = *clients[static_cast<size_t>(w)];
          const Batch& batch = batches[static_cast<size_t>(w)];
          if (w == 2) {
            EXPECT_OK(
                client.Accumulate(kEmb, batch.keys, batch.gradients, Soon()));
          }
          std::vector<float> values(10);
          const std::vector<DenseGradient> gradients = {{kDense, gradient}};
          const std::vector<DenseValues> pulled = {{kDense, values}};
          EXPECT_OK(client.FinishStep(gradients, pulled, Soon()));
        });
      }
    }
    EXPECT_EQ(server().dense(kDense)->step(), 6u);
    if (run == 0) {
      first = Everything();
    } else {
      EXPECT_TRUE(Everything() == first) << run;
    }
    End();
  }
}

// Of a worker's turn a server that is started again hears by its hello, which
// comes within a beat. Before, the worker may be in the middle of a step.
TEST_F(ServerLog, SavesWaitForTurnsThatBeganBeforeAServerWasStartedAgain) {
  num_workers_ = 2;
  for (const bool pushed : {false, true}) {
    std::filesystem::remove_all(log_folder_);
    Start();
    auto client = Client(0);
    auto other = Client(1);
    ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
    ASSERT_OK(other->Refresh(Soon()));
    ASSERT_OK_AND_ASSIGN(const uint64_t turn, other->BeginTurn(Soon()));
    const std::vector<Key> keys = {1};
    const std::vector<float> ones(kLogDim, 1.0f);
    if (pushed) {
      ASSERT_OK(other->Push(kEmb, keys, ones, Soon()));
    }
    End();
    Start();
    const std::string folder = temporary_.path() / "model";
    const auto save = [&](Deadline deadline) {
      return client->Save(folder, {}, deadline);
    };
    EXPECT_THAT(save(Deadline::After(100ms)),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 1")));
    ASSERT_OK(other->Push(kEmb, keys, ones, Soon()));
    EXPECT_THAT(save(Deadline::After(100ms)),
                StatusIs(StatusCode::kDeadlineExceeded,
                         HasSubstr("worker 1 is in the middle of a step")));
    ASSERT_OK(other->EndTurn(turn, Soon()));
    EXPECT_OK(save(Soon()));
    End();
  }
}

// They have nothing to ask of it.
TEST_F(ServerLog, WorkersThatLiveSayHelloToAServerThatWasStartedAgain) {
  num_workers_ = 2;
  Start();
  auto client = Client(0);
  auto other = Client(1);
  End();
  Start();
  const Deadline deadline = Soon();
  while (!server().NotSeenWorkers().empty() && !deadline.expired()) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(server().NotSeenWorkers(), "");
  // One that has said good-bye does not come back.
  ASSERT_OK(other->Stop(Soon()));
  End();
  Start();
  while (server().NotSeenWorkers() != "worker 1" && !deadline.expired()) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(2 * kBeatInterval);
  EXPECT_EQ(server().NotSeenWorkers(), "worker 1");
  End();
}

// Also one that has changed nothing yet.
TEST_F(ServerLog, AnOldIncarnationIsRefusedAfterARestart) {
  for (const bool checkpoint : {false, true}) {
    std::filesystem::remove_all(log_folder_);
    checkpoint_byte_size_ = checkpoint ? 1 : 0;
    Start();
    uint64_t before = 0;
    uint64_t after = 0;
    const auto old_one = Raw(0, &before);
    const auto new_one = Raw(0, &after);
    ASSERT_LT(before, after);
    for (int life = 0; life < 2; ++life) {
      if (checkpoint) {
        ASSERT_OK(server().CheckpointIfDue());
      }
      End();
      Start();
    }
    const auto late = server().ConnectInProcess("worker 0");
    EXPECT_THAT(SayHello(*late, 0, 0, before),
                HasCode(StatusCode::kFailedPrecondition));
    End();
  }
}

// A request that another overtook on the way to the log is missing when the
// server dies in between; nobody was told that it is done.
TEST_F(ServerLog, ARequestThatWasNotLoggedIsInNobodysWay) {
  const std::vector<LoggedTurn> turns = {{kEmb, 0, 0, 1, 1, 0},
                                         {kEmb, 0, 0, 1, 3, 0}};
  std::vector<LoggedRequest> requests(2);
  for (size_t i = 0; i < 2; ++i) {
    requests[i].head.epoch = 1;
    requests[i].request.op = Op::kPush;
    requests[i].turns = std::span(turns).subspan(i, 1);
  }
  std::vector<uint64_t> done;
  ASSERT_OK(
      Redo(requests, 0, {}, [&](const LoggedRequest&, const LoggedTurn& turn) {
        done.push_back(turn.number);
        return OkStatus();
      }));
  EXPECT_THAT(done, testing::ElementsAre(1, 3));
}

// What depends on pulls, on days and on time is there too.
TEST_F(ServerLog, RowsThatAreCountedAndErased) {
  for (const bool checkpoint : {false, true}) {
    std::filesystem::remove_all(log_folder_);
    checkpoint_byte_size_ = checkpoint ? 1 : 0;
    table::SparseTableOptions sparse;
    sparse.entry = table::AdmitByCount{2};
    sparse.count_unseen_days = true;
    sparse.time_to_live = std::chrono::seconds(100);
    sparse.update.learning_rate.base = 0.1;
    Start();
    auto client = Client(0);
    ASSERT_OK(client->CreateTables(Specs(optim::Adagrad{}, sparse), Soon()));
    std::mt19937 random(3);
    Deadline::TimePoint now = std::chrono::steady_clock::now();
    ASSERT_OK(server().ExpireRows(now).status());
    for (int i = 0; i < 20; ++i) {
      const Batch batch(random, 20);
      std::vector<float> rows(batch.gradients.size());
      ASSERT_OK(client->Pull(kEmb, batch.keys, rows, {}, Soon()));
      ASSERT_OK(client->Push(kEmb, batch.keys, batch.gradients, Soon(), 1));
      if (i % 5 == 4) {
        ASSERT_OK(client->Shrink(kEmb, 3, Soon()).status());
        now += std::chrono::seconds(60);
        ASSERT_OK(server().ExpireRows(now).status());
      }
      if (checkpoint && i % 6 == 5) {
        ASSERT_OK(server().CheckpointIfDue());
      }
    }
    const auto before = Everything();
    const auto stats = server().sparse(kEmb)->stats();
    EXPECT_GT(stats.num_candidates, 0u);
    End();
    Start();
    EXPECT_TRUE(Everything() == before);
    EXPECT_EQ(server().sparse(kEmb)->stats().num_candidates,
              stats.num_candidates);
    End();
  }
}

// Schedules, rates that are told, shows and clicks, rows on disk.
TEST_F(ServerLog, SchedulesAndRatesAndRowsOnDiskAreThere) {
  for (const bool disk : {false, true}) {
    for (const bool checkpoint : {false, true}) {
      std::filesystem::remove_all(log_folder_);
      checkpoint_byte_size_ = checkpoint ? 1 : 0;
      table::SparseTableOptions sparse;
      if (disk) {
        sparse.disk = table::DiskOptions{temporary_.path() / "rows", 1024};
      }
      sparse.show_click =
          table::ShowClickOptions{.extended_from = 2, .extend_threshold = 3.0};
      std::vector<TableSpec> specs = Specs(optim::Adam{}, sparse);
      std::get<table::SparseTableOptions>(specs[0].table)
          .update.learning_rate = {0.1, table::ExponentialDecay{0.9, 3.0}};
      std::get<DenseSpec>(specs[1].table).update.learning_rate = {
          0.1, table::ToldRate{"rate"}};
      Start();
      auto client = Client(0);
      const Status made = client->CreateTables(specs, Soon());
      // Without RocksDB there are no rows on disk.
      if (disk && made.code() == StatusCode::kUnimplemented) return;
      ASSERT_OK(made);
      ASSERT_OK(client->InitializeDense(kDense, std::vector<float>(10, 1.0f),
                                        Soon()));
      std::mt19937 random(6);
      for (int i = 0; i < 24; ++i) {
        const Batch batch(random, 20);
        const std::vector<float> shows(batch.keys.size(), 1.0f);
        std::vector<float> rows(batch.gradients.size());
        ASSERT_OK(client->Pull(kEmb, batch.keys, rows, {}, Soon()));
        ASSERT_OK(client->PushShown(kEmb, batch.keys, batch.gradients, shows,
                                    shows, Soon(), 1));
        ASSERT_OK(client->PushDenseMany(
            One(kDense, std::vector<float>(10, 1.0f)), Soon(), 1));
        if (i % 7 == 3) {
          ASSERT_OK(client->SetRate("rate", 0.1 / i, Soon()));
        }
        if (checkpoint && i % 5 == 4) {
          ASSERT_OK(server().CheckpointIfDue());
        }
        if (i % 8 != 7) continue;
        const auto before = Everything();
        End();
        Start();
        EXPECT_TRUE(Everything() == before) << disk << checkpoint << i;
        EXPECT_EQ(server().sparse(kEmb)->stats().step,
                  static_cast<uint64_t>(i + 1));
      }
      End();
    }
  }
}

TEST_F(ServerLog, NothingIsLostOrDoneTwiceWhileServersEnd) {
  Start();
  std::vector<std::unique_ptr<PsClient>> clients;
  for (int w = 0; w < kNumLogWorkers; ++w) clients.push_back(Client(w));
  ASSERT_OK(clients[0]->CreateTables(
      [] {
        std::vector<TableSpec> specs = Specs(optim::Sgd{});
        auto& options = std::get<table::SparseTableOptions>(specs[0].table);
        options.initializer = table::ConstantInit{0.0f};
        options.update.learning_rate.base = 1.0;
        return specs;
      }(),
      Soon()));
  for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
  std::atomic<int> num_pushed = 0;
  constexpr int kPushes = 300;
  {
    std::vector<std::jthread> workers;
    for (int w = 0; w < kNumLogWorkers; ++w) {
      workers.emplace_back([&, w] {
        const std::vector<Key> keys = {1, 2, 3, 4, 5, 6, 7, 8};
        const std::vector<float> ones(keys.size() * kLogDim, -1.0f);
        for (int i = 0; i < kPushes; ++i) {
          ASSERT_OK(
              clients[static_cast<size_t>(w)]->Push(kEmb, keys, ones, Soon()));
          ++num_pushed;
        }
      });
    }
    for (int killed = 0; num_pushed < kNumLogWorkers * kPushes - 50; ++killed) {
      const int from = num_pushed;
      while (num_pushed < from + 20) std::this_thread::yield();
      End();
      Start(killed % 2 == 0 ? Durability::kLogSync : Durability::kLog);
    }
  }
  const std::vector<Key> keys = {1, 8};
  std::vector<float> rows(2 * kLogDim);
  ASSERT_OK(clients[0]->Pull(kEmb, keys, rows, {}, Soon()));
  EXPECT_THAT(rows, testing::Each(kNumLogWorkers * kPushes));
  End();
}

// Workers of geo training are told of each change once, whenever the server
// ends.
TEST_F(ServerLog, ChangesOfGeoTrainingAreToldOnce) {
  for (const bool checkpoint : {false, true}) {
    std::filesystem::remove_all(log_folder_);
    checkpoint_byte_size_ = checkpoint ? 1 : 0;
    Start();
    auto client = Client(0);
    auto other = Client(1);
    table::SparseTableOptions sparse;
    sparse.num_geo_workers = kNumLogWorkers;
    ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
    ASSERT_OK(other->Refresh(Soon()));
    std::multiset<Key> told;
    for (Key key = 0; key < 100; ++key) {
      const std::vector<Key> keys = {key};
      const std::vector<float> deltas(kLogDim, 1.0f);
      ASSERT_OK(client->Add(kEmb, keys, deltas, Soon()));
      if (checkpoint && key % 10 == 5) {
        ASSERT_OK(server().CheckpointIfDue());
      }
      if (key % 20 == 19) {
        End();
        Start();
      }
      if (key % 7 == 6) {
        ASSERT_OK_AND_ASSIGN(const std::vector<Key> changes,
                             other->TakeChanges(kEmb, Soon()));
        told.insert(changes.begin(), changes.end());
      }
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<Key> rest,
                         other->TakeChanges(kEmb, Soon()));
    told.insert(rest.begin(), rest.end());
    EXPECT_EQ(told.size(), 100u);
    EXPECT_EQ(std::set<Key>(told.begin(), told.end()).size(), 100u);
    End();
  }
}

TEST_F(ServerLog, AnEpochThatTheLogHasIsRefused) {
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  End();
  PsServerOptions options;
  options.epoch = epoch_;
  options.durability = Durability::kLog;
  options.log_folder = log_folder_.string();
  PsServer again(options);
  EXPECT_THAT(again.OpenLog(), StatusIs(StatusCode::kFailedPrecondition,
                                        HasSubstr("still run")));
}

TEST_F(ServerLog, TwoServersDoNotShareALog) {
  Start();
  PsServerOptions options;
  options.epoch = epoch_ + 1;
  options.durability = Durability::kLog;
  options.log_folder = log_folder_.string();
  PsServer second(options);
  EXPECT_THAT(second.OpenLog(), StatusIs(StatusCode::kFailedPrecondition,
                                         HasSubstr("another server")));
  End();
  EXPECT_OK(second.OpenLog());
}

// The server ends when a round is over and one of two workers has its answer.
// The other asks again, and gets its own: the first is further on and does not
// come back for it. Neither knows the number of its round yet.
TEST_F(ServerLog, WhoHasNoAnswerYetGetsThatOfTheRoundThatIsOver) {
  num_workers_ = 2;
  for (const bool checkpoint : {false, true}) {
    for (const Op op : {Op::kBarrier, Op::kGather, Op::kFinishStep}) {
      for (const bool idle : {false, true}) {
        if (idle && op != Op::kFinishStep) continue;
        std::filesystem::remove_all(log_folder_);
        checkpoint_byte_size_ = checkpoint ? 1 : 0;
        Start();
        auto client = Client(0);
        ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
        ASSERT_OK(client->Refresh(Soon()));
        RequestHead head;
        head.op = op;
        head.round = Roster::kNextRound;
        head.timeout_ms = 20'000;
        if (idle) head.flags = kFlagIdle;
        const std::string body =
            op == Op::kGather
                ? channel::MessageWriter().Text("all").Text("b").Take()
                : std::string(op == Op::kBarrier ? "together" : kStepBarrier);
        uint64_t incarnation = 0;
        const auto first = [&]() -> Status {
          if (op == Op::kBarrier) return client->Barrier("together", Soon());
          if (idle) return client->IdleStep(Soon()).status();
          if (op == Op::kFinishStep) return client->FinishStep({}, {}, Soon());
          return client->AllGather("all", "a", Soon()).status();
        };
        {
          const auto other = Raw(1, &incarnation);
          std::jthread asks([&] { (void)Ask(*other, head, body, Soon()); });
          ASSERT_OK(first());
        }
        if (checkpoint) {
          ASSERT_OK(server().CheckpointIfDue());
        }
        End();
        Start();
        const auto again = Raw(1, &incarnation);
        const auto answer = Ask(*again, head, body, Soon());
        ASSERT_OK(answer.status()) << static_cast<uint32_t>(op);
        channel::MessageReader in(*answer);
        EXPECT_EQ(in.U64(), 0u) << static_cast<uint32_t>(op);
        if (op == Op::kGather) {
          EXPECT_THAT(in.Texts(), testing::SizeIs(2));
        }
        if (op == Op::kFinishStep) {
          EXPECT_EQ(in.U8(), idle ? 1 : 0);
        }
        EXPECT_OK(in.Finish());
        End();
      }
    }
  }
}

// A worker that was started again joins in a later step; a server that is
// started again meanwhile does not take it for one that knows of steps which
// are over.
TEST_F(ServerLog, WhoJoinsLaterEndsNoStepOfTheOthers) {
  num_workers_ = 2;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  auto other = Client(1);
  std::jthread both([&] { EXPECT_OK(other->FinishStep({}, {}, Soon())); });
  ASSERT_OK(client->FinishStep({}, {}, Soon()));
  both.join();
  // It is in step 1 when the other one is back, which joins in step 2.
  const std::vector<Key> keys = {1};
  const std::vector<float> ones(kLogDim, 1.0f);
  ASSERT_OK(client->Accumulate(kEmb, keys, ones, Soon()));
  other = Client(1);
  End();
  Start();
  std::vector<float> before(kLogDim);
  ASSERT_OK(client->Pull(kEmb, keys, before, {.training = false}, Soon()));
  std::jthread joins([&] { EXPECT_OK(other->FinishStep({}, {}, Soon())); });
  ASSERT_OK(client->FinishStep({}, {}, Soon()));
  std::vector<float> after(kLogDim);
  ASSERT_OK(client->Pull(kEmb, keys, after, {.training = false}, Soon()));
  EXPECT_NE(after, before);
  ASSERT_OK(client->FinishStep({}, {}, Soon()));
  joins.join();
  EXPECT_EQ(server().dense(kDense)->step(), 3u);
  End();
}

// A request that failed, or that was done when the server died and not written
// yet, has had its turns; the log has those after it.
TEST_F(ServerLog, RequestsThatFailedAreNoHoleInTheLog) {
  Start();
  auto client = Client(0);
  table::SparseTableOptions sparse;
  sparse.max_byte_size = 1 << 20;
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::vector<Key> keys(1000);
  const std::vector<float> ones(keys.size() * kLogDim, 1.0f);
  Status pushed;
  for (Key first = 0; pushed.ok(); first += keys.size()) {
    std::iota(keys.begin(), keys.end(), first);
    pushed = client->Push(kEmb, keys, ones, Soon());
  }
  EXPECT_THAT(pushed.ToString(), HasSubstr("1048576"));
  std::iota(keys.begin(), keys.end(), Key{0});
  ASSERT_OK(client->Push(kEmb, keys, ones, Soon()));
  std::vector<float> before(ones.size());
  ASSERT_OK(client->Pull(kEmb, keys, before, {.training = false}, Soon()));
  End();
  Start();
  std::vector<float> after(ones.size());
  ASSERT_OK(client->Pull(kEmb, keys, after, {.training = false}, Soon()));
  EXPECT_EQ(after, before);
  End();
}

// What is in the log is done again before anyone is answered.
TEST_F(ServerLog, SmallTablesHaveACheckpointAfter128MB) {
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  const std::vector<float> wide(100'000, 1.0f);
  uint64_t pushed = 0;
  while (Named("base.").empty() && pushed < 160'000'000) {
    ASSERT_OK(client->PushDenseMany(One(kWide, wide), Soon(), 1));
    pushed += wide.size() * sizeof(float);
    ASSERT_OK(server().CheckpointIfDue());
  }
  EXPECT_THAT(Named("base."), testing::SizeIs(1));
  EXPECT_GT(pushed, 80'000'000u);
  End();
}

// Workers of geo training ask for changes at the same time.
TEST_F(ServerLog, ChangesThatSeveralTakeAtOnce) {
  Start();
  auto client = Client(0);
  table::SparseTableOptions sparse;
  sparse.num_geo_workers = kNumLogWorkers;
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
  std::vector<std::unique_ptr<PsClient>> others;
  for (int w = 1; w < kNumLogWorkers; ++w) others.push_back(Client(w));
  std::vector<std::multiset<Key>> told(others.size());
  const std::vector<float> deltas(4 * kLogDim, 1.0f);
  for (int life = 0; life < 5; ++life) {
    std::vector<std::jthread> threads;
    for (size_t o = 0; o < others.size(); ++o) {
      threads.emplace_back([&, o] {
        for (int i = 0; i < 100; ++i) {
          ASSERT_OK_AND_ASSIGN(const std::vector<Key> changes,
                               others[o]->TakeChanges(kEmb, Soon()));
          told[o].insert(changes.begin(), changes.end());
        }
      });
    }
    for (Key i = 0; i < 100; ++i) {
      const Key key = 400 * static_cast<Key>(life) + 4 * i;
      ASSERT_OK(client->Add(kEmb,
                            std::vector<Key>{key, key + 1, key + 2, key + 3},
                            deltas, Soon()));
    }
    threads.clear();
    End();
    Start();
  }
  for (size_t o = 0; o < others.size(); ++o) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Key> rest,
                         others[o]->TakeChanges(kEmb, Soon()));
    told[o].insert(rest.begin(), rest.end());
    EXPECT_EQ(told[o].size(), 2000u);
    EXPECT_EQ(std::set<Key>(told[o].begin(), told[o].end()).size(), 2000u);
  }
  End();
}

}  // namespace
}  // namespace fleet::ps
