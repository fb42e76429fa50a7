// SPDX-License-Identifier: Apache-2.0

// Saves and loads of several servers that are killed in the middle of them.

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/ps/serve.h"
#include "fleet/table/save_manifest.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using table::CheckFiles;
using table::SaveKind;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr TableId kA{1};
constexpr TableId kB{2};
constexpr TableId kW{3};
constexpr PsClient::SaveOptions kDelta = {.kind = SaveKind::kDelta};

// Calls something before a request is sent.
class Watched final : public channel::Channel {
 public:
  using BeforeSend = std::function<void(const RequestHead&)>;

  Watched(std::unique_ptr<Channel> under, BeforeSend before)
      : Channel(under->peer()),
        under_(std::move(under)),
        before_(std::move(before)) {}

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   Deadline deadline) override {
    before_(base::LoadAt<RequestHead>(parts[0], 0));
    return under_->SendParts(parts, deadline);
  }
  Result<uint64_t> NextSize(Deadline deadline) override {
    return under_->NextSize(deadline);
  }
  Status Recv(channel::MutableBytes into, Deadline deadline) override {
    return under_->Recv(into, deadline);
  }
  void Abort(Status why) override { under_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<Channel> under_;
  const BeforeSend before_;
};

// Servers that can be killed and started again, as a launcher does, and a
// worker.
class Job final {
 public:
  Job(const base::Path& notes, uint32_t num_servers,
      std::string load_folder = "")
      : notes_(notes),
        load_folder_(std::move(load_folder)),
        servers_(num_servers) {
    for (uint32_t i = 0; i < num_servers; ++i) Start(i);
    auto client = PsClient::Connect(
        num_servers,
        [this](uint32_t server,
               Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          base::MutexLock lock(mutex_);
          if (servers_[server] == nullptr) return Unavailable("it is dead");
          return std::make_unique<Watched>(
              servers_[server]->server().ConnectInProcess("worker 0"),
              [this, server](const RequestHead& head) {
                // Beats come from a thread of the client.
                if (head.op == Op::kBeat) return;
                if (before_send) before_send(server, head);
              });
        },
        {.reconnect_for = 30s, .on_data_loss = OnDataLoss::kGoOn}, Soon());
    EXPECT_OK(client.status());
    client_ = std::move(client).value();
    table::SparseTableOptions rows;
    rows.dim = 2;
    rows.num_shards = 2;
    rows.update.learning_rate.base = 1.0;
    std::vector<table::TableSpec> specs;
    for (const auto& [id, name] : {std::pair(kA, "a"), std::pair(kB, "b")}) {
      rows.name = name;
      specs.push_back({id, rows});
    }
    table::DenseSpec weights;
    weights.name = "w";
    weights.size = 3000;
    weights.update.learning_rate.base = 1.0;
    specs.push_back({kW, weights});
    EXPECT_OK(client_->CreateTables(specs, Soon()));
    EXPECT_OK(client_->InitializeDense(kW, std::vector<float>(3000), Soon()));
  }
  ~Job() { client_.reset(); }

  // Told of every request of the test's thread before it is sent.
  std::function<void(uint32_t server, const RequestHead& head)> before_send;

  PsClient& client() { return *client_; }

  Status TryToStart(uint32_t i) {
    ServeOptions options;
    options.server.rank = static_cast<int32_t>(i);
    options.server.num_servers = static_cast<uint32_t>(servers_.size());
    options.server.num_workers = 1;
    options.server.worker_grace = 50ms;
    options.server.load_folder = load_folder_;
    options.address.host = "127.0.0.1";
    options.last_save_file = NoteOf(i);
    ASSIGN_OR_RETURN(std::unique_ptr<Serving> started, Serving::Start(options));
    base::MutexLock lock(mutex_);
    servers_[i] = std::move(started);
    return OkStatus();
  }
  void Start(uint32_t i) { EXPECT_OK(TryToStart(i)); }
  void Kill(uint32_t i) {
    std::unique_ptr<Serving> killed;
    base::MutexLock lock(mutex_);
    killed = std::move(servers_[i]);
  }
  void Restart(uint32_t i) {
    Kill(i);
    Start(i);
  }
  std::string NoteOf(uint32_t i) const {
    return notes_ / base::Concat("note.", i);
  }

