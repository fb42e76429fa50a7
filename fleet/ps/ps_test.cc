// SPDX-License-Identifier: Apache-2.0

// Clients and servers in one process, over every kind of channel.

#include <array>
#include <atomic>
#include <cstring>
#include <latch>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "fleet/channel/in_process.h"
#include "fleet/channel/message.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct Shape {
  Way way;
  uint32_t num_servers;
};

class PsConformance : public testing::TestWithParam<Shape> {
 protected:
  Cluster Make(int num_workers) {
    return Cluster(GetParam().way, GetParam().num_servers, num_workers);
  }
  static std::vector<float> Pulled(PsClient& client,
                                   const std::vector<Key>& keys) {
    std::vector<float> rows(keys.size() * 4);
    EXPECT_OK(client.Pull(kEmb, keys, rows, {}, Soon()));
    return rows;
  }
};

// Without UCX on this machine there are fewer.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {{Way::kInProcess, 1},
                               {Way::kInProcess, 3},
                               {Way::kSharedMemory, 2},
                               {Way::kTcp, 2}};
  if (channel::ParseCarrier("ucx").ok()) shapes.push_back({Way::kUcx, 2});
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(All, PsConformance, testing::ValuesIn(Shapes()));

TEST_P(PsConformance, TellsWhichTablesThereAre) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  EXPECT_EQ(client->num_workers(), 1u);
  const std::vector<TableInfo> tables = client->tables();
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].name, "emb");
  EXPECT_EQ(tables[0].dim, 4u);
  EXPECT_TRUE(tables[1].dense);
  EXPECT_EQ(tables[1].size, kDenseSize);
  EXPECT_FALSE(tables[1].initialized);
}

TEST_P(PsConformance, PullsAndPushesRows) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  EXPECT_THAT(Pulled(*client, {1, 2, 1}), Each(1.0f));
  ASSERT_OK(client->Push(kEmb, std::vector<Key>{1, 2, 1},
                         std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
                         Soon()));
  // The gradients of key 1 are summed: 1 - 0.5 * 4.
  EXPECT_THAT(Pulled(*client, {2, 1}), ElementsAre(0, 0, 0, 0, -1, -1, -1, -1));
}

// More than any channel holds, with keys that occur again and again.
TEST_P(PsConformance, MovesLargeRequests) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  std::mt19937_64 random(2);
  std::vector<Key> keys(300'000);
  for (Key& key : keys) key = random() % 200'000;
  std::vector<float> gradients(keys.size() * 4);
  std::vector<double> expected(200'000, 1.0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto g = static_cast<float>(random() % 8);
    std::fill_n(&gradients[i * 4], 4, g);
    expected[keys[i]] -= 0.5 * g;
  }
  ASSERT_OK(client->Push(kEmb, keys, gradients, Soon()));
  const std::vector<float> rows = Pulled(*client, keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(rows[4 * i], expected[keys[i]]);
    ASSERT_EQ(rows[4 * i + 3], expected[keys[i]]);
  }
  // Different keys, one after the other: straight into memory.
  std::vector<Key> ordered(200'000);
  std::iota(ordered.begin(), ordered.end(), 0);
  const std::vector<float> all = Pulled(*client, ordered);
  for (size_t i = 0; i < ordered.size(); ++i) {
    ASSERT_EQ(all[4 * i + 1], expected[i]);
  }
}

TEST_P(PsConformance, DoesNothingForNoKeys) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  EXPECT_OK(client->Pull(kEmb, {}, {}, {}, Soon()));
  EXPECT_OK(client->Push(kEmb, {}, {}, Soon()));
}

TEST_P(PsConformance, MovesDenseParameters) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  std::vector<float> values(kDenseSize);
  std::iota(values.begin(), values.end(), 0.0f);
  ASSERT_OK(client->AssignDense(kDense, values, Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  EXPECT_TRUE(client->tables()[1].initialized);
  ASSERT_OK(client->PushDenseMany(
      One(kDense, std::vector<float>(kDenseSize, 2.0f)), Soon()));
  ASSERT_OK(client->AddDenseMany(
      One(kDense, std::vector<float>(kDenseSize, 0.5f)), Soon()));
  std::vector<float> got(kDenseSize);
  ASSERT_OK(client->PullDense(kDense, got, Soon()));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], values[i] - 0.5f);
}

TEST_P(PsConformance, FinishesAStepWithTheMeanOfAllWorkers) {
  Cluster cluster = Make(2);
  std::vector<std::thread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&, w] {
      auto client = cluster.Client(w);
      const std::vector<Key> keys{1, static_cast<Key>(10 + w)};
      for (int step = 0; step < 3; ++step) {
        // Worker 0 pushes 1, worker 1 pushes 3.
        const auto g = static_cast<float>(1 + 2 * w);
        EXPECT_OK(
            client->Accumulate(kEmb, keys, std::vector<float>(8, g), Soon()));
        EXPECT_OK(client->AccumulateDenseMany(
            One(kDense, std::vector<float>(kDenseSize, g)), Soon()));
        EXPECT_OK(client->FinishStep({}, {}, Soon()));
        EXPECT_EQ(Pulled(*client, {1})[0], 1.0f - static_cast<float>(step + 1));
        EXPECT_OK(client->Barrier("next", Soon()));
      }
      EXPECT_OK(client->Stop(Soon()));
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_OK(cluster.server(0).WaitUntilStopped(Soon()));
}

