// SPDX-License-Identifier: Apache-2.0

// What safety costs. One line of the output is "name value":
//
//   allreduce BYTES [NAMESPACE ADDRESS NAMESPACE ADDRESS]
//       microseconds of a blocking all-reduce of two ranks over TCP, plain and
//       encrypted in turns, on loopback or between two network namespaces
//   push
//       millions of keys a second that a worker pushes over TCP on loopback,
//       plain and encrypted in turns
//   strangers
//       milliseconds of a member's hello, alone and right after a thousand
//       strangers have connected that say nothing: the longest of several

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <limits>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "fleet/channel/meet.h"
#include "fleet/comm/tcp.h"
#include "fleet/ps/client.h"
#include "fleet/ps/server.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/benchmark_keys.h"
#include "fleet/testing/forked_ranks.h"

namespace {

using fleet::base::Deadline;
using fleet::channel::Encryption;
using fleet::channel::Trust;
using Clock = std::chrono::steady_clock;

constexpr std::array<const char*, 2> kNames = {"plain", "tls"};

Trust TrustOf(size_t kind) {
  return {"a secret of the benchmark",
          kind == 0 ? Encryption::kOff : Encryption::kAlways};
}

void Check(const fleet::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

Deadline Soon() { return Deadline::After(std::chrono::minutes(5)); }

double Seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void EnterNamespace(const std::string& name) {
  const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && setns(fd, CLONE_NEWNET) == 0) return;
  std::perror(name.c_str());
  std::exit(1);
}

// ---- all-reduce
double BestTime(fleet::comm::Communicator& comm, size_t byte_size) {
  std::vector<float> data(byte_size / sizeof(float));
  const int calls =
      static_cast<int>(std::clamp<size_t>((32 << 20) / byte_size, 2, 200));
  Check(comm.Barrier(Soon()));
  return Seconds([&] {
           for (int i = 0; i < calls; ++i) {
             Check(comm.AllReduce(
                 {reinterpret_cast<std::byte*>(data.data()), data.size(),
                  fleet::comm::DataType::kFloat32, nullptr},
                 fleet::comm::ReduceOp::kSum, Soon()));
           }
         }) *
         1e6 / calls;
}

void AllReduce(int argc, char** argv) {
  fleet::comm::ForkedStore store;  // made before the fork
  const size_t byte_size = std::strtoull(argv[2], nullptr, 10);
  const pid_t child = fork();
  const int rank = child > 0 ? 0 : 1;
  std::string host = "127.0.0.1";
  if (argc == 7) {
    EnterNamespace(argv[3 + 2 * rank]);
    host = argv[4 + 2 * rank];
  }
  std::array<std::unique_ptr<fleet::comm::Communicator>, 2> comms;
  for (size_t kind = 0; kind < 2; ++kind) {
    auto comm = fleet::comm::ConnectTcp({.store = &store,
                                         .prefix = kNames[kind],
                                         .rank = rank,
                                         .size = 2,
                                         .host = host,
                                         .trust = TrustOf(kind)},
                                        {}, Soon());
    Check(comm.status());
    comms[kind] = std::move(*comm);
  }
  std::array<double, 2> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int turn = 0; turn < 12; ++turn) {
    for (size_t kind = 0; kind < 2; ++kind) {
      best[kind] = std::min(best[kind], BestTime(*comms[kind], byte_size));
    }
  }
  for (auto& comm : comms) comm.reset();
  if (rank == 1) _exit(0);
  waitpid(child, nullptr, 0);
  for (size_t kind = 0; kind < 2; ++kind) {
    std::printf("%s %.2f\n", kNames[kind], best[kind]);
  }
}

// ---- pushes
constexpr size_t kDim = 16;
constexpr size_t kRequest = 100'000;
constexpr uint64_t kRows = 1'000'000;
constexpr fleet::ps::TableId kTable{0};