  // Every row of a and b, and every weight, grows by one.
  void Step(const std::vector<Key>& keys = Keys()) {
    const std::vector<float> rows(keys.size() * 2, -1.0f);
    ASSERT_OK(client_->Push(kA, keys, rows, Soon()));
    ASSERT_OK(client_->Push(kB, keys, rows, Soon()));
    const std::vector<float> weights(3000, -1.0f);
    ASSERT_OK(client_->PushDenseMany(One(kW, weights), Soon()));
  }
  std::vector<float> Rows(TableId table,
                          const std::vector<Key>& keys = Keys()) {
    std::vector<float> rows(keys.size() * 2);
    EXPECT_OK(client_->Pull(table, keys, rows, {.training = false}, Soon()));
    return rows;
  }
  std::vector<float> Weights() {
    std::vector<float> weights(3000);
    EXPECT_OK(client_->PullDense(kW, weights, Soon()));
    return weights;
  }
  void ExpectAll(float value) {
    EXPECT_THAT(Rows(kA), Each(value));
    EXPECT_THAT(Rows(kB), Each(value));
    EXPECT_THAT(Weights(), Each(value));
  }

  static std::vector<Key> Keys() {
    std::vector<Key> keys(10'000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    return keys;
  }

 private:
  const base::Path notes_;
  const std::string load_folder_;
  // The client's thread of beats asks for servers, too.
  base::Mutex mutex_;
  std::vector<std::unique_ptr<Serving>> servers_;
  std::unique_ptr<PsClient> client_;
};

class SavesTest : public testing::Test {
 protected:
  SavesTest() {
    EXPECT_OK(base::MakeFolders(notes()));
    EXPECT_OK(base::MakeFolders(other_notes()));
  }
  base::Path notes() const { return temporary_.path() / "notes"; }
  base::Path other_notes() const { return temporary_.path() / "others"; }
  std::string folder() const { return temporary_.path() / "model"; }
  std::string other_folder() const { return temporary_.path() / "other"; }

  // What a job with another number of servers makes of the folder.
  void ExpectLoads(float value, const std::string& from) {
    Job job(other_notes(), 3, from);
    job.ExpectAll(value);
    for (uint32_t i = 0; i < 3; ++i) ASSERT_OK(base::Remove(job.NoteOf(i)));
  }
  void ExpectLoads(float value) { ExpectLoads(value, folder()); }
  // A save during which server 1 cannot write table b any more.
  void SaveInVain(Job& job) {
    const std::string file = folder() + "/b." +
                             std::to_string(Newest().number + 1) +
                             ".1-of-2.0.rows";
    job.before_send = [&](uint32_t server, const RequestHead& head) {
      if (server == 1 && head.op == Op::kCutSave) {
        ASSERT_OK(base::MakeFolders(file));
      }
    };
    EXPECT_THAT(job.client().Save(folder(), {}, Soon()).message(),
                HasSubstr(file));
    job.before_send = nullptr;
  }
  table::SavedModel Newest() const {
    auto model = table::FindModel(folder(), CheckFiles::kByChecksum);
    EXPECT_OK(model.status());
    return model.ok() ? *model : table::SavedModel();
  }

  testing::TemporaryFolder temporary_;
};

TEST_F(SavesTest, AreOfAllTablesOrCountForNone) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  ExpectLoads(1);
  job.Step();
  SaveInVain(job);
  ExpectLoads(1);
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  EXPECT_EQ(Newest().number, 3u);
  ExpectLoads(2);
}

TEST_F(SavesTest, AServerThatComesBackBeginsWithASaveThatCounts) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  // Server 0 has written all of its part of a save in another folder, and
  // server 1 has not.
  bool failed = false;
  job.before_send = [&](uint32_t server, const RequestHead& head) {
    if (server != 1 || head.op != Op::kCutSave || failed) return;
    failed = true;
    ASSERT_OK(base::MakeFolders(other_folder() + "/w.1.1-of-2.0.rows"));
  };
  EXPECT_FALSE(job.client().Save(other_folder(), {}, Soon()).ok());
  EXPECT_TRUE(failed);
  job.before_send = nullptr;
  job.Restart(0);
  job.Restart(1);
  job.ExpectAll(1);
}