TEST_P(PsConformance, AWorkerWithoutGradientsIsLeftOutOfTheMean) {
  Cluster cluster = Make(2);
  std::vector<std::thread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&, w] {
      auto client = cluster.Client(w);
      for (int pass = 0; pass < 2; ++pass) {
        // Worker 0 has one batch, worker 1 has three.
        for (int step = 0; step < 1 + 2 * w; ++step) {
          const std::vector<float> gradients(4, 2.0f);
          EXPECT_OK(
              client->Accumulate(kEmb, std::vector<Key>{1}, gradients, Soon()));
          EXPECT_OK(client->FinishStep({}, {}, Soon()));
        }
        int num_idle = 0;
        bool all_idle = false;
        while (!all_idle) {
          ASSERT_OK_AND_ASSIGN(all_idle, client->IdleStep(Soon()));
          ++num_idle;
        }
        EXPECT_EQ(num_idle, w == 0 ? 3 : 1);
        // Three steps of rate 0.5 with a mean of 2.
        EXPECT_EQ(Pulled(*client, {1})[0],
                  1.0f - 3.0f * static_cast<float>(pass + 1));
        EXPECT_OK(client->Barrier("next", Soon()));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(PsConformance, TellsGeoWorkersWhatOthersChanged) {
  Cluster cluster = Make(2);
  auto a = cluster.Client(0);
  auto b = cluster.Client(1);
  ASSERT_OK(a->Add(kEmb, std::vector<Key>{1, 2},
                   std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}, Soon()));
  ASSERT_OK(
      b->Add(kEmb, std::vector<Key>{2}, std::vector<float>(4, 1.0f), Soon()));
  EXPECT_THAT(*a->TakeChanges(kEmb, Soon()), ElementsAre(2));
  EXPECT_THAT(*b->TakeChanges(kEmb, Soon()), UnorderedElementsAre(1, 2));
  EXPECT_THAT(*b->TakeChanges(kEmb, Soon()), ElementsAre());
  EXPECT_THAT(Pulled(*a, {1, 2}), ElementsAre(2, 2, 2, 2, 4, 4, 4, 4));
  // More than one answer holds.
  std::vector<Key> many(300'000);
  std::iota(many.begin(), many.end(), 0);
  ASSERT_OK(a->Add(kEmb, many, std::vector<float>(many.size() * 4), Soon()));
  ASSERT_OK_AND_ASSIGN(std::vector<Key> changed, b->TakeChanges(kEmb, Soon()));
  std::sort(changed.begin(), changed.end());
  EXPECT_EQ(changed, many);
}

TEST_P(PsConformance, ServesSeveralThreadsOfAWorker) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        EXPECT_OK(
            client->Push(kEmb, keys, std::vector<float>(4000, -2.0f), Soon()));
        Pulled(*client, keys);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Pulled(*client, keys), Each(101.0f));
}

TEST_P(PsConformance, NamesWorkerTableKeysAndServerInErrors) {
  Cluster cluster = Make(2);
  auto client = cluster.Client(1);
  std::vector<float> rows(4);
  EXPECT_THAT(client->Pull(TableId{9}, std::vector<Key>{1}, rows, {}, Soon()),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("worker 1"), HasSubstr("9"))));
  EXPECT_THAT(client->Push(kEmb, std::vector<Key>{1, 2}, rows, Soon()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("worker 1: push emb (2 keys): 4 values")));
  EXPECT_THAT(client->Load("/nowhere", Soon()),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("worker 1: begin to load /nowhere at server "
                                 "0: list /nowhere")));
  // The connection is as good as before.
  EXPECT_THAT(Pulled(*client, {1}), Each(1.0f));
}

TEST_P(PsConformance, NamesWhoIsMissingAtABarrier) {
  Cluster cluster = Make(3);
  auto client = cluster.Client(1);
  auto other = cluster.Client(2);
  EXPECT_THAT(client->Barrier("init", Deadline::After(30ms)),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("worker 0 (not seen yet)"),
                             HasSubstr("worker 2"), HasSubstr("init"))));
  // Again, when all are there.
  auto last = cluster.Client(0);
  std::thread a([&] { EXPECT_OK(other->Barrier("init", Soon())); });
  std::thread b([&] { EXPECT_OK(last->Barrier("init", Soon())); });
  EXPECT_OK(client->Barrier("init", Soon()));
  a.join();
  b.join();
}

