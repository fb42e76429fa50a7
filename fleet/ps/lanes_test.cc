// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/lanes.h"

#include <atomic>
#include <memory>
#include <utility>

#include "fleet/testing/ps_fixtures.h"

namespace fleet::ps {
namespace {

// A channel on which an answer comes just after a wait for it was over, and the
// server ends right then.
class LateByAMoment final : public channel::Channel {
 public:
  LateByAMoment(std::unique_ptr<Channel> under, PsServer& server,
                std::atomic<bool>& is_late)
      : Channel(under->peer()),
        under_(std::move(under)),
        server_(server),
        is_late_(is_late) {}

  Status SendParts(std::span<const channel::ConstBytes> parts,
                   Deadline deadline) override {
    return under_->SendParts(parts, deadline);
  }
  Result<uint64_t> NextSize(Deadline deadline) override {
    if (deadline.expired() || !is_late_.exchange(false)) {
      return under_->NextSize(deadline);
    }
    RETURN_IF_ERROR(under_->NextSize(Soon()).status());
    server_.Abort(Unavailable("the server ends"));
    return DeadlineExceeded("no message in time");
  }
  Status Recv(channel::MutableBytes into, Deadline deadline) override {
    return under_->Recv(into, deadline);
  }
  void Abort(Status why) override { under_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<Channel> under_;
  PsServer& server_;
  std::atomic<bool>& is_late_;
};

// A server ends with the answer to the last good-bye. A worker that does not
// take it asks the one that is started in its place, which has no log any more.
TEST(Lanes, TakeTheAnswerWithWhichAServerEnds) {
  Cluster cluster(Way::kInProcess, 1, 1);
  PsServer& server = cluster.server(0);
  std::atomic<bool> is_late = false;
  auto client = PsClient::Connect(
      1,
      [&](uint32_t, Deadline) -> Result<std::unique_ptr<channel::Channel>> {
        return std::make_unique<LateByAMoment>(
            server.ConnectInProcess("worker 0"), server, is_late);
      },
      {}, Soon());
  ASSERT_OK(client);
  is_late = true;
  EXPECT_OK((*client)->Stop(Soon()));
  EXPECT_FALSE(is_late);
}

}  // namespace
}  // namespace fleet::ps
