// SPDX-License-Identifier: Apache-2.0

// Who a server lets in, and what it makes of requests that no client sends.

#include "fleet/ps/server.h"

#include <atomic>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "fleet/channel/message.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

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