// Empty, small and more than a part: each comes whole, in the workers' order.
TEST_P(PsConformance, GathersWhatWorkersGive) {
  constexpr int kWorkers = 3;
  Cluster cluster = Make(kWorkers);
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&cluster, w] {
      auto client = cluster.Client(w);
      for (const size_t size : {size_t{0}, size_t{5}, size_t{300'000}}) {
        const auto given = [size](int who) {
          return std::string(size * static_cast<size_t>(who),
                             static_cast<char>('a' + who));
        };
        Result<std::vector<std::string>> all =
            client->AllGather("texts", given(w), Soon());
        EXPECT_OK(all.status());
        EXPECT_EQ(std::move(all).value_or({}),
                  (std::vector<std::string>{given(0), given(1), given(2)}));
      }
      EXPECT_OK(client->Stop(Soon()));
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(PsConformance, TellsOthersThatAWorkerIsLost) {
  Cluster cluster = Make(2);
  auto client = cluster.Client(0);
  {
    auto gone = cluster.Client(1);
  }  // without Stop
  EXPECT_THAT(client->Barrier("b", Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_THAT(client->FinishStep({}, {}, Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_THAT(cluster.server(0).WaitUntilStopped(Soon()),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("server 0"), HasSubstr("worker 1"))));
}

TEST_P(PsConformance, SavesLoadsAndShrinks) {
  testing::TemporaryFolder temporary;
  const std::string folder = temporary.path().string();
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> values(kDenseSize, 3.0f);
  {
    Cluster cluster = Make(1);
    auto client = cluster.Client(0);
    ASSERT_OK(client->Push(kEmb, keys, std::vector<float>(4000, 1.0f), Soon()));
    ASSERT_OK(client->AssignDense(kDense, values, Soon()));
    ASSERT_OK(client->Save(folder, {}, Soon()));
    ASSERT_OK(client->Push(kEmb, keys, std::vector<float>(4000, 1.0f), Soon()));
    ASSERT_OK(client->Save(folder, {.text = true}, Soon()));
    ASSERT_OK_AND_ASSIGN(const uint64_t erased,
                         client->Shrink(kEmb, 1, Soon()));
    EXPECT_EQ(erased, 1000u);
    ASSERT_OK_AND_ASSIGN(const table::SparseTableStats stats,
                         client->Stats(kEmb, Soon()));
    EXPECT_EQ(stats.num_rows, 0u);
  }
  EXPECT_TRUE(base::Exists(folder + "/emb_txt/emb.block0.txt"));
  // Another number of servers.
  Cluster cluster(GetParam().way, 5 - GetParam().num_servers, 1);
  auto client = cluster.Client(0);
  ASSERT_OK(client->Load(folder, Soon()));
  ASSERT_OK_AND_ASSIGN(const table::SparseTableStats stats,
                       client->Stats(kEmb, Soon()));
  EXPECT_EQ(stats.num_rows, 1000u);
  EXPECT_THAT(Pulled(*client, keys), Each(0.0f));
  std::vector<float> got(kDenseSize);
  ASSERT_OK(client->PullDense(kDense, got, Soon()));
  EXPECT_EQ(got, values);
}

TEST_P(PsConformance, NamesOfTablesNeverLeadOutOfAFolder) {
  testing::TemporaryFolder temporary;
  const std::string folder = (temporary.path() / "a" / "b").string();
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  uint32_t id = 100;
  for (const char* name : {"enc/w", "../../evil", "/etc/w", "..", ".w"}) {
    table::SparseTableOptions sparse;
    sparse.name = name;
    sparse.dim = 2;
    DenseSpec dense;
    dense.name = base::Concat(name, ".dense");
    dense.size = 10;
    ASSERT_OK(client->CreateTables(
        {{TableId{id}, sparse}, {TableId{id + 1}, dense}}, Soon()));
    ASSERT_OK(client->Push(TableId{id}, std::vector<Key>{7},
                           std::vector<float>{1.0f, 1.0f}, Soon()));
    id += 2;
  }
  ASSERT_OK(client->AssignDense(kDense, std::vector<float>(kDenseSize, 3.0f),
                                Soon()));
  ASSERT_OK(client->Save(folder, {.text = true}, Soon()));
  EXPECT_THAT(*base::ListFolder(temporary.path()), ElementsAre("a"));
  EXPECT_THAT(*base::ListFolder(temporary.path() / "a"), ElementsAre("b"));
  ASSERT_OK(client->Load(folder, Soon()));
  for (id = 100; id < 110; id += 2) {
    ASSERT_OK_AND_ASSIGN(const table::SparseTableStats stats,
                         client->Stats(TableId{id}, Soon()));
    EXPECT_EQ(stats.num_rows, 1u);
  }
  for (const std::string name : {"", "a\nfile 1 2 b", "a\x7f"}) {
    table::SparseTableOptions sparse;
    sparse.name = name;
    sparse.dim = 2;
    EXPECT_THAT(client->CreateTables({{TableId{200}, sparse}}, Soon()),
                HasCode(StatusCode::kInvalidArgument));
  }
}

TEST_P(PsConformance, MakesTablesThatAWorkerDescribes) {
  Cluster cluster = Make(2);
  auto client = cluster.Client(0);
  auto other = cluster.Client(1);
  table::SparseTableOptions sparse;
  sparse.name = "user";
  sparse.dim = 3;
  sparse.initializer = table::ConstantInit{2.0f};
  DenseSpec dense;
  dense.name = "bias";
  dense.size = 5000;
  const std::vector<TableSpec> specs = {{TableId{10}, sparse},
                                        {TableId{11}, dense}};
  ASSERT_OK(client->CreateTables(specs, Soon()));
  ASSERT_OK(other->CreateTables(specs, Soon()));
  std::vector<float> rows(6);
  ASSERT_OK(other->Pull(TableId{10}, std::vector<Key>{1, 2}, rows, {}, Soon()));
  EXPECT_THAT(rows, Each(2.0f));
  // The first values stay.
  ASSERT_OK(client->InitializeDense(TableId{11}, std::vector<float>(5000, 1.0f),
                                    Soon()));
  ASSERT_OK(other->InitializeDense(TableId{11}, std::vector<float>(5000, 9.0f),
                                   Soon()));
  std::vector<float> values(5000);
  ASSERT_OK(other->PullDense(TableId{11}, values, Soon()));
  EXPECT_THAT(values, Each(1.0f));
  sparse.dim = 4;
  EXPECT_THAT(client->CreateTables({{TableId{10}, sparse}}, Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("create user at server 0")));
}

// Tables of all sizes: nothing on some servers, several in one message, several
// messages for one.
class DenseTables {
 public:
  static constexpr std::array<uint64_t, 5> kSizes = {3, 100'000, 1, 40'000, 7};

  explicit DenseTables(PsClient& client) {
    std::vector<TableSpec> specs;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      DenseSpec dense;
      dense.name = base::Concat("w", i);
      dense.size = kSizes[i];
      dense.update.learning_rate.base = 0.5;
      ids_.push_back(TableId{static_cast<uint32_t>(20 + i)});
      specs.push_back({ids_[i], dense});
      gradients_.emplace_back(kSizes[i]);
      for (size_t k = 0; k < kSizes[i]; ++k) {
        gradients_[i][k] = static_cast<float>(k % 13 + i);
      }
      values_.emplace_back(kSizes[i], -1.0f);
    }
    EXPECT_OK(client.CreateTables(specs, Soon()));
  }

  std::vector<DenseGradient> gradients() const {
    std::vector<DenseGradient> all;
    for (size_t i = 0; i < ids_.size(); ++i) {
      all.push_back({ids_[i], gradients_[i]});
    }
    return all;
  }
  std::vector<DenseValues> values() {
    std::vector<DenseValues> all;
    for (size_t i = 0; i < ids_.size(); ++i) {
      all.push_back({ids_[i], values_[i]});
    }
    return all;
  }
  // Whether the values are `factor` times the gradients.
  void ExpectValues(float factor) const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      for (size_t k = 0; k < kSizes[i]; ++k) {
        ASSERT_EQ(values_[i][k], factor * gradients_[i][k]) << i << ' ' << k;
      }
    }
  }

 private:
  std::vector<TableId> ids_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> values_;
};

TEST_P(PsConformance, MovesSeveralDenseTablesInOneCall) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  DenseTables tables(*client);
  ASSERT_OK(client->PushDenseMany(tables.gradients(), Soon(), 3));
  ASSERT_OK(client->PullDenseMany(tables.values(), Soon()));
  tables.ExpectValues(-0.5f);
  ASSERT_OK(client->ExchangeDense(tables.gradients(), tables.values(), Soon()));
  tables.ExpectValues(-1.0f);
  ASSERT_OK(client->AddDenseMany(tables.gradients(), Soon()));
  ASSERT_OK(client->PullDenseMany(tables.values(), Soon()));
  tables.ExpectValues(0.0f);
  // Every server counted the steps, also those without a value of the table.
  for (uint32_t s = 0; s < GetParam().num_servers; ++s) {
    for (uint32_t i = 0; i < DenseTables::kSizes.size(); ++i) {
      EXPECT_EQ(cluster.server(s).dense(TableId{20 + i})->step(), 3u);
    }
  }
  std::vector<DenseValues> wrong = tables.values();
  wrong[1].values = wrong[1].values.first(5);
  EXPECT_THAT(client->PullDenseMany(wrong, Soon()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("worker 0: pull w1 (5 values): it has")));
}

TEST_P(PsConformance, FinishesAStepAndBringsItsValues) {
  Cluster cluster = Make(2);
  std::vector<std::thread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&, w] {
      auto client = cluster.Client(w);
      DenseTables tables(*client);
      EXPECT_OK(client->Barrier("made", Soon()));
      for (int step = 1; step <= 3; ++step) {
        EXPECT_OK(
            client->FinishStep(tables.gradients(), tables.values(), Soon()));
        tables.ExpectValues(-0.5f * static_cast<float>(step));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(PsConformance, TakesKeysAndRowsInParts) {
  Cluster cluster = Make(1);
  auto client = cluster.Client(0);
  const std::vector<Key> first{1, 2, 1};
  const std::vector<Key> second{3, 2};
  const std::vector<float> one(12, 1.0f);
  const std::vector<float> two(8, 2.0f);
  const std::vector<ValuesOfKeys> gradients{{first, one}, {}, {second, two}};
  ASSERT_OK(client->PushParts(kEmb, gradients, Soon(), 2));
  std::vector<float> a(12);
  std::vector<float> b(8);
  const std::vector<RowsOfKeys> rows{{first, a}, {second, b}, {}};
  ASSERT_OK(client->PullParts(kEmb, rows, {}, Soon()));
  // 1 - 0.5 * (1 + 1), 1 - 0.5 * (1 + 2), 1 - 0.5 * 2.
  EXPECT_THAT(a,
              ElementsAre(0, 0, 0, 0, -0.5f, -0.5f, -0.5f, -0.5f, 0, 0, 0, 0));
  EXPECT_THAT(b, ElementsAre(0, 0, 0, 0, -0.5f, -0.5f, -0.5f, -0.5f));
  for (uint32_t s = 0; s < GetParam().num_servers; ++s) {
    EXPECT_EQ(cluster.server(s).sparse(kEmb)->stats().step, 2u);
  }
  // Steps end also where no key was pushed.
  ASSERT_OK(client->Push(kEmb, {}, {}, Soon(), 1));
  EXPECT_EQ(cluster.server(0).sparse(kEmb)->stats().step, 3u);
}

// A hello on a channel of its own, as a worker says it. What the server
// answered.
Result<std::string> SayHello(channel::Channel& channel, uint32_t worker,
                             uint32_t lane, uint64_t incarnation) {
  RequestHead head;
  head.op = Op::kHello;
  return Ask(
      channel, head,
      channel::MessageWriter().U32(worker).U32(lane).U64(incarnation).Take(),
      Soon());
}

// A channel that ends after so many more sent messages, as a network does.
class Fragile final : public channel::Channel {
 public:
  Fragile(std::unique_ptr<Channel> under, std::atomic<int>& replies_left)
      : Channel(under->peer()),
        under_(std::move(under)),
        replies_left_(replies_left) {}

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   Deadline deadline) override {
    return under_->SendParts(parts, deadline);
  }
  Result<uint64_t> NextSize(Deadline deadline) override {
    ASSIGN_OR_RETURN(const uint64_t size, under_->NextSize(deadline));
    // The server has done it; its answer is lost.
    if (replies_left_-- == 0) {
      under_->Close();
      return Unavailable("the cable was cut");
    }
    return size;
  }
  Status Recv(channel::MutableBytes into, Deadline deadline) override {
    return under_->Recv(into, deadline);
  }
  void Abort(Status why) override { under_->Abort(std::move(why)); }

 private:
  std::unique_ptr<Channel> under_;
  std::atomic<int>& replies_left_;
};

// A worker that comes back when a connection is lost.
std::unique_ptr<PsClient> FragileClient(Cluster& cluster,
                                        std::atomic<int>& replies_left) {
  PsClientOptions options;
  options.reconnect_for = 10s;
  auto connected = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        return std::make_unique<Fragile>(
            cluster.server(0).ConnectInProcess("worker 0"), replies_left);
      },
      options, Soon());
  EXPECT_OK(connected);
  return std::move(connected).value();
}

