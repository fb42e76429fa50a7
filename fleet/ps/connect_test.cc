// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/connect.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/in_process.h"
#include "fleet/testing/deadlines.h"

namespace fleet::ps {
namespace {

using testing::HasSubstr;
using testing::Soon;

// What a worker is told when a server answers with a head that speaks of so
// many bytes in a message of their own.
Status AskOneThatPromises(uint64_t byte_size) {
  auto [worker, server] = channel::MakeInProcessPair();
  std::thread serves([&server = server, byte_size] {
    EXPECT_OK(server->RecvMessage(1000, Soon()));
    ReplyHead head;
    head.flags = kReplyApart;
    head.count = byte_size;
    EXPECT_OK(server->Send(std::as_bytes(std::span(&head, 1)), Soon()));
  });
  const Status asked = Ask(*worker, RequestHead(), "", Soon()).status();
  serves.join();
  return asked;
}

TEST(Ask, BelievesNoSizeThatTakesAllMemory) {
  for (const uint64_t size : {kMaxAnswerByteSize + 1, ~uint64_t{0}}) {
    EXPECT_THAT(AskOneThatPromises(size),
                StatusIs(StatusCode::kDataLoss,
                         HasSubstr(std::to_string(size) + " bytes")));
  }
}

TEST(Ask, CanBeStoppedByAPerson) {
  auto [worker, server] = channel::MakeInProcessPair();
  const base::InterruptCheck stop = [] {
    return FailedPrecondition("stopped by a test");
  };
  EXPECT_THAT(Ask(*worker, RequestHead(), "", Soon(), stop),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("stopped by a test")));
}

}  // namespace
}  // namespace fleet::ps
