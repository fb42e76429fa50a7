// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/lifeline.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/base/status_matchers.h"
#include "fleet/channel/in_process.h"
#include "fleet/testing/deadlines.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Soon;

// One end of a pair is a lifeline, the other a channel that the test reads or
// does not read.
class LifelineTest : public testing::Test {
 protected:
  void Begin(LifelineOptions options) {
    // Beats would come between the messages of a test.
    options.heartbeat_interval = std::chrono::hours(1);
    options.heartbeat_patience = std::chrono::hours(1);
    auto [own, peer] =
        channel::MakeInProcessPair({.first_name = "worker 0",
                                    .second_name = "worker 1 at 10.0.0.7:9000",
                                    .capacity = 1000});
    peer_ = std::move(peer);
    link_ = std::make_unique<Lifeline>(
        std::move(own), options,
        LifelineCallbacks{[](std::string_view) {},
                          [this](const Status& why) { end_.set_value(why); }});
  }
  // What the link said at its end.
  Status End() {
    auto end = end_.get_future();
    if (end.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      return Internal("it did not end");
    }
    return end.get();
  }

  std::promise<Status> end_;
  std::unique_ptr<channel::Channel> peer_;
  std::unique_ptr<Lifeline> link_;
};

TEST_F(LifelineTest, AMessageArrives) {
  Begin({});
  link_->Send("hello");
  EXPECT_TRUE(link_->Flush(Soon()));
  ASSERT_OK_AND_ASSIGN(const auto got, peer_->RecvMessage(1000, Soon()));
  EXPECT_EQ(base::TextOf(got), "hello");
}

TEST_F(LifelineTest, APeerThatTakesNothingEndsItBeforeMemoryDoes) {
  Begin({.max_unsent_byte_size = 10'000});
  for (int i = 0; i < 20; ++i) link_->Send(std::string(900, 'x'));
  EXPECT_THAT(End(), StatusIs(StatusCode::kDeadlineExceeded,
                              AllOf(HasSubstr("worker 1 at 10.0.0.7:9000"),
                                    HasSubstr("does not take"),
                                    HasSubstr("of at most 10000"))));
  link_->Send("dropped");
  EXPECT_FALSE(link_->Flush(Soon()));
}

TEST_F(LifelineTest, WhatThePeerTakesDoesNotCount) {
  Begin({.max_unsent_byte_size = 2000});
  for (int i = 0; i < 50; ++i) {
    link_->Send(std::string(900, 'x'));
    ASSERT_OK(peer_->RecvMessage(1000, Soon()));
  }
  EXPECT_TRUE(link_->Flush(Soon()));
}

}  // namespace
}  // namespace fleet::cluster