TEST(PsClient, AppliesAPushOnceThoughItsAnswerWasLost) {
  Cluster cluster(Way::kInProcess, 1, 1);
  std::atomic<int> replies_left = 1'000'000;
  const std::unique_ptr<PsClient> connected =
      FragileClient(cluster, replies_left);
  PsClient& client = *connected;
  std::vector<Key> keys(50'000);  // several parts
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> gradients(keys.size() * 4, 1.0f);
  std::vector<float> rows(keys.size() * 4);
  double expected = 1.0;
  for (int cut = 0; cut < 12; ++cut) {
    replies_left = cut;
    ASSERT_OK(client.Push(kEmb, keys, gradients, Soon()));
    expected -= 0.5;
    replies_left = cut;
    ASSERT_OK(client.Pull(kEmb, keys, rows, {}, Soon()));
    ASSERT_THAT(rows, Each(static_cast<float>(expected))) << cut;
  }
  EXPECT_GT(cluster.server(0).counters().num_repeated, 5u);
  // Dense gradients, which come in parts, too.
  for (int cut = 0; cut < 4; ++cut) {
    replies_left = cut;
    ASSERT_OK(client.PushDenseMany(
        One(kDense, std::vector<float>(kDenseSize, 2.0f)), Soon()));
  }
  replies_left = 1'000'000;
  std::vector<float> values(kDenseSize);
  ASSERT_OK(client.PullDense(kDense, values, Soon()));
  EXPECT_THAT(values, Each(-4.0f));
}

// A gradient of which some parts were acknowledged by a server that is gone is
// sent whole to the one that takes its place.
TEST(PsClient, SendsAllPartsOfAGradientToAServerThatTookAnothersPlace) {
  constexpr uint64_t kParts = (kDenseSize + kChunkValues - 1) / kChunkValues;
  static_assert(kParts > 2);
  for (int cut = 1; cut < static_cast<int>(kParts); ++cut) {
    Cluster first(Way::kInProcess, 1, 1);
    Cluster second(Way::kInProcess, 1, 1);
    std::atomic<int> replies_left = 1'000'000;
    bool is_gone = false;
    PsClientOptions options;
    options.reconnect_for = 10s;
    auto connected = PsClient::Connect(
        1,
        [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          is_gone = is_gone || replies_left < 0;
          return std::make_unique<Fragile>(
              (is_gone ? second : first).server(0).ConnectInProcess("worker 0"),
              replies_left);
        },
        options, Soon());
    ASSERT_OK(connected);
    PsClient& client = **connected;
    replies_left = cut;
    ASSERT_OK(client.AssignDense(kDense, std::vector<float>(kDenseSize, 7.0f),
                                 Soon()));
    ASSERT_TRUE(is_gone);
    std::vector<float> values(kDenseSize);
    ASSERT_OK(client.PullDense(kDense, values, Soon()));
    EXPECT_THAT(values, Each(7.0f)) << cut;
  }
}

TEST(PsServer, RefusesAPartOfAGradientWithoutThoseBeforeIt) {
  Cluster cluster(Way::kInProcess, 1, 1);
  auto channel = cluster.server(0).ConnectInProcess("worker 0");
  ASSERT_OK(SayHello(*channel, 0, 0, 0));
  RequestHead head;
  head.op = Op::kAssign;
  head.flags = kFlagDense;
  head.sequence = 1;
  head.count = 1;
  const DenseSection section{kDense, kFlagLast, kDenseSize - 2, 2};
  std::string body(sizeof(section) + 2 * sizeof(float), '\0');
  std::memcpy(body.data(), &section, sizeof(section));
  EXPECT_THAT(Ask(*channel, head, body, Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("fc.w"), HasSubstr("not here"))));
}

