// SPDX-License-Identifier: Apache-2.0

// Clients and servers in one process, over every kind of channel.

#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

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

}  // namespace
}  // namespace fleet::ps
