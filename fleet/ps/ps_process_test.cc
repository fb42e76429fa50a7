// SPDX-License-Identifier: Apache-2.0

// Servers and workers that are real processes, and are killed. This process
// forks before it has a thread of its own.

#include <csignal>
#include <functional>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "fleet/testing/ps_fixtures.h"

namespace fleet::ps {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// A process that runs `body`, with a pipe in each direction.
class Process final {
 public:
  explicit Process(const std::function<int(int in, int out)>& body) {
    int to_child[2];
    int from_child[2];
    if (pipe(to_child) != 0 || pipe(from_child) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(to_child[1]);
      close(from_child[0]);
      _exit(body(to_child[0], from_child[1]));
    }
    close(to_child[0]);
    close(from_child[1]);
    to_ = to_child[1];
    from_ = from_child[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    Kill();
    close(to_);
    close(from_);
  }

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int Wait() {
    int status = 0;
    (void)waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  template <typename T>
  T Read() {
    T value{};
    EXPECT_EQ(read(from_, &value, sizeof(value)),
              static_cast<ssize_t>(sizeof(value)));
    return value;
  }
  template <typename T>
  void Write(const T& value) {
    EXPECT_EQ(write(to_, &value, sizeof(value)),
              static_cast<ssize_t>(sizeof(value)));
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
};

// A server that tells its port and serves until its workers stopped. Exit 0
// then, 3 when a worker was lost.
int RunServer(uint32_t rank, uint32_t num_servers, int num_workers,
              uint16_t port, int out) {
  PsServerOptions options;
  options.rank = static_cast<int32_t>(rank);
  options.num_servers = num_servers;
  options.num_workers = num_workers;
  options.worker_grace = 1s;
  PsServer server(options);
  AddTables(server, rank, num_servers);
  channel::Address address;
  address.host = "127.0.0.1";
  address.port = port;
  // A port of a process that was killed may need a moment.
  Status listening;
  for (int i = 0; i < 100; ++i) {
    listening = server.Listen(address);
    if (listening.ok()) break;
    usleep(20'000);
  }
  if (!listening.ok()) return 4;
  const uint16_t bound = server.address().port;
  if (write(out, &bound, sizeof(bound)) != sizeof(bound)) return 5;
  const Status stopped = server.WaitUntilStopped(Soon());
  if (stopped.ok()) return 0;
  return stopped.code() == StatusCode::kUnavailable ? 3 : 6;
}

channel::Address At(uint16_t port) {
  channel::Address address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

TEST(PsProcesses, EndWhenTheLastWorkerHasStopped) {
  Process server([](int, int out) { return RunServer(0, 1, 2, 0, out); });
  const uint16_t port = server.Read<uint16_t>();
  auto worker = [port](int rank) {
    return [port, rank](int, int) {
      PsClientOptions options;
      options.worker = rank;
      auto client = PsClient::Connect({At(port)}, options, Soon());
      if (!client.ok()) return 1;
      const std::vector<Key> keys{1, 2, 3};
      for (int i = 0; i < 10; ++i) {
        if (!(*client)
                 ->Push(kEmb, keys, std::vector<float>(12, 1.0f), Soon())
                 .ok()) {
          return 2;
        }
      }
      if (!(*client)->Barrier("end", Soon()).ok()) return 3;
      std::vector<float> rows(12);
      if (!(*client)->Pull(kEmb, keys, rows, {}, Soon()).ok()) return 4;
      if (rows[0] != 1.0f - 0.5f * 20) return 5;
      return (*client)->Stop(Soon()).ok() ? 0 : 6;
    };
  };
  Process first(worker(0));
  Process second(worker(1));
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(PsProcesses, NoticeAKilledServer) {
  Process one([](int, int out) { return RunServer(0, 2, 1, 0, out); });
  Process two([](int, int out) { return RunServer(1, 2, 1, 0, out); });
  const std::vector<channel::Address> addresses = {At(one.Read<uint16_t>()),
                                                   At(two.Read<uint16_t>())};
  auto client = PsClient::Connect(addresses, {}, Soon());
  ASSERT_OK(client);
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> rows(4000);
  ASSERT_OK((*client)->Pull(kEmb, keys, rows, {}, Soon()));
  two.Kill();
  EXPECT_THAT((*client)->Pull(kEmb, keys, rows, {}, Soon()),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("pull emb (1000 keys)"),
                             HasSubstr("server 1"))));
}

TEST(PsProcesses, GoOnWhenAKilledServerIsBack) {
  uint16_t port = 0;
  PsClientOptions options;
  options.reconnect_for = 30s;
  options.on_data_loss = OnDataLoss::kGoOn;
  std::unique_ptr<PsClient> client;
  std::vector<Key> keys(20'000);
  std::iota(keys.begin(), keys.end(), 0);
  // Both are forked before this process has threads; the second waits.
  Process second([&](int in, int out) {
    uint16_t at = 0;
    if (read(in, &at, sizeof(at)) != sizeof(at)) return 9;
    return RunServer(0, 1, 1, at, out);
  });
  Process first([](int, int out) { return RunServer(0, 1, 1, 0, out); });
  port = first.Read<uint16_t>();
  auto connected = PsClient::Connect({At(port)}, options, Soon());
  ASSERT_OK(connected);
  client = std::move(connected).value();
  ASSERT_OK(client->Push(kEmb, keys, std::vector<float>(keys.size() * 4, 1.0f),
                         Soon()));
  first.Kill();
  second.Write(port);
  // It begins anew: what was not saved is gone, and counted.
  ASSERT_OK(client->Push(kEmb, keys, std::vector<float>(keys.size() * 4, 2.0f),
                         Soon()));
  EXPECT_GT(client->num_lost_updates(), 0u);
  std::vector<float> rows(keys.size() * 4);
  ASSERT_OK(client->Pull(kEmb, keys, rows, {}, Soon()));
  EXPECT_THAT(rows, Each(0.0f));
  ASSERT_OK(client->Stop(Soon()));
  EXPECT_EQ(second.Wait(), 0);
}

TEST(PsProcesses, NoticeAKilledWorker) {
  Process server([](int, int out) { return RunServer(0, 1, 2, 0, out); });
  Process worker([](int in, int out) {
    uint16_t port = 0;
    if (read(in, &port, sizeof(port)) != sizeof(port)) return 1;
    PsClientOptions options;
    options.worker = 1;
    auto client = PsClient::Connect({At(port)}, options, Soon());
    const char here = client.ok() ? 1 : 0;
    if (write(out, &here, 1) != 1) return 2;
    pause();
    return 0;
  });
  const uint16_t port = server.Read<uint16_t>();
  worker.Write(port);
  ASSERT_EQ(worker.Read<char>(), 1);
  auto client = PsClient::Connect({At(port)}, {}, Soon());
  ASSERT_OK(client);
  worker.Kill();
  EXPECT_THAT((*client)->FinishStep({}, {}, Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_EQ(server.Wait(), 3);
}

}  // namespace
}  // namespace fleet::ps