TEST(PsClient, AgesRowsOnceThoughTheAnswerOfAShrinkWasLost) {
  Cluster cluster(Way::kInProcess, 1, 1);
  std::atomic<int> replies_left = 1'000'000;
  const std::unique_ptr<PsClient> client = FragileClient(cluster, replies_left);
  std::vector<float> rows(8);
  ASSERT_OK(client->Pull(kEmb, std::vector<Key>{1, 2}, rows, {}, Soon()));
  replies_left = 0;
  // The rows are one day old, not two: none goes.
  ASSERT_OK_AND_ASSIGN(const uint64_t none, client->Shrink(kEmb, 2, Soon()));
  EXPECT_EQ(none, 0u);
  EXPECT_EQ(cluster.server(0).counters().num_repeated, 1u);
  replies_left = 0;
  // The answer that comes again is the one that was lost.
  ASSERT_OK_AND_ASSIGN(const uint64_t all, client->Shrink(kEmb, 2, Soon()));
  EXPECT_EQ(all, 2u);
  EXPECT_EQ(cluster.server(0).counters().num_repeated, 2u);
}

TEST(PsClient, CountsAPullOnceThoughItsAnswerWasLost) {
  Cluster cluster(Way::kInProcess, 1, 1);
  std::atomic<int> replies_left = 1'000'000;
  const std::unique_ptr<PsClient> client = FragileClient(cluster, replies_left);
  constexpr TableId kRare{7};
  table::SparseTableOptions options;
  options.name = "rare";
  options.dim = 4;
  options.entry = table::AdmitByCount{4};
  ASSERT_OK(client->CreateTables({{kRare, options}}, Soon()));
  ASSERT_OK(client->Refresh(Soon()));
  const std::vector<Key> keys = {1, 2};
  std::vector<float> rows(8);
  for (int pull = 1; pull <= 4; ++pull) {
    replies_left = 0;
    ASSERT_OK(client->Pull(kRare, keys, rows, {.count = true}, Soon()));
    ASSERT_OK_AND_ASSIGN(const auto stats, client->Stats(kRare, Soon()));
    EXPECT_EQ(stats.num_rows, pull < 4 ? 0u : 2u) << pull;
  }
}

// A server that is back and cannot have its tables says why, at once: it is not
// asked again until the time is over, as one that is not there.
TEST(PsClient, HearsAtOnceWhyAServerThatIsBackCannotGoOn) {
  Cluster first(Way::kInProcess, 1, 1);
  PsServerOptions damaged;
  damaged.load_folder = testing::TempDir();
  damaged.load_otherwise = [](table::SparseTable*, table::DenseTable*) {
    return DataLoss("its save is damaged");
  };
  PsServer second(damaged);
  std::atomic<bool> is_gone = false;
  std::atomic<int> num_opened = 0;
  PsClientOptions options;
  options.reconnect_for = 60s;
  auto connected = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        ++num_opened;
        return (is_gone ? second : first.server(0))
            .ConnectInProcess("worker 0");
      },
      options, Soon());
  ASSERT_OK(connected);
  PsClient& client = **connected;
  table::SparseTableOptions table;
  table.name = "rows";
  table.dim = 4;
  ASSERT_OK(client.CreateTables({{TableId{7}, table}}, Soon()));
  ASSERT_OK(client.Refresh(Soon()));
  num_opened = 0;
  is_gone = true;
  first.server(0).Abort(Unavailable("killed"));
  std::vector<float> row(4);
  EXPECT_THAT(
      client.Pull(TableId{7}, std::vector<Key>{1}, row, {}, Soon()),
      StatusIs(StatusCode::kDataLoss, HasSubstr("its save is damaged")));
  EXPECT_EQ(num_opened, 1);
}