TEST_F(SavesTest, ServersThatComeBackTogetherBeginWithTheSameSave) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  // Server 1 is killed before it hears that the second save counts.
  bool killed = false;
  job.before_send = [&](uint32_t server, const RequestHead& head) {
    if (server != 1 || head.op != Op::kEndSave || killed) return;
    killed = true;
    job.Restart(1);
  };
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  EXPECT_TRUE(killed);
  EXPECT_EQ(job.client().num_server_restarts(), 1u);
  job.before_send = nullptr;
  job.ExpectAll(2);
  job.Restart(0);
  job.ExpectAll(2);
}

TEST_F(SavesTest, AServerDoesNotBeginEmptyWhereItsSaveIsGone) {
  Job job(notes(), 1);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Kill(0);
  const std::string manifest = folder() + "/save.1.manifest";
  const std::string text = *base::ReadFile(manifest);
  ASSERT_OK(base::Remove(manifest));
  EXPECT_THAT(job.TryToStart(0),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("server 0"), HasSubstr("model"))));
  ASSERT_OK(base::AtomicWriteFile(manifest, text.substr(1)));
  EXPECT_THAT(job.TryToStart(0),
              StatusIs(StatusCode::kDataLoss, HasSubstr("save.1.manifest")));
  ASSERT_OK(base::AtomicWriteFile(manifest, text));
  job.Start(0);
  job.ExpectAll(1);
}

TEST_F(SavesTest, OfAnotherJobAreNotTakenByAServerThatComesBack) {
  Job job(notes(), 1);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  {
    Job other(other_notes(), 1);
    other.Step();
    other.Step();
    ASSERT_OK(other.client().Save(folder(), {}, Soon()));
  }
  EXPECT_EQ(Newest().number, 2u);
  job.Restart(0);
  job.ExpectAll(1);
}

TEST_F(SavesTest, AreMadeAnewWhereAServerIsStartedAgainInTheMiddle) {
  for (const uint32_t which : {0, 1}) {
    Job job(notes(), 2);
    job.Step();
    ASSERT_OK(job.client().Save(folder(), {}, Soon()));
    const uint64_t number = Newest().number;
    job.Step();
    int kills = 0, most_kills = 3;
    bool killed = false;  // in this attempt
    job.before_send = [&](uint32_t server, const RequestHead& head) {
      if (server != which) return;
      if (head.op == Op::kBeginSave) killed = false;
      if (head.op != Op::kSave || head.table != kB || killed ||
          kills == most_kills) {
        return;
      }
      killed = true;
      ++kills;
      job.Restart(which);
    };
    // It does not go on so for ever.
    EXPECT_THAT(job.client().Save(folder(), {}, Soon()),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("started again"),
                               HasSubstr(base::Concat("server ", which)))));
    EXPECT_EQ(kills, 3);
    EXPECT_EQ(Newest().number, number);
    most_kills = 5;
    EXPECT_OK(job.client().Save(folder(), {}, Soon()));
    EXPECT_EQ(kills, 5);
    EXPECT_GT(Newest().number, number);
    job.before_send = nullptr;
    for (uint32_t i = 0; i < 2; ++i) ASSERT_OK(base::Remove(job.NoteOf(i)));
  }
}

// Each table and each weight has the same number of steps, whatever a worker
// does while the save is written.
TEST_F(SavesTest, AreOneCutWhileTurnsGoOn) {
  Job job(notes(), 2);
  job.Step();
  std::atomic<bool> done = false;
  std::atomic<int> num_steps = 0;
  std::thread training([&] {
    while (!done) {
      auto turn = job.client().BeginTurn(Soon());
      ASSERT_OK(turn.status());
      job.Step();
      ASSERT_OK(job.client().EndTurn(*turn, Soon()));
      ++num_steps;
    }
  });
  float last = 0;
  for (int i = 0; i < 6; ++i) {
    const int before = num_steps;
    ASSERT_OK(job.client().Save(
        folder(), {.kind = i % 3 == 0 ? SaveKind::kBase : SaveKind::kDelta},
        Soon()));
    Job other(other_notes(), 3, folder());
    const float saved = other.Weights()[0];
    other.ExpectAll(saved);
    EXPECT_GE(saved, static_cast<float>(before));
    EXPECT_GE(saved, last);
    last = saved;
    for (uint32_t k = 0; k < 3; ++k) ASSERT_OK(base::Remove(other.NoteOf(k)));
  }
  done = true;
  training.join();
}

