// SPDX-License-Identifier: Apache-2.0

// Servers that end and have their tables again from their log.

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "fleet/channel/message.h"
#include "fleet/ps/connect.h"
#include "fleet/table/save_manifest.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using testing::HasSubstr;

constexpr TableId kWide{2};
constexpr int kNumWorkers = 3;
constexpr size_t kDim = 4;

TableSpec SparseSpec(TableId id, const table::SparseTableOptions& given) {
  table::SparseTableOptions options = given;
  options.dim = kDim;
  options.num_shards = 4;
  options.initializer = table::UniformInit{-1.0f, 1.0f};
  return {id, options};
}

TableSpec DenseSpecOf(TableId id, const std::string& name, uint64_t size,
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
    RequestHead head;
    head.op = Op::kHello;
    const std::string body = channel::MessageWriter()
                                 .U32(static_cast<uint32_t>(worker))
                                 .U32(0)
                                 .U64(incarnation == nullptr ? 0 : *incarnation)
                                 .Take();
    const auto answer = Ask(*channel, head, body, Soon());
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
  int num_workers_ = kNumWorkers;
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
    for (size_t i = 0; i < count * kDim; ++i)
      gradients.push_back(value(random));
  }
};

// Two tables of rows, a small dense one and one whose gradient comes in parts.
std::vector<TableSpec> Specs(const optim::UpdateRule& rule,
                             table::SparseTableOptions sparse = {}) {
  sparse.name = "emb";
  sparse.update.rule = rule;
  sparse.update.learning_rate.base = 0.1;
  return {SparseSpec(kEmb, sparse), DenseSpecOf(kDense, "fc.b", 10, rule),
          DenseSpecOf(kWide, "fc.w", 100'000, rule)};
}

void PushSome(PsClient& client, std::mt19937& random, int count) {
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
    for (int w = 0; w < kNumWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(GetParam(), sparse), Soon()));
    ASSERT_OK(clients[0]->InitializeDense(kDense, std::vector<float>(10, 1.0f),
                                          Soon()));
    ASSERT_OK(clients[0]->InitializeDense(
        kWide, std::vector<float>(100'000, 1.0f), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    for (int round = 0; round < 3; ++round) {
      {
        std::vector<std::jthread> workers;
        for (int w = 0; w < kNumWorkers; ++w) {
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
                                         optim::UpdateRule(optim::RmsProp{}),
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
    for (int w = 0; w < kNumWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(optim::Adam{}), Soon()));
    ASSERT_OK(clients[0]->InitializeDense(kDense, std::vector<float>(10, 1.0f),
                                          Soon()));
    ASSERT_OK(clients[0]->InitializeDense(
        kWide, std::vector<float>(100'000, 1.0f), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    std::mt19937 random(1);
    for (int step = 0; step < 6; ++step) {
      std::vector<Batch> batches;
      for (int w = 0; w < kNumWorkers; ++w) batches.emplace_back(random, 30);
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
      for (int w = 0; w < kNumWorkers; ++w) {
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

// Segments that nobody needs go, whether or not there were steps, and whether
// or not the server was started again.
TEST_F(ServerLog, IsCutByCheckpoints) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(1);
  const auto num_segments = [&] {
    const auto names = base::ListFolder(log_folder_).value();
    return std::ranges::count_if(names, [](const std::string& name) {
      return name.starts_with("log.");
    });
  };
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) {
      const Batch batch(random, 20);
      ASSERT_OK(client->Push(kEmb, batch.keys, batch.gradients, Soon(), 1));
      ASSERT_OK(server().CheckpointIfDue());
      EXPECT_EQ(num_segments(), 1) << i << ", " << k;
    }
    End();
    Start();
  }
  // What a killed server left, and while a save is under way nothing is begun.
  ASSERT_OK(base::AtomicWriteFile(log_folder_ / ".checkpoint.17.2.tmp", "x"));
  const auto before = base::ListFolder(log_folder_).value();
  RequestHead head;
  head.op = Op::kHello;
  const auto channel = server().ConnectInProcess("worker 1");
  ASSERT_OK(Ask(*channel, head,
                channel::MessageWriter().U32(1).U32(0).U64(0).Take(), Soon())
                .status());
  head.op = Op::kBeginSave;
  const std::string saves = (temporary_.path() / "saves").string();
  ASSERT_OK(Ask(*channel, head,
                channel::MessageWriter().U64(5).Text(saves).Take(), Soon())
                .status());
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_EQ(base::ListFolder(log_folder_).value(), before);
  head.op = Op::kEndSave;
  ASSERT_OK(Ask(*channel, head,
                channel::MessageWriter().U64(5).U8(0).U64(0).Text("").Take(),
                Soon())
                .status());
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_FALSE(base::Exists(log_folder_ / ".checkpoint.17.2.tmp"));
  End();
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
  for (int w = 0; w < kNumWorkers; ++w) clients.push_back(Client(w));
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
    for (int w = 0; w < kNumWorkers; ++w) {
      workers.emplace_back([&, w] {
        const std::vector<Key> keys = {1, 2, 3, 4, 5, 6, 7, 8};
        const std::vector<float> ones(keys.size() * kDim, -1.0f);
        for (int i = 0; i < kPushes; ++i) {
          ASSERT_OK(
              clients[static_cast<size_t>(w)]->Push(kEmb, keys, ones, Soon()));
          ++num_pushed;
        }
      });
    }
    for (int killed = 0; num_pushed < kNumWorkers * kPushes - 50; ++killed) {
      const int from = num_pushed;
      while (num_pushed < from + 20) std::this_thread::yield();
      End();
      Start(killed % 2 == 0 ? Durability::kLogSync : Durability::kLog);
    }
  }
  const std::vector<Key> keys = {1, 8};
  std::vector<float> rows(2 * kDim);
  ASSERT_OK(clients[0]->Pull(kEmb, keys, rows, {}, Soon()));
  EXPECT_THAT(rows, testing::Each(kNumWorkers * kPushes));
  End();
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
    sparse.num_geo_workers = kNumWorkers;
    ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
    ASSERT_OK(other->Refresh(Soon()));
    std::multiset<Key> told;
    for (Key key = 0; key < 100; ++key) {
      const std::vector<Key> keys = {key};
      const std::vector<float> deltas(kDim, 1.0f);
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
  const std::vector<float> ones(kDim, 1.0f);
  ASSERT_OK(client->Accumulate(kEmb, keys, ones, Soon()));
  other = Client(1);
  End();
  Start();
  std::vector<float> before(kDim);
  ASSERT_OK(client->Pull(kEmb, keys, before, {.training = false}, Soon()));
  std::jthread joins([&] { EXPECT_OK(other->FinishStep({}, {}, Soon())); });
  ASSERT_OK(client->FinishStep({}, {}, Soon()));
  std::vector<float> after(kDim);
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
  const std::vector<float> ones(keys.size() * kDim, 1.0f);
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

// No step ends in async training: nothing of old segments is waited for.
TEST_F(ServerLog, CheckpointsCutTheLogAlsoAfterARestart) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  std::mt19937 random(1);
  for (int life = 0; life < 4; ++life) {
    PushSome(*client, random, 3);
    ASSERT_OK(server().CheckpointIfDue());
    EXPECT_THAT(Named("log."), testing::SizeIs(1)) << life;
    EXPECT_THAT(Named("base."), testing::SizeIs(1)) << life;
    PushSome(*client, random, 3);
    End();
    Start();
  }
  End();
}

TEST_F(ServerLog, SegmentsAreUsedAgainAndTheDiskHoldsTwoBasesAndTheLimit) {
  checkpoint_byte_size_ = 100 << 20;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  const std::vector<float> wide(100'000, 1.0f);
  uint64_t largest = 0;
  uint64_t base = 0;
  int num_spares = 0;
  for (int i = 0; i < 1500; ++i) {
    ASSERT_OK(client->PushDenseMany(One(kWide, wide), Soon(), 1));
    if (i % 50 != 0) continue;
    ASSERT_OK(server().CheckpointIfDue());
    uint64_t all = 0;
    base = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(log_folder_)) {
      if (!entry.is_regular_file()) continue;
      all += entry.file_size();
      if (entry.path().string().find("base.") != std::string::npos) {
        base += entry.file_size();
      }
    }
    num_spares += static_cast<int>(Named("spare.").size());
    largest = std::max(largest, all);
  }
  // 600 MB were pushed. The limit is looked at between pushes, and a segment is
  // taken as a whole.
  EXPECT_GT(base, 400'000u);
  const uint64_t limit = checkpoint_byte_size_;
  EXPECT_LE(largest, limit + 50 * 400'000 + limit / 8 + 2 * base);
  EXPECT_GT(num_spares, 0);
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

// The marks of changed rows are the save's until it ends; meanwhile the log
// does not grow faster than workers push.
TEST_F(ServerLog, ACheckpointWaitsForASaveAndNotForOneThatNobodyEnds) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  auto saving = Raw(1);
  RequestHead head;
  head.op = Op::kBeginSave;
  const std::string folder = (temporary_.path() / "model").string();
  ASSERT_OK(Ask(*saving, head,
                channel::MessageWriter().U64(7).Text(folder).Take(), Soon()));
  for (int i = 0; i < 5; ++i) ASSERT_OK(server().CheckpointIfDue());
  EXPECT_THAT(Named("log."), testing::SizeIs(1));
  EXPECT_THAT(Named("checkpoint"), testing::IsEmpty());
  // The worker was started again: it does not know of the save.
  const auto again = Raw(1);
  ASSERT_OK(server().CheckpointIfDue());
  EXPECT_THAT(Named("checkpoint"), testing::SizeIs(1));
  End();
}

TEST_F(ServerLog, ACheckpointThatFailsLeavesNothing) {
  checkpoint_byte_size_ = 1;
  Start();
  auto client = Client(0);
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}), Soon()));
  ASSERT_OK(base::MakeFolders(log_folder_ / kCheckpointFile / "in the way"));
  EXPECT_THAT(server().CheckpointIfDue().ToString(),
              HasSubstr(kCheckpointFile));
  EXPECT_THAT(Named("base."), testing::IsEmpty());
  const auto segments = Named("log.");
  // It is not tried again and again: each takes a segment.
  for (int i = 0; i < 5; ++i) EXPECT_OK(server().CheckpointIfDue());
  EXPECT_EQ(Named("log."), segments);
  End();
  std::filesystem::remove_all(log_folder_ / kCheckpointFile);
  // Nor does what was cut off stay.
  ASSERT_OK(base::MakeFolders(log_folder_ / "base.77"));
  Start();
  EXPECT_THAT(Named("base."), testing::IsEmpty());
  End();
}

// A table that begins with a save is not there, without its values, where the
// server ends before its log has them.
TEST_F(ServerLog, ATableThatIsLoadedIsThereWithItsValuesOrNotAtAll) {
  const std::string model = (temporary_.path() / "model").string();
  Start(Durability::kNone);
  {
    auto client = Client(0);
    ASSERT_OK(client->CreateTables(Specs(optim::Adam{}), Soon()));
    for (const auto& [id, size] : {std::pair(kDense, 10), {kWide, 100'000}}) {
      ASSERT_OK(client->InitializeDense(
          id, std::vector<float>(static_cast<size_t>(size), 1.0f), Soon()));
    }
    ASSERT_OK(client->Refresh(Soon()));
    std::mt19937 random(4);
    PushSome(*client, random, 5);
    ASSERT_OK(client->Save(model, {}, Soon()));
  }
  const auto before = Everything();
  End();
  load_folder_ = model;
  Start();
  ASSERT_OK(base::MakeFolders(log_folder_ / kCheckpointFile / "in the way"));
  EXPECT_THAT(Client(0)->CreateTables(Specs(optim::Adam{}), Soon()).ToString(),
              HasSubstr(kCheckpointFile));
  End();
  std::filesystem::remove_all(log_folder_ / kCheckpointFile);
  Start();
  ASSERT_OK(Client(0)->CreateTables(Specs(optim::Adam{}), Soon()));
  EXPECT_TRUE(Everything() == before);
  End();
  std::filesystem::remove_all(model);
  Start();
  EXPECT_TRUE(Everything() == before);
  End();
}

// Not one for each of them, which would have all tables before it again.
TEST_F(ServerLog, TablesThatAreLoadedTogetherTakeOneCheckpoint) {
  const std::string model = (temporary_.path() / "model").string();
  std::vector<TableSpec> specs;
  for (uint32_t i = 0; i < 8; ++i) {
    specs.push_back(DenseSpecOf(TableId{i}, base::Concat("w", i), 10,
                                optim::UpdateRule(optim::Sgd{})));
  }
  Start(Durability::kNone);
  {
    auto client = Client(0);
    ASSERT_OK(client->CreateTables(specs, Soon()));
    for (const TableSpec& spec : specs) {
      ASSERT_OK(client->InitializeDense(spec.id, std::vector<float>(10, 1.0f),
                                        Soon()));
    }
    ASSERT_OK(client->Save(model, {}, Soon()));
  }
  End();
  load_folder_ = model;
  Start();
  ASSERT_OK(Client(0)->CreateTables(specs, Soon()));
  EXPECT_THAT(Named("base."), testing::ElementsAre("base.2.1"));
  // Another worker says the same.
  ASSERT_OK(Client(1)->CreateTables(specs, Soon()));
  EXPECT_THAT(Named("base."), testing::ElementsAre("base.2.1"));
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
    for (int w = 0; w < kNumWorkers; ++w) clients.push_back(Client(w));
    ASSERT_OK(clients[0]->CreateTables(Specs(optim::Adam{}), Soon()));
    for (auto& client : clients) ASSERT_OK(client->Refresh(Soon()));
    const std::vector<Key> keys = {1, 2, 3};
    const std::vector<float> ones(keys.size() * kDim, 1.0f);
    for (const bool in_step : {false, true}) {
      std::vector<std::jthread> workers;
      if (in_step) {
        for (int w = 1; w < kNumWorkers; ++w) {
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
    return Ask(*raw, head, std::string(count * (8 + 4 * kDim), '\0'), Soon())
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

// Workers of geo training ask for changes at the same time.
TEST_F(ServerLog, ChangesThatSeveralTakeAtOnce) {
  Start();
  auto client = Client(0);
  table::SparseTableOptions sparse;
  sparse.num_geo_workers = kNumWorkers;
  ASSERT_OK(client->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
  std::vector<std::unique_ptr<PsClient>> others;
  for (int w = 1; w < kNumWorkers; ++w) others.push_back(Client(w));
  std::vector<std::multiset<Key>> told(others.size());
  const std::vector<float> deltas(4 * kDim, 1.0f);
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