// While one server hangs in its hello, calls to the others go on.
TEST(PsClient, AServerThatHangsHoldsUpNoCallToOthers) {
  Cluster cluster(Way::kInProcess, 2, 1);
  Cluster again(Way::kInProcess, 2, 1);
  std::latch hangs(1);
  std::latch let_go(1);
  std::atomic<bool> is_gone = false;
  PsClientOptions options;
  options.reconnect_for = 60s;
  auto connected = PsClient::Connect(
      2,
      [&](uint32_t server,
          Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        if (server == 0 || !is_gone) {
          return cluster.server(server).ConnectInProcess("worker 0");
        }
        if (!let_go.try_wait()) hangs.count_down();
        let_go.wait();
        return again.server(1).ConnectInProcess("worker 0");
      },
      options, Soon());
  ASSERT_OK(connected);
  PsClient& client = **connected;
  std::vector<Key> of_first;
  std::vector<Key> of_second;
  for (Key key = 0; key < 100; ++key) {
    (table::ServerOfKey(key, 2) == 0 ? of_first : of_second).push_back(key);
  }
  const auto pull = [&](const std::vector<Key>& keys) {
    std::vector<float> rows(keys.size() * 4);
    return client.Pull(kEmb, keys, rows, {}, Soon());
  };
  is_gone = true;
  cluster.server(1).Abort(Unavailable("killed"));
  std::jthread waits([&] { EXPECT_OK(pull(of_second)); });
  hangs.wait();
  std::atomic<bool> is_done = false;
  std::jthread goes_on([&] {
    EXPECT_OK(pull(of_first));
    EXPECT_OK(client.Push(
        kEmb, of_first, std::vector<float>(of_first.size() * 4, 1.0f), Soon()));
    is_done = true;
  });
  const Deadline patience = Soon();
  while (!is_done && !patience.expired()) std::this_thread::yield();
  EXPECT_TRUE(is_done);
  let_go.count_down();
}

TEST(PsClient, FailsAtOnceWhenAServerIsGone) {
  Cluster cluster(Way::kTcp, 2, 1);
  auto client = cluster.Client(0);
  cluster.server(1).Abort(Unavailable("killed"));
  std::vector<Key> keys(100);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> rows(400);
  EXPECT_THAT(client->Pull(kEmb, keys, rows, {}, Soon()),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("worker 0: pull emb (100 keys) at server 1")));
}

// Not only the call in which it went: those that follow do not call for it.
TEST(PsClient, FailsAtOnceAlsoAfterAServerIsGone) {
  auto cluster = std::make_unique<Cluster>(Way::kTcp, 1, 1);
  auto client = cluster->Client(0);
  cluster.reset();
  std::vector<float> rows(4);
  for (int call = 0; call < 3; ++call) {
    EXPECT_THAT(client->Pull(kEmb, std::vector<Key>{1}, rows, {},
                             Deadline::After(10min)),
                StatusIs(StatusCode::kUnavailable, HasSubstr("server 0")));
  }
}

TEST(PsClient, WaitsNoLongerThanItsDeadlineForAServerThatIsNotThere) {
  channel::Address nobody;
  nobody.host = "127.0.0.1";
  nobody.port = 1;
  const auto client = PsClient::Connect({nobody}, {}, Deadline::After(50ms));
  EXPECT_FALSE(client.ok());
  EXPECT_THAT(client.status().message(), HasSubstr("server 0"));
}

TEST(PsClient, KnowsServersInTheWrongOrder) {
  Cluster cluster(Way::kTcp, 2, 1);
  std::vector<channel::Address> swapped = {cluster.addresses()[1],
                                           cluster.addresses()[0]};
  EXPECT_THAT(PsClient::Connect(swapped, {}, Soon()),
              HasCode(StatusCode::kFailedPrecondition));
}

TEST(PsServer, RefusesAWorkerThatIsNoneOfTheJobs) {
  Cluster cluster(Way::kInProcess, 1, 1);
  PsClientOptions options;
  options.worker = 7;
  EXPECT_THAT(
      PsClient::Connect(
          1,
          [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
            return cluster.server(0).ConnectInProcess("worker 7");
          },
          options, Soon()),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("worker 7")));
}

TEST(PsServer, AnOldIncarnationOfAWorkerTakesNothingFromTheNewOne) {
  for (const Way way : {Way::kInProcess, Way::kTcp}) {
    Cluster cluster(way, 2, 1);
    std::vector<Key> keys(20);
    std::iota(keys.begin(), keys.end(), 0);
    const std::vector<float> gradients(keys.size() * 4, -2.0f);
    auto old_one = cluster.Client(0, {.reconnect_for = 1s});
    for (int i = 0; i < 500; ++i) {
      ASSERT_OK(old_one->Push(kEmb, keys, gradients, Soon()));
    }
    // The worker is started again; the old process was only stopped, and its
    // next push is number 501 of its lane.
    auto new_one = cluster.Client(0);
    ASSERT_OK(new_one->Push(kEmb, keys, gradients, Soon()));
    EXPECT_THAT(old_one->Push(kEmb, keys, gradients, Soon()),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("worker 0 was started again"),
                               HasSubstr("refused"))));
    for (int i = 0; i < 400; ++i) {
      ASSERT_OK(new_one->Push(kEmb, keys, gradients, Soon()));
    }
    std::vector<float> rows(keys.size() * 4);
    ASSERT_OK(new_one->Pull(kEmb, keys, rows, {}, Soon()));
    EXPECT_THAT(rows, Each(1.0f + 901.0f));
    // Nor does it end the new one's work, or wait where the new one waits.
    const auto refused = HasCode(StatusCode::kFailedPrecondition);
    EXPECT_THAT(old_one->Pull(kEmb, keys, rows, {}, Soon()), refused);
    EXPECT_THAT(old_one->PushDenseMany(
                    One(kDense, std::vector<float>(kDenseSize)), Soon()),
                refused);
    EXPECT_THAT(old_one->Shrink(kEmb, 1, Soon()), refused);
    EXPECT_THAT(old_one->TakeChanges(kEmb, Soon()), refused);
    EXPECT_THAT(old_one->Barrier("b", Soon()), refused);
    EXPECT_THAT(old_one->FinishStep({}, {}, Soon()), refused);
    EXPECT_THAT(old_one->BeginCut(Soon()), refused);
    EXPECT_THAT(old_one->SetRate("lr", 1.0, Soon()), refused);
    EXPECT_THAT(old_one->Stop(Soon()), refused);
    EXPECT_OK(new_one->FinishStep({}, {}, Soon()));
  }
}