// The turn begins before the save has ended.
TEST_F(SavesTest, AreWrittenWhileTurnsGoOn) {
  Job job(notes(), 2);
  job.Step();
  int num_turns = 0;
  job.before_send = [&](uint32_t server, const RequestHead& head) {
    if (server != 0 || head.op != Op::kCommitSave || num_turns > 0) return;
    ++num_turns;
    ASSERT_OK_AND_ASSIGN(const uint64_t turn, job.client().BeginTurn(Soon()));
    job.Step();
    ASSERT_OK(job.client().EndTurn(turn, Soon()));
  };
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  EXPECT_EQ(num_turns, 1);
  job.ExpectAll(2);
  ExpectLoads(1);
}

TEST_F(SavesTest, AWorkersSaveWaitsForThatOfAnother) {
  PsServer server({.num_workers = 2});
  const auto connect = [&](int32_t worker) {
    PsClientOptions options;
    options.worker = worker;
    auto client = PsClient::Connect(
        1,
        [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
          return server.ConnectInProcess(base::Concat("worker ", worker));
        },
        options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  };
  auto first = connect(0);
  auto second = connect(1);
  table::SparseTableOptions rows;
  rows.name = "a";
  rows.dim = 2;
  rows.update.learning_rate.base = 1.0;
  ASSERT_OK(first->CreateTables({{kA, rows}}, Soon()));
  ASSERT_OK(second->Refresh(Soon()));
  const std::vector<Key> keys{1, 2};
  const std::vector<float> one(4, -1.0f);
  ASSERT_OK(first->Push(kA, keys, one, Soon()));
  ASSERT_OK_AND_ASSIGN(PsClient::BegunSave begun,
                       first->BeginSave(folder(), {}, Soon()));
  ASSERT_OK(first->Push(kA, keys, one, Soon()));
  EXPECT_THAT(second->Save(folder(), {}, Deadline::After(200ms)),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("worker 0")));
  ASSERT_OK(first->FinishSave(std::move(begun), Soon()));
  EXPECT_EQ(Newest().number, 1u);
  ASSERT_OK(second->Save(folder(), {}, Soon()));
  EXPECT_EQ(Newest().number, 2u);
  // One that nobody will end holds nobody up.
  ASSERT_OK(first->BeginSave(folder(), {}, Soon()).status());
  ASSERT_OK(first->Stop(Soon()));
  ASSERT_OK(second->Save(folder(), {}, Soon()));
}

TEST_F(SavesTest, OfWhatChangedAreRightAfterABaseThatFailed) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step({1});
  SaveInVain(job);
  job.Step({2});
  ASSERT_OK(job.client().Save(folder(), kDelta, Soon()));
  const table::SavedModel newest = Newest();
  EXPECT_EQ(newest.number, 3u);
  EXPECT_EQ(newest.saves.back().since, 1u);
  Job other(other_notes(), 1, folder());
  EXPECT_THAT(other.Rows(kA, {1, 2}), Each(2.0f));
  EXPECT_THAT(other.Rows(kA, {3, 4}), Each(1.0f));
  EXPECT_THAT(other.Weights(), Each(3.0f));
}

TEST_F(SavesTest, OfWhatChangedAreBasesWhereTheSaveBeforeIsElsewhere) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  ASSERT_OK(job.client().Save(other_folder(), kDelta, Soon()));
  ExpectLoads(2, other_folder());
  job.Step({7});
  ASSERT_OK(job.client().Save(folder(), kDelta, Soon()));
  EXPECT_EQ(Newest().saves.size(), 1u);
  Job other(other_notes(), 1, folder());
  EXPECT_THAT(other.Rows(kA, {7}), Each(3.0f));
  EXPECT_THAT(other.Rows(kA, {8}), Each(2.0f));
}

TEST_F(SavesTest, OfWhatChangedGoOnAfterALoadAndAfterARestart) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  ASSERT_OK(job.client().Load(folder(), Soon()));
  job.ExpectAll(1);
  job.Step({1});
  ASSERT_OK(job.client().Save(folder(), kDelta, Soon()));
  EXPECT_EQ(Newest().saves.size(), 2u);
  job.Restart(1);
  job.Step({1});
  ASSERT_OK(job.client().Save(folder(), kDelta, Soon()));
  EXPECT_EQ(Newest().saves.size(), 3u);
  Job other(other_notes(), 1, folder());
  EXPECT_THAT(other.Rows(kB, {1}), Each(3.0f));
  EXPECT_THAT(other.Rows(kB, {2}), Each(1.0f));
}