// The process of the servers, one for each kind: tells their ports.
void Serve(int out) {
  std::array<std::unique_ptr<fleet::ps::PsServer>, 2> servers;
  for (size_t kind = 0; kind < 2; ++kind) {
    fleet::ps::PsServerOptions options;
    options.trust = TrustOf(kind);
    servers[kind] = std::make_unique<fleet::ps::PsServer>(options);
    fleet::table::SparseTableOptions table;
    table.name = "emb";
    table.dim = kDim;
    auto made = fleet::table::SparseTable::Make(table);
    Check(made.status());
    Check(servers[kind]->AddSparse(kTable, std::move(*made)));
    fleet::channel::Address any;
    any.host = "127.0.0.1";
    Check(servers[kind]->Listen(any));
    const uint16_t port = servers[kind]->address().port;
    if (write(out, &port, sizeof(port)) != sizeof(port)) std::exit(1);
  }
  for (auto& server : servers) {
    (void)server->WaitUntilStopped(Deadline::Infinite());
  }
}

void Push() {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    Serve(ends[1]);
    _exit(0);
  }
  const auto requests = fleet::table::ZipfRequests(8, kRequest, kRows);
  const std::vector<float> gradients(kRequest * kDim, 1e-6f);
  std::array<std::unique_ptr<fleet::ps::PsClient>, 2> clients;
  for (size_t kind = 0; kind < 2; ++kind) {
    fleet::channel::Address address;
    address.host = "127.0.0.1";
    if (read(ends[0], &address.port, sizeof(address.port)) !=
        sizeof(address.port)) {
      std::exit(1);
    }
    fleet::ps::PsClientOptions options;
    options.shared_memory = false;
    options.trust = TrustOf(kind);
    auto client = fleet::ps::PsClient::Connect({address}, options, Soon());
    Check(client.status());
    clients[kind] = std::move(*client);
  }
  std::array<double, 2> best{};
  for (int turn = 0; turn < 16; ++turn) {
    for (size_t kind = 0; kind < 2; ++kind) {
      const double seconds = Seconds([&] {
        for (const auto& keys : requests) {
          Check(clients[kind]->Push(kTable, keys, gradients, Soon()));
        }
      });
      const double keys = static_cast<double>(requests.size() * kRequest);
      best[kind] = std::max(best[kind], keys / seconds / 1e6);
    }
  }
  for (auto& client : clients) client.reset();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (size_t kind = 0; kind < 2; ++kind) {
    std::printf("%s %.2f\n", kNames[kind], best[kind]);
  }
}

// ---- strangers
constexpr int kStrangers = 1000;

// Serves members until it is killed; tells its port.
void Welcome(int out) {
  fleet::channel::MeetOptions options;
  options.trust = TrustOf(0);
  fleet::channel::Address any;
  any.host = "127.0.0.1";
  auto listener = fleet::channel::Listener::Bind(any, options);
  Check(listener.status());
  const uint16_t port = (*listener)->address().port;
  if (write(out, &port, sizeof(port)) != sizeof(port)) std::exit(1);
  while (true) Check((*listener)->Accept(Deadline::Infinite()).status());
}

void Strangers() {
  rlimit limit{};
  (void)getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4 * kStrangers);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    Welcome(ends[1]);
    _exit(0);
  }
  fleet::channel::Address address;
  address.host = "127.0.0.1";
  if (read(ends[0], &address.port, sizeof(address.port)) !=
      sizeof(address.port)) {
    std::exit(1);
  }
  const auto to = Resolve(address).value().front();
  fleet::channel::MeetOptions member;
  member.trust = TrustOf(0);
  auto hello = [&] {
    return 1e3 * Seconds([&] {
             Check(fleet::channel::Connect(address, member, Soon()).status());
           });
  };
  double alone = 0;
  double among = 0;
  for (int round = 0; round < 10; ++round) {
    alone = std::max(alone, hello());
    std::vector<fleet::base::Descriptor> strangers;
    for (int i = 0; i < kStrangers; ++i) {
      strangers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(strangers.back().get(), to.get(), to.byte_size) != 0) {
        std::perror("a stranger");
        std::exit(1);
      }
    }
    among = std::max(among, hello());
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("alone %.3f\nstrangers %.3f\n", alone, among);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "allreduce") {
    AllReduce(argc, argv);
  } else if (what == "push") {
    Push();
  } else if (what == "strangers") {
    Strangers();
  }
  return 0;
}