// Neither what a lost worker had given nor its share of the mean is in a step
// that goes on without it.
TEST(PsServer, LeavesOutTheSumsOfAWorkerThatWasLostInTheMiddleOfItsStep) {
  PsServerOptions options;
  options.num_workers = 2;
  options.worker_grace = 30ms;
  options.go_on_without_lost_workers = true;
  PsServer server(options);
  AddTables(server, 0, 1);
  auto connect = [&](int worker) {
    PsClientOptions as;
    as.worker = worker;
    auto client = PsClient::Connect(
        1,
        [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return server.ConnectInProcess(base::Concat("worker ", worker));
        },
        as, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  };
  auto stays = connect(0);
  auto goes = connect(1);
  const std::vector<Key> keys{1};
  const std::vector<float> two(4, 2.0f);
  const std::vector<float> dense(kDenseSize, 2.0f);
  for (PsClient* client : {stays.get(), goes.get()}) {
    ASSERT_OK(client->Accumulate(kEmb, keys, two, Soon()));
    ASSERT_OK(client->AccumulateDenseMany(One(kDense, dense), Soon()));
  }
  goes.reset();
  ASSERT_OK(stays->FinishStep({}, {}, Soon()));
  std::vector<float> row(4);
  ASSERT_OK(stays->Pull(kEmb, keys, row, {}, Soon()));
  EXPECT_THAT(row, Each(0.0f));  // 1 - 0.5 * 2
  std::vector<float> values(kDenseSize);
  ASSERT_OK(stays->PullDense(kDense, values, Soon()));
  EXPECT_THAT(values, Each(-1.0f));
}

// It gives its first gradients while the others are still at the step before.
TEST(PsServer, AWorkerThatIsBackIsInNoStepBeforeItsFirst) {
  PsServerOptions options;
  options.num_workers = 2;
  options.worker_grace = 30ms;
  options.go_on_without_lost_workers = true;
  PsServer server(options);
  AddTables(server, 0, 1);
  auto connect = [&](int worker) {
    PsClientOptions as;
    as.worker = worker;
    auto client = PsClient::Connect(
        1,
        [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return server.ConnectInProcess(base::Concat("worker ", worker));
        },
        as, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  };
  const std::vector<Key> keys{1};
  const std::vector<float> dense(kDenseSize, 2.0f);
  auto give = [&](PsClient& client, float gradient) {
    ASSERT_OK(
        client.Accumulate(kEmb, keys, std::vector<float>(4, gradient), Soon()));
    ASSERT_OK(client.AccumulateDenseMany(One(kDense, dense), Soon()));
  };
  auto finish = [&](PsClient& client) {
    ASSERT_OK(client.FinishStep({}, {}, Soon()));
  };
  auto row = [&](PsClient& client) {
    std::vector<float> values(4);
    EXPECT_OK(client.Pull(kEmb, keys, values, {}, Soon()));
    return values;
  };
  auto stays = connect(0);
  auto goes = connect(1);
  give(*stays, 2);
  give(*goes, 2);
  {
    std::thread other([&] { finish(*goes); });
    finish(*stays);
    other.join();
  }
  EXPECT_THAT(row(*stays), Each(0.0f));  // 1 - 0.5 * 2
  goes.reset();
  give(*stays, 2);
  goes = connect(1);
  give(*goes, 8);
  finish(*stays);
  // Neither its gradients nor its share of the mean.
  EXPECT_THAT(row(*stays), Each(-1.0f));
  give(*stays, 4);
  {
    std::thread other([&] { finish(*goes); });
    finish(*stays);
    other.join();
  }
  EXPECT_THAT(row(*stays), Each(-4.0f));  // -1 - 0.5 * (8 + 4) / 2
  std::vector<float> values(kDenseSize);
  ASSERT_OK(stays->PullDense(kDense, values, Soon()));
  EXPECT_THAT(values, Each(-3.0f));
}

TEST(PsServer, IncarnationsAscendAndServer0GivesThem) {
  Cluster cluster(Way::kInProcess, 2, 2);
  auto first = cluster.server(0).ConnectInProcess("worker 1");
  ASSERT_OK_AND_ASSIGN(const std::string one, SayHello(*first, 1, 0, 0));
  auto second = cluster.server(0).ConnectInProcess("worker 1");
  ASSERT_OK_AND_ASSIGN(const std::string two, SayHello(*second, 1, 0, 0));
  ASSERT_OK_AND_ASSIGN(const HelloAnswer a, DecodeHelloAnswer(one));
  ASSERT_OK_AND_ASSIGN(const HelloAnswer b, DecodeHelloAnswer(two));
  EXPECT_LT(a.incarnation, b.incarnation);
  auto late = cluster.server(0).ConnectInProcess("worker 1");
  EXPECT_THAT(SayHello(*late, 1, 0, a.incarnation),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("worker 1 was started again")));
  auto elsewhere = cluster.server(1).ConnectInProcess("worker 1");
  EXPECT_THAT(SayHello(*elsewhere, 1, 0, 0),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("server 0 gives them")));
}