TEST_F(SavesTest, OfWhatChangedBecomeABaseWhenTheyAreMany) {
  Job job(notes(), 1);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  size_t longest = 0;
  bool compacted = false;
  for (int i = 0; i < 10; ++i) {
    job.Step();
    ASSERT_OK(job.client().Save(folder(), kDelta, Soon()));
    const size_t length = Newest().saves.size();
    compacted |= length < longest;
    longest = std::max(longest, length);
  }
  // Each of these deltas is as large as the base.
  EXPECT_TRUE(compacted);
  EXPECT_EQ(longest, 2u);
  ExpectLoads(11);
}

TEST_F(SavesTest, HaveNumbersFromTheFolder) {
  Job job(notes(), 1);
  job.Step();
  // As one has whose clock was ahead.
  ASSERT_OK(base::MakeFolders(folder()));
  ASSERT_OK(base::AtomicWriteFile(folder() + "/a.9000000000000.0-of-1.0.rows",
                                  "broken off"));
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  EXPECT_EQ(Newest().number, 9'000'000'000'001u);
  // The first epoch of server 0, and its first incarnation of a worker.
  const uint64_t first = (uint64_t{1} << 32) + 1;
  EXPECT_EQ(Newest().saves.back().view, first);
  EXPECT_THAT(Newest().saves.back().incarnations,
              testing::ElementsAre(testing::Pair(0, first)));
  EXPECT_THAT(Newest().saves.back().epochs, testing::ElementsAre(1));
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  ExpectLoads(2);
}

TEST_F(SavesTest, AreKeptSoThatOneMayBeDamaged) {
  Job job(notes(), 2);
  for (int i = 0; i < 4; ++i) {
    job.Step();
    ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  }
  EXPECT_FALSE(base::Exists(folder() + "/save.2.manifest"));
  EXPECT_FALSE(base::Exists(folder() + "/a.2.0-of-2.0.rows"));
  ExpectLoads(4);
  ASSERT_OK(base::Remove(folder() + "/b.4.1-of-2.0.rows"));
  ExpectLoads(3);
  // At run time, too, and of all tables.
  ASSERT_OK(job.client().Load(folder(), Soon()));
  job.ExpectAll(3);
}

TEST_F(SavesTest, ThatCannotBeLoadedLeaveTheModelAsItIs) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  // Table a can be read, b can not.
  const std::string path = folder() + "/b.1.1-of-2.1.rows";
  const std::string bytes = *base::ReadFile(path);
  std::string damaged = bytes;
  damaged[damaged.size() / 2] ^= 1;
  ASSERT_OK(base::AtomicWriteFile(path, damaged));
  EXPECT_THAT(job.client().Load(folder(), Soon()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("b.1.1-of-2.1.rows")));
  job.ExpectAll(2);
  // Now it is damaged after the first server has looked at it.
  ASSERT_OK(base::AtomicWriteFile(path, bytes));
  job.before_send = [&](uint32_t, const RequestHead& head) {
    if (head.op != Op::kLoad || head.table != kB) return;
    ASSERT_OK(base::AtomicWriteFile(path, damaged));
  };
  EXPECT_THAT(job.client().Load(folder(), Soon()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("b.1.1-of-2.1.rows")));
  job.before_send = nullptr;
  job.ExpectAll(2);
  ASSERT_OK(base::AtomicWriteFile(path, bytes));
  ASSERT_OK(job.client().Load(folder(), Soon()));
  job.ExpectAll(1);
}

TEST_F(SavesTest, AreNotHalfLoadedWhereAServerIsStartedAgain) {
  Job job(notes(), 2);
  job.Step();
  ASSERT_OK(job.client().Save(folder(), {}, Soon()));
  job.Step();
  ASSERT_OK(job.client().Save(other_folder(), {}, Soon()));
  bool killed = false;
  job.before_send = [&](uint32_t server, const RequestHead& head) {
    if (server != 1 || head.op != Op::kLoad || head.table != kW || killed) {
      return;
    }
    killed = true;
    job.Restart(1);
  };
  EXPECT_THAT(
      job.client().Load(folder(), Soon()),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("started again")));
  job.before_send = nullptr;
  job.ExpectAll(2);
}

}  // namespace
}  // namespace fleet::ps
