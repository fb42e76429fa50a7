// SPDX-License-Identifier: Apache-2.0

// One worker and one server, two processes on this host: keys a second, with
// rows of 16 and SGD, beside the table alone in this process.

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <benchmark/benchmark.h>

#include "fleet/base/check.h"
#include "fleet/ps/client.h"
#include "fleet/ps/server.h"
#include "fleet/testing/benchmark_keys.h"

namespace fleet::ps {
namespace {

constexpr size_t kDim = 16;
constexpr size_t kRequest = 100'000;
constexpr TableId kZipf{0};
constexpr TableId kUniform{1};
constexpr uint64_t kZipfRows = 1'000'000;
constexpr uint64_t kUniformRows = 10'000'000;

Deadline Soon() { return Deadline::After(std::chrono::minutes(10)); }

std::unique_ptr<table::SparseTable> MakeTable(const std::string& name) {
  table::SparseTableOptions options;
  options.name = name;
  options.dim = kDim;
  options.initializer = table::UniformInit{-0.1f, 0.1f};
  auto table = table::SparseTable::Make(options);
  FLEET_CHECK(table.ok());
  return std::move(table).value();
}

// The server's process: tells its port, ends with its worker.
void RunServer(int out) {
  PsServerOptions options;
  options.processes_on_host = 2;
  PsServer server(options);
  FLEET_CHECK(server.AddSparse(kZipf, MakeTable("zipf")).ok());
  FLEET_CHECK(server.AddSparse(kUniform, MakeTable("uniform")).ok());
  channel::Address any;
  any.host = "127.0.0.1";
  FLEET_CHECK(server.Listen(any).ok());
  const uint16_t port = server.address().port;
  FLEET_CHECK_EQ(write(out, &port, sizeof(port)), ssize_t{sizeof(port)});
  (void)server.WaitUntilStopped(Deadline::Infinite());
}

uint16_t server_port = 0;

PsClient& Client(bool shared_memory) {
  static std::unique_ptr<PsClient> clients[2];
  std::unique_ptr<PsClient>& client = clients[shared_memory ? 1 : 0];
  if (client == nullptr) {
    channel::Address address;
    address.host = "127.0.0.1";
    address.port = server_port;
    PsClientOptions options;
    options.shared_memory = shared_memory;
    auto connected = PsClient::Connect({address}, options, Soon());
    FLEET_CHECK(connected.ok(), connected.status());
    client = std::move(connected).value();
  }
  return *client;
}

void Fill(TableId table, uint64_t num_rows) {
  std::vector<Key> keys(kRequest);
  std::vector<float> rows(kRequest * kDim);
  for (uint64_t begin = 0; begin < num_rows; begin += kRequest) {
    for (uint64_t i = 0; i < kRequest; ++i) keys[i] = begin + i;
    FLEET_CHECK(Client(true).Pull(table, keys, rows, {}, Soon()).ok());
  }
}

const table::Requests& RequestsTo(TableId table) {
  static const auto* zipf = [] {
    Fill(kZipf, kZipfRows);
    return new table::Requests(table::ZipfRequests(20, kRequest, kZipfRows));
  }();
  if (table == kZipf) return *zipf;
  static const auto* uniform = [] {
    Fill(kUniform, kUniformRows);
    return new table::Requests(
        table::UniformRequests(20, kRequest, kUniformRows));
  }();
  return *uniform;
}

void Pull(benchmark::State& state, TableId table, bool shared_memory) {
  const auto& requests = RequestsTo(table);
  PsClient& client = Client(shared_memory);
  std::vector<float> rows(kRequest * kDim);
  size_t i = 0;
  for (auto _ : state) {
    FLEET_CHECK(
        client.Pull(table, requests[i++ % requests.size()], rows, {}, Soon())
            .ok());
  }
  state.SetItemsProcessed(static_cast<int64_t>(i * kRequest));
}

void Push(benchmark::State& state, TableId table, bool shared_memory) {
  const auto& requests = RequestsTo(table);
  PsClient& client = Client(shared_memory);
  const std::vector<float> gradients(kRequest * kDim, 1e-6f);
  size_t i = 0;
  for (auto _ : state) {
    FLEET_CHECK(
        client.Push(table, requests[i++ % requests.size()], gradients, Soon())
            .ok());
  }
  state.SetItemsProcessed(static_cast<int64_t>(i * kRequest));
}

void PullOne(benchmark::State& state, bool shared_memory) {
  PsClient& client = Client(shared_memory);
  const std::vector<Key> key{7};
  std::vector<float> row(kDim);
  for (auto _ : state) {
    FLEET_CHECK(client.Pull(kZipf, key, row, {}, Soon()).ok());
  }
}

#define FLEET_PS_BENCHMARK(name, ...) \
  BENCHMARK_CAPTURE(name, __VA_ARGS__)->UseRealTime()
FLEET_PS_BENCHMARK(PullOne, SharedMemory, true);
FLEET_PS_BENCHMARK(PullOne, Tcp, false);
FLEET_PS_BENCHMARK(Pull, Zipf1M, kZipf, true)->Unit(benchmark::kMillisecond);
FLEET_PS_BENCHMARK(Push, Zipf1M, kZipf, true)->Unit(benchmark::kMillisecond);
FLEET_PS_BENCHMARK(Pull, Zipf1MTcp, kZipf, false)
    ->Unit(benchmark::kMillisecond);
FLEET_PS_BENCHMARK(Push, Zipf1MTcp, kZipf, false)
    ->Unit(benchmark::kMillisecond);
FLEET_PS_BENCHMARK(Pull, Uniform10M, kUniform, true)
    ->Unit(benchmark::kMillisecond);
FLEET_PS_BENCHMARK(Push, Uniform10M, kUniform, true)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fleet::ps

int main(int argc, char** argv) {
  int ends[2];
  FLEET_CHECK_EQ(pipe(ends), 0);
  const pid_t server = fork();
  if (server == 0) {
    fleet::ps::RunServer(ends[1]);
    _exit(0);
  }
  FLEET_CHECK_EQ(read(ends[0], &fleet::ps::server_port, 2), ssize_t{2});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}
