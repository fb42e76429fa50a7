// SPDX-License-Identifier: Apache-2.0

// Clients whose connections are cut, hang, or lead to another server.

#include "fleet/ps/client.h"

#include <atomic>
#include <latch>
#include <numeric>
#include <thread>

#include "fleet/testing/ps_fixtures.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

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
  // A beat may have asked, too.
  EXPECT_LE(num_opened, 2);
}

// While one server hangs in its hello, calls to the others go on.
TEST(PsClient, AServerThatHangsHoldsUpNoCallToOthers) {
  Cluster cluster(Way::kInProcess, 2, 1);
  Cluster again(Way::kInProcess, 2, 1);
  std::atomic<bool> hangs = false;
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
        hangs = true;
        hangs.notify_all();
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
  hangs.wait(false);
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

}  // namespace
}  // namespace fleet::ps
