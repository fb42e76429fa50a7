// SPDX-License-Identifier: Apache-2.0

// How a server process begins, watches and ends.

#include <string>
#include <thread>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/channel/message.h"
#include "fleet/testing/request_faults.h"
#include "fleet/testing/serving_fixtures.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
    ASSERT_OK(SayHello(*by_hand_, 0));
    RequestHead head;
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
  ASSERT_OK(SayHello(*silent, 1, kLifeLane));
  RequestHead head;
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
