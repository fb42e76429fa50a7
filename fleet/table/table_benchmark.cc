// SPDX-License-Identifier: Apache-2.0

// The table alone, in one thread: how many rows of 16 a second, with SGD.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <benchmark/benchmark.h>

#include "fleet/base/check.h"
#include "fleet/base/file_system.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/benchmark_keys.h"

namespace fleet::table {

std::string BenchmarkFolder() {
  return base::Concat("table_benchmark.", getpid());
}

namespace {

constexpr size_t kDim = 16;
constexpr size_t kRequest = 100'000;

std::unique_ptr<SparseTable> MakeTable(uint32_t num_shards) {
  SparseTableOptions options;
  options.name = "emb";
  options.dim = kDim;
  options.initializer = UniformInit{-0.1f, 0.1f};
  options.update.rule = optim::Sgd();
  options.num_shards = num_shards;
  auto table = SparseTable::Make(options);
  FLEET_CHECK(table.ok());
  return std::move(table).value();
}

void Fill(SparseTable& table, uint64_t num_rows) {
  std::vector<Key> keys(kRequest);
  std::vector<float> rows(kRequest * kDim);
  for (uint64_t begin = 0; begin < num_rows; begin += kRequest) {
    const uint64_t n = std::min<uint64_t>(kRequest, num_rows - begin);
    for (uint64_t i = 0; i < n; ++i) keys[i] = begin + i;
    FLEET_CHECK(
        table.Pull(std::span(keys.data(), n), std::span(rows.data(), n * kDim))
            .ok());
  }
}

struct Case {
  uint64_t num_rows;
  Requests requests;
  std::unique_ptr<SparseTable> table;
};

Case& Uniform() {
  static Case* made = [] {
    auto* c = new Case{10'000'000, UniformRequests(50, kRequest, 10'000'000),
                       MakeTable(1)};
    Fill(*c->table, c->num_rows);
    return c;
  }();
  return *made;
}

Case& Zipf() {
  static Case* made = [] {
    auto* c = new Case{1'000'000, ZipfRequests(50, kRequest, 1'000'000),
                       MakeTable(1)};
    Fill(*c->table, c->num_rows);
    return c;
  }();
  return *made;
}

void Pull(benchmark::State& state, Case& (*get)()) {
  Case& c = get();
  std::vector<float> rows(kRequest * kDim);
  size_t i = 0;
  for (auto _ : state) {
    FLEET_CHECK(c.table->Pull(c.requests[i++ % c.requests.size()], rows).ok());
  }
  state.SetItemsProcessed(static_cast<int64_t>(i * kRequest));
}

void Push(benchmark::State& state, Case& (*get)()) {
  Case& c = get();
  const std::vector<float> gradients(kRequest * kDim, 1e-6f);
  size_t i = 0;
  for (auto _ : state) {
    FLEET_CHECK(
        c.table->Push(c.requests[i++ % c.requests.size()], gradients).ok());
  }
  state.SetItemsProcessed(static_cast<int64_t>(i * kRequest));
}

BENCHMARK_CAPTURE(Pull, Uniform10M, Uniform)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Push, Uniform10M, Uniform)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Pull, Zipf1M, Zipf)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Push, Zipf1M, Zipf)->Unit(benchmark::kMillisecond);

// A million rows, to disk and back, synced.
void Save(benchmark::State& state) {
  Case& c = Zipf();
  const std::string folder = BenchmarkFolder();
  FLEET_CHECK(base::MakeFolders(folder).ok());
  uint64_t number = 0;
  for (auto _ : state) {
    auto saved = c.table->Save(folder, {{.number = ++number}});
    FLEET_CHECK(saved.ok(), saved.status());
    state.counters["bytes"] = static_cast<double>(saved->byte_size);
    state.PauseTiming();
    FLEET_CHECK(RemoveOlderSaves(folder, "emb", number).ok());
    state.ResumeTiming();
  }
}
BENCHMARK(Save)->UseRealTime()->Unit(benchmark::kMillisecond);

void Load(benchmark::State& state) {
  auto table = MakeTable(1);
  for (auto _ : state) {
    auto loaded = table->Load(BenchmarkFolder(), 0, 1);
    FLEET_CHECK(loaded.ok(), loaded.status());
  }
}
BENCHMARK(Load)->UseRealTime()->Unit(benchmark::kMillisecond);

// What any program needs for as many bytes: dd conv=fsync.
void WriteAndSync(benchmark::State& state) {
  const std::vector<char> bytes(72'352'068, 'x');
  const std::string path = BenchmarkFolder() + "/plain";
  FLEET_CHECK(base::MakeFolders(BenchmarkFolder()).ok());
  for (auto _ : state) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    FLEET_CHECK(file != nullptr);
    FLEET_CHECK_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file),
                   bytes.size());
    FLEET_CHECK_EQ(std::fflush(file), 0);
    FLEET_CHECK_EQ(fsync(fileno(file)), 0);
    (void)std::fclose(file);
    state.PauseTiming();
    (void)std::remove(path.c_str());
    state.ResumeTiming();
  }
}
BENCHMARK(WriteAndSync)->UseRealTime()->Unit(benchmark::kMillisecond);

double ResidentBytes() {
  unsigned long total = 0;
  unsigned long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  FLEET_CHECK(file != nullptr);
  FLEET_CHECK_EQ(std::fscanf(file, "%lu %lu", &total, &resident), 2);
  (void)std::fclose(file);
  return static_cast<double>(resident) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Memory per row at its worst point, from a million rows on. The peak inside a
// request is what the kernel saw: VmHWM.
void Grow(benchmark::State& state) {
  double worst = 0;
  for (auto _ : state) {
    auto table = MakeTable(1);
    std::vector<Key> keys(10'000);
    std::vector<float> rows(keys.size() * kDim, 1.0f);
    const double before = ResidentBytes();
    for (uint64_t done = 0; done < 10'000'000; done += keys.size()) {
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = done + i;
      std::FILE* clear = std::fopen("/proc/self/clear_refs", "w");
      if (clear != nullptr) {
        (void)std::fputs("5", clear);  // resets VmHWM
        (void)std::fclose(clear);
      }
      FLEET_CHECK(table->Pull(keys, rows).ok());
      std::FILE* status = std::fopen("/proc/self/status", "r");
      char line[256];
      unsigned long peak_kb = 0;
      while (std::fgets(line, sizeof(line), status) != nullptr) {
        if (std::sscanf(line, "VmHWM: %lu kB", &peak_kb) == 1) break;
      }
      (void)std::fclose(status);
      if (done < 1'000'000) continue;
      worst = std::max(worst, (static_cast<double>(peak_kb) * 1024 - before) /
                                  static_cast<double>(done + keys.size()));
    }
  }
  state.counters["bytes_per_row"] = worst;
}
BENCHMARK(Grow)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fleet::table

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all(fleet::table::BenchmarkFolder());
}
