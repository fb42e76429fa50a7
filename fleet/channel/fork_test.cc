// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/fork.h"

#include <csignal>
#include <functional>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/meet.h"
#include "fleet/testing/channel_fixtures.h"

namespace fleet::channel {
namespace {

// A child of this process, which is ended with the object.
class Child {
 public:
  // `body` runs in the child, whose exit code is what it returns.
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
    EXPECT_GT(pid_, 0);
  }
  ~Child() {
    if (pid_ > 0) Kill();
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  int Wait() {
    int state = 0;
    EXPECT_EQ(waitpid(pid_, &state, 0), pid_);
    pid_ = 0;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }

 private:
  pid_t pid_;
};

class ForkedChild : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Listener> Bind() {
    const std::string name = GetParam();
    const std::string address =
        name == "local" ? "@fleet-fork-test-" + std::to_string(getpid())
                        : "127.0.0.1:0";
    return std::move(
        Listener::Bind(Address::Parse(address).value(), {}).value());
  }
};

// The grandchild lives and holds what it inherited; the death of the child is
// seen all the same.
TEST_P(ForkedChild, DoesNotHideTheDeathOfItsParent) {
  const std::unique_ptr<Listener> listener = Bind();
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  Child rank([&] {
    auto connection = Connect(listener->address(), {}, Soon());
    if (!connection.ok()) return 1;
    if (fork() == 0) {
      // Ends when the test does: the pipe's other end is closed then.
      close(pipes[1]);
      char byte;
      (void)!read(pipes[0], &byte, 1);
      _exit(0);
    }
    if (!connection->channel->Send(Text("forked"), Soon()).ok()) return 2;
    (void)connection->channel->NextSize(Soon());
    return 0;
  });
  ASSERT_OK_AND_ASSIGN(Connection connection, listener->Accept(Soon()));
  ASSERT_OK(connection.channel->RecvMessage(kAnySize, Soon()));
  rank.Kill();
  EXPECT_THAT(connection.channel->NextSize(Soon()),
              HasCode(StatusCode::kUnavailable));
  close(pipes[0]);
  close(pipes[1]);
}

// It cannot use the channel, and its copy ends without touching the real one.
TEST_P(ForkedChild, LeavesItsParentsChannelAlone) {
  const std::unique_ptr<Listener> listener = Bind();
  Child rank([&] {
    auto connection = Connect(listener->address(), {}, Soon());
    if (!connection.ok()) return 1;
    Child worker([&] {
      const Status sent = connection->channel->Send(Text("child"), Soon());
      connection->channel->Close();
      connection->channel.reset();
      return sent.code() == StatusCode::kFailedPrecondition ? 0 : 1;
    });
    if (worker.Wait() != 0) return 2;
    return connection->channel->Send(Text("parent"), Soon()).ok() ? 0 : 3;
  });
  ASSERT_OK_AND_ASSIGN(Connection connection, listener->Accept(Soon()));
  ASSERT_OK_AND_ASSIGN(const Message message,
                       connection.channel->RecvMessage(kAnySize, Soon()));
  EXPECT_EQ(message, Text("parent"));
  EXPECT_EQ(rank.Wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, ForkedChild, testing::Values("tcp", "local"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fleet::channel
