// SPDX-License-Identifier: Apache-2.0

// One server and several clients, each a process on this host: what all clients
// together get through, alone and eight at a time. Rows of 16 with SGD; the
// server makes its tables as it does for a job.
//
//   clients [TURNS]
//
// prints a line for each kind of call: its name, millions of keys a second of
// one client and of all, and the second by the first. The best of TURNS, which
// are of one client and of all in turns.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "fleet/base/cores.h"
#include "fleet/ps/client.h"
#include "fleet/ps/server.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/benchmark_keys.h"

namespace {

using fleet::base::Deadline;
using fleet::ps::PsClient;
using fleet::ps::TableId;
using fleet::table::Key;
using fleet::table::Requests;
using Clock = std::chrono::steady_clock;

constexpr int kNumClients = 8;
constexpr size_t kDim = 16;
constexpr uint64_t kNumRows = 2'000'000;
constexpr size_t kRequest = 100'000;
constexpr auto kTime = std::chrono::milliseconds(700);

enum class Call { kPullUniform, kPushUniform, kPullZipf, kPushZipf, kPullFew };
constexpr const char* kNames[] = {
    "pull_uniform", "push_uniform", "pull_zipf", "push_zipf", "pull_26_keys",
};

void Check(const fleet::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

Deadline Soon() { return Deadline::After(std::chrono::minutes(10)); }

// A process and the two ends of its pipes that are ours.
struct Child {
  pid_t pid = 0;
  int to = -1;
  int from = -1;
};

template <typename T>
void Send(int fd, const T& value) {
  if (write(fd, &value, sizeof(value)) != sizeof(value)) std::exit(1);
}

// False when the other side is gone.
template <typename T>
bool Receive(int fd, T& value) {
  return read(fd, &value, sizeof(value)) == sizeof(value);
}

template <typename Work>
Child Start(const Work& work) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) std::exit(1);
  const pid_t pid = fork();
  if (pid == 0) {
    close(to[1]);
    close(from[0]);
    work(to[0], from[1]);
    _exit(0);
  }
  close(to[0]);
  close(from[1]);
  return {pid, to[1], from[0]};
}

// Tells its port, ends when it is killed.
void RunServer(int, int out) {
  fleet::ps::PsServerOptions options;
  options.num_workers = kNumClients;
  options.processes_on_host = kNumClients + 1;
  fleet::ps::PsServer server(options);
  fleet::table::SparseTableOptions table;
  table.name = "emb";
  table.dim = kDim;
  table.initializer = fleet::table::UniformInit{-0.1f, 0.1f};
  Check(server.Create({TableId{0}, table}));
  fleet::channel::Address any;
  any.host = "127.0.0.1";
  Check(server.Listen(any));
  Send(out, server.address().port);
  (void)server.WaitUntilStopped(Deadline::Infinite());
}

class Client {
 public:
  Client(int index, uint16_t port, const Requests& uniform,
         const Requests& zipf)
      : uniform_(uniform), zipf_(zipf), next_(static_cast<size_t>(index) * 7) {
    fleet::channel::Address address;
    address.host = "127.0.0.1";
    address.port = port;
    fleet::ps::PsClientOptions options;
    options.worker = index;
    auto connected = PsClient::Connect({address}, options, Soon());
    Check(connected.status());
    client_ = std::move(connected).value();
  }

  void Fill() {
    std::vector<Key> keys(kRequest);
    for (uint64_t begin = 0; begin < kNumRows; begin += kRequest) {
      for (uint64_t i = 0; i < kRequest; ++i) keys[i] = begin + i;
      Check(client_->Pull(TableId{0}, keys, rows_, {}, Soon()));
    }
  }

  // Keys a second.
  double Run(Call call) {
    uint64_t num_keys = 0;
    const auto begin = Clock::now();
    auto now = begin;
    for (; now - begin < kTime; now = Clock::now()) num_keys += RunOnce(call);
    return static_cast<double>(num_keys) /
           std::chrono::duration<double>(now - begin).count();
  }

 private:
  size_t RunOnce(Call call) {
    const bool zipf = call == Call::kPullZipf || call == Call::kPushZipf;
    const Requests& requests = zipf ? zipf_ : uniform_;
    std::span<const Key> keys = requests[next_++ % requests.size()];
    if (call == Call::kPushUniform || call == Call::kPushZipf) {
      Check(client_->Push(TableId{0}, keys, gradients_, Soon(), 1));
      return keys.size();
    }
    if (call == Call::kPullFew) keys = keys.subspan(next_ * 26 % 90'000, 26);
    const std::span<float> rows = std::span(rows_).first(keys.size() * kDim);
    Check(client_->Pull(TableId{0}, keys, rows, {}, Soon()));
    return keys.size();
  }

  const Requests& uniform_;
  const Requests& zipf_;
  std::unique_ptr<PsClient> client_;
  std::vector<float> rows_ = std::vector<float>(kRequest * kDim);
  std::vector<float> gradients_ = std::vector<float>(kRequest * kDim, 1e-6f);
  size_t next_;
};

}  // namespace

int main(int argc, char** argv) {
  const int num_turns = argc > 1 ? std::atoi(argv[1]) : 3;
  const Child server = Start(RunServer);
  uint16_t port = 0;
  if (!Receive(server.from, port)) return 1;
  const Requests uniform =
      fleet::table::UniformRequests(20, kRequest, kNumRows);
  const Requests zipf = fleet::table::ZipfRequests(20, kRequest, kNumRows);
  std::vector<Child> clients;
  for (int i = 0; i < kNumClients; ++i) {
    clients.push_back(Start([&](int in, int out) {
      Client client(i, port, uniform, zipf);
      if (i == 0) client.Fill();
      Send(out, 0.0);
      for (Call call; Receive(in, call);) Send(out, client.Run(call));
    }));
    double ready = 0;
    if (!Receive(clients.back().from, ready)) return 1;
  }
  std::printf("cores %d shards %u\n", fleet::base::NumCores(),
              fleet::table::ShardsOnCores(fleet::base::NumCores()));
  auto together = [&](Call call, size_t num_clients) {
    for (size_t i = 0; i < num_clients; ++i) Send(clients[i].to, call);
    double all = 0;
    for (size_t i = 0; i < num_clients; ++i) {
      double speed = 0;
      if (!Receive(clients[i].from, speed)) std::exit(1);
      all += speed;
    }
    return all / 1e6;
  };
  for (int kind = 0; kind < 5; ++kind) {
    double one = 0, all = 0;
    for (int turn = 0; turn < num_turns; ++turn) {
      one = std::max(one, together(static_cast<Call>(kind), 1));
      all = std::max(all, together(static_cast<Call>(kind), kNumClients));
    }
    std::printf("%s %.2f %.2f %.2f\n", kNames[kind], one, all, all / one);
    std::fflush(stdout);
  }
  for (const Child& client : clients) close(client.to);
  for (const Child& client : clients) waitpid(client.pid, nullptr, 0);
  kill(server.pid, SIGKILL);
  waitpid(server.pid, nullptr, 0);
  return 0;
}