// A connection whose message has begun and does not go on, once it is stuck.
class Stuck final : public channel::Channel {
 public:
  Stuck(std::unique_ptr<Channel> under, const std::atomic<bool>& is_stuck)
      : Channel(under->peer()), under_(std::move(under)), is_stuck_(is_stuck) {}

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   Deadline deadline) override {
    return under_->SendParts(parts, deadline);
  }
  Result<uint64_t> NextSize(Deadline deadline) override {
    return under_->NextSize(deadline);
  }
  Status Recv(channel::MutableBytes into, Deadline deadline) override {
    if (!is_stuck_) return under_->Recv(into, deadline);
    base::Interrupt never;
    (void)never.SleepUntil(deadline);
    return DeadlineExceeded("stuck");
  }
  void Abort(Status why) override { under_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<Channel> under_;
  const std::atomic<bool>& is_stuck_;
};

TEST(PsClient, IsInterruptedInTheMiddleOfAReply) {
  PsServer server(PsServerOptions{});
  AddTables(server, 0, 1);
  std::atomic<bool> is_stuck = false;
  PsClientOptions options;
  options.interrupt = [&] {
    return is_stuck ? FailedPrecondition("^C") : OkStatus();
  };
  auto client = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        return std::make_unique<Stuck>(server.ConnectInProcess("worker 0"),
                                       is_stuck);
      },
      options, Soon());
  ASSERT_OK(client);
  is_stuck = true;
  std::vector<float> row(4);
  EXPECT_THAT((*client)->Pull(kEmb, std::vector<Key>{1}, row, {}, Soon()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("^C")));
}

// Workers tell server 0 the epochs of the others, with their signs of life.
TEST(PsServer, TheViewAscendsWithEveryServersEpoch) {
  Cluster cluster(Way::kInProcess, 2, 1);
  auto channel = cluster.server(0).ConnectInProcess("worker 0");
  ASSERT_OK(SayHello(*channel, 0, kLifeLane, 0));
  auto view = [&] {
    RequestHead head;
    head.op = Op::kDescribe;
    const Result<std::string> bytes = Ask(*channel, head, "", Soon());
    EXPECT_OK(bytes);
    const Result<ServerInfo> info = DecodeServerInfo(*bytes);
    EXPECT_OK(info);
    return info->view;
  };
  auto beat = [&](uint64_t epoch) {
    RequestHead head;
    head.op = Op::kBeat;
    return Ask(*channel, head,
               channel::MessageWriter()
                   .Text("process 1 on host-a")
                   .U32(2)
                   .U64(1)
                   .U64(epoch)
                   .Take(),
               Soon());
  };
  const uint64_t begin = view();
  ASSERT_OK_AND_ASSIGN(const std::string server, beat(1));
  EXPECT_THAT(server, HasSubstr("process "));
  EXPECT_EQ(view(), begin);
  ASSERT_OK(beat(2));
  ASSERT_OK(beat(2));
  EXPECT_EQ(view(), begin + 1);
  // Signs of life are no requests that anybody counts.
  EXPECT_EQ(cluster.server(0).counters().num_requests, 4u);
}

TEST(PsServer, AHelloIsOfTheWorkerThatTheConnectionIsOf) {
  Cluster cluster(Way::kTcp, 1, 4);
  const OpenConnection open =
      ConnectByAddress(cluster.addresses(), {.worker = 1});
  ASSERT_OK_AND_ASSIGN(const auto channel, open(0, Soon()));
  EXPECT_THAT(SayHello(*channel, 3, 0, 0),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("a hello of worker 3 on a connection of "
                                 "worker 1")));
}

// Whatever comes, the server answers or ends that connection, and lives.
TEST(PsServer, SurvivesRequestsThatMakeNoSense) {
  Cluster cluster(Way::kInProcess, 1, 1);
  auto client = cluster.Client(0);
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    auto channel = cluster.server(0).ConnectInProcess("stranger");
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    if (bytes.size() >= sizeof(RequestHead) && i % 2 == 0) {
      RequestHead head;
      head.op = static_cast<Op>(random() % 31);
      head.flags = random() % 2 == 0 ? kFlagDense : 0;
      head.count = random() % 3 == 0 ? ~uint64_t{0} : random() % 10;
      std::memcpy(bytes.data(), &head, sizeof(head));
    }
    EXPECT_OK(channel->Send(bytes, Soon()));
    (void)channel->NextSize(Deadline::After(1ms));
  }
  std::vector<float> rows(4);
  EXPECT_OK(client->Pull(kEmb, std::vector<Key>{1}, rows, {}, Soon()));
}

// What a request throws is its answer, and the server lives.
TEST(PsServer, AnswersARequestThatThrows) {
  PsServerOptions options;
  int num_saves = 0;
  options.on_saved = [&](const LastSave&) {
    if (++num_saves == 1) throw std::runtime_error("the disk is on fire");
    if (num_saves == 2) throw std::bad_alloc();
  };
  PsServer server(options);
  AddTables(server, 0, 1);
  auto connected = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        return server.ConnectInProcess("worker 0");
      },
      {}, Soon());
  ASSERT_OK(connected);
  testing::TemporaryFolder folder;
  auto save = [&] {
    return (*connected)->Save(folder.path().string(), {}, Soon());
  };
  EXPECT_THAT(save(), StatusIs(StatusCode::kInternal, HasSubstr("on fire")));
  EXPECT_THAT(save(), StatusIs(StatusCode::kUnavailable, HasSubstr("memory")));
  EXPECT_OK(save());
}

TEST(PsServer, RefusesAnIdThatIsTaken) {
  PsServer server({});
  AddTables(server, 0, 1);
  table::SparseTableOptions options;
  options.name = "other";
  options.dim = 1;
  EXPECT_THAT(server.AddSparse(kDense, *table::SparseTable::Make(options)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("other")));
}

}  // namespace
}  // namespace fleet::ps
