// SPDX-License-Identifier: Apache-2.0

// Tables alone and across the wire, rows of 16 with SGD. Asked by a line of its
// input, it answers with one:
//
//   turn          table and wire in turns; "name value" pairs, the best so far:
//                 millions of keys a second, microseconds for one key
//   memory        the most bytes a row takes while a table grows to 10 M rows
//   save FOLDER   seconds and bytes of a save of 1 M rows
//   load FOLDER   seconds
//   deltas FOLDER bytes of a base of 1 M rows by a server, and of a delta after
//                 a hundredth of them changed; seconds to load the base, and to
//                 load what a hundred such deltas have left
//   beside FOLDER seconds of a step (a pull and a push of 26,000 keys, Zipf
//   over
//                 1 M rows, across the wire) while nobody saves, median and
//                 99th percentile, and the same of as many steps while another
//                 worker saves a base of all rows; the best of five turns

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fleet/ps/client.h"
#include "fleet/ps/server.h"
#include "fleet/table/save_manifest.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/benchmark_keys.h"

namespace {

using fleet::base::Deadline;
using fleet::ps::PsClient;
using fleet::ps::TableId;
using fleet::table::Key;
using fleet::table::Requests;
using fleet::table::SparseTable;
using Clock = std::chrono::steady_clock;

constexpr size_t kDim = 16;
constexpr size_t kRequest = 100'000;
constexpr size_t kNumRequests = 20;
constexpr TableId kZipf{0};
constexpr TableId kUniform{1};
constexpr uint64_t kZipfRows = 1'000'000;
constexpr uint64_t kUniformRows = 10'000'000;

void Check(const fleet::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

Deadline Soon() { return Deadline::After(std::chrono::minutes(10)); }

double Seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::unique_ptr<SparseTable> MakeTable(const std::string& name) {
  fleet::table::SparseTableOptions options;
  options.name = name;
  options.dim = kDim;
  options.initializer = fleet::table::UniformInit{-0.1f, 0.1f};
  auto table = SparseTable::Make(options);
  Check(table.status());
  return std::move(table).value();
}

// Calls pull(keys) until there are rows for all keys below num_rows.
void Fill(uint64_t num_rows,
          const std::function<void(const std::vector<Key>&)>& pull) {
  std::vector<Key> keys(kRequest);
  for (uint64_t begin = 0; begin < num_rows; begin += kRequest) {
    for (uint64_t i = 0; i < kRequest; ++i) keys[i] = begin + i;
    pull(keys);
  }
}

// The server's process: tells its port, ends with its worker.
void RunServer(int out) {
  fleet::ps::PsServerOptions options;
  options.processes_on_host = 2;
  options.num_workers = 2;
  fleet::ps::PsServer server(options);
  Check(server.AddSparse(kZipf, MakeTable("zipf")));
  Check(server.AddSparse(kUniform, MakeTable("uniform")));
  fleet::channel::Address any;
  any.host = "127.0.0.1";
  Check(server.Listen(any));
  const uint16_t port = server.address().port;
  if (write(out, &port, sizeof(port)) != sizeof(port)) std::exit(1);
  (void)server.WaitUntilStopped(Deadline::Infinite());
}

class Speed {
 public:
  explicit Speed(uint16_t port)
      : near_(Connect(port, 0, true)), far_(Connect(port, 1, false)) {
    for (const TableId id : {kZipf, kUniform}) {
      Fill(NumRows(id), [&](const std::vector<Key>& keys) {
        Check(Alone(id).Pull(keys, rows_));
        Check(near_->Pull(id, keys, rows_, {}, Soon()));
      });
    }
  }

  // One more of each; all take turns, so that a busy minute is everybody's.
  void Turn() {
    for (const TableId id : {kZipf, kUniform}) {
      const std::string keys = id == kZipf ? "zipf" : "uniform";
      Measure("table_pull_" + keys, id, [&](const std::vector<Key>& request) {
        return Alone(id).Pull(request, rows_);
      });
      Measure("wire_pull_" + keys, id, [&](const std::vector<Key>& request) {
        return near_->Pull(id, request, rows_, {}, Soon());
      });
      Measure("table_push_" + keys, id, [&](const std::vector<Key>& request) {
        return Alone(id).Push(request, gradients_);
      });
      Measure("wire_push_" + keys, id, [&](const std::vector<Key>& request) {
        return near_->Push(id, request, gradients_, Soon());
      });
    }
    PullOne("one_key", *near_);
    PullOne("one_key_tcp", *far_);
  }

  std::string Best() const {
    std::ostringstream line;
    for (const auto& [name, value] : best_) line << name << ' ' << value << ' ';
    return line.str();
  }

  // One of the two workers of the server.
  static std::unique_ptr<PsClient> Connect(uint16_t port, int32_t worker,
                                           bool shared_memory) {
    fleet::channel::Address address;
    address.host = "127.0.0.1";
    address.port = port;
    fleet::ps::PsClientOptions options;
    options.shared_memory = shared_memory;
    options.worker = worker;
    auto client = PsClient::Connect({address}, options, Soon());
    Check(client.status());
    return std::move(client).value();
  }

 private:
  static uint64_t NumRows(TableId id) {
    return id == kZipf ? kZipfRows : kUniformRows;
  }
  SparseTable& Alone(TableId id) { return id == kZipf ? *zipf_ : *uniform_; }

  void Measure(
      const std::string& name, TableId id,
      const std::function<fleet::Status(const std::vector<Key>&)>& call) {
    const Requests& requests = id == kZipf ? zipf_requests_ : uniform_requests_;
    double& best = best_[name];
    // The best of a few neighbours: others use the machine, too.
    constexpr size_t kAtOnce = 4;
    for (size_t begin = 0; begin < kNumRequests; begin += kAtOnce) {
      const double seconds = Seconds([&] {
        for (size_t i = begin; i < begin + kAtOnce; ++i) {
          Check(call(requests[i]));
        }
      });
      best = std::max(best, kAtOnce * kRequest / seconds / 1e6);
    }
  }

  void PullOne(const std::string& name, PsClient& client) {
    constexpr int kCalls = 500;
    const std::vector<Key> key{7};
    std::vector<float> row(kDim);
    for (int turn = 0; turn < 10; ++turn) {
      const double seconds = Seconds([&] {
        for (int i = 0; i < kCalls; ++i) {
          Check(client.Pull(kZipf, key, row, {}, Soon()));
        }
      });
      const auto [it, is_new] = best_.try_emplace(name, seconds * 1e6 / kCalls);
      it->second = std::min(it->second, seconds * 1e6 / kCalls);
    }
  }

  std::unique_ptr<PsClient> near_;
  std::unique_ptr<PsClient> far_;
  std::unique_ptr<SparseTable> zipf_ = MakeTable("zipf");
  std::unique_ptr<SparseTable> uniform_ = MakeTable("uniform");
  const Requests zipf_requests_ =
      fleet::table::ZipfRequests(kNumRequests, kRequest, kZipfRows);
  const Requests uniform_requests_ =
      fleet::table::UniformRequests(kNumRequests, kRequest, kUniformRows);
  std::vector<float> rows_ = std::vector<float>(kRequest * kDim);
  std::vector<float> gradients_ = std::vector<float>(kRequest * kDim, 1e-6f);
  std::map<std::string, double> best_;
};

// A line of /proc/self/status in bytes.
double ProcessBytes(const std::string& what) {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  char line[256];
  double bytes = 0;
  unsigned long kb = 0;
  while (std::fgets(line, sizeof(line), status) != nullptr) {
    if (std::sscanf(line, (what + ": %lu kB").c_str(), &kb) == 1) {
      bytes = static_cast<double>(kb) * 1024;
    }
  }
  (void)std::fclose(status);
  return bytes;
}

// In a process of its own, so that nobody else's memory counts. From a million
// rows on; the peak inside a request is what the kernel saw.
double WorstBytesOfARow() {
  auto table = MakeTable("emb");
  std::vector<Key> keys(10'000);
  std::vector<float> rows(keys.size() * kDim, 1.0f);
  const double before = ProcessBytes("VmRSS");
  double worst = 0;
  for (uint64_t done = 0; done < kUniformRows; done += keys.size()) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = done + i;
    std::FILE* clear = std::fopen("/proc/self/clear_refs", "w");
    if (clear != nullptr) {
      (void)std::fputs("5", clear);  // resets VmHWM
      (void)std::fclose(clear);
    }
    Check(table->Pull(keys, rows));
    if (done < 1'000'000) continue;
    worst = std::max(worst, (ProcessBytes("VmHWM") - before) /
                                static_cast<double>(done + keys.size()));
  }
  return worst;
}

// A base by one server, then a hundred deltas, each after a hundredth of the
// rows changed.
std::string Deltas(const std::string& folder) {
  fleet::ps::PsServer server({});
  Check(server.AddSparse(kZipf, MakeTable("emb")));
  auto client = PsClient::Connect(
      1,
      [&](uint32_t,
          Deadline) -> fleet::Result<std::unique_ptr<fleet::channel::Channel>> {
        return server.ConnectInProcess("worker 0");
      },
      {}, Soon());
  Check(client.status());
  std::vector<float> rows(kRequest * kDim);
  Fill(kZipfRows, [&](const std::vector<Key>& keys) {
    Check((*client)->Pull(kZipf, keys, rows, {}, Soon()));
  });
  auto newest = [&] {
    auto model =
        fleet::table::FindModel(folder, fleet::table::CheckFiles::kBySize);
    Check(model.status());
    return *model;
  };
  auto load = [&](uint64_t number) {
    auto table = MakeTable("emb");
    return Seconds([&] {
      auto model = fleet::table::FindModel(
          folder, fleet::table::CheckFiles::kByChecksum, {number});
      Check(model.status());
      Check(table->Load(*model, 0, 1).status());
    });
  };
  Check((*client)->Save(folder, {}, Soon()));
  const uint64_t base_byte_size = newest().base_byte_size();
  uint64_t delta_byte_size = 0;
  double base_seconds = std::numeric_limits<double>::infinity();
  double seconds = base_seconds;
  size_t longest = 0;
  std::vector<Key> keys(kZipfRows / 100);
  for (uint64_t i = 0; i < 100; ++i) {
    for (uint64_t k = 0; k < keys.size(); ++k) keys[k] = k * 100 + i;
    Check((*client)->Push(kZipf, keys,
                          std::span(rows).first(keys.size() * kDim), Soon()));
    Check((*client)->Save(folder, {.kind = fleet::table::SaveKind::kDelta},
                          Soon()));
    const fleet::table::SavedModel model = newest();
    if (i == 0) delta_byte_size = model.deltas_byte_size();
    // The longest way there is, and its base, in turns.
    if (!WantsNewBase(model) || model.saves.size() <= longest) continue;
    longest = model.saves.size();
    for (int turn = 0; turn < 7; ++turn) {
      base_seconds = std::min(base_seconds, load(model.saves[0].number));
      seconds = std::min(seconds, load(model.number));
    }
  }
  std::ostringstream out;
  out << base_byte_size << ' ' << delta_byte_size << ' ' << base_seconds << ' '
      << seconds;
  return out.str();
}

// Steps of worker 0 with and without a save of worker 1.
std::string Beside(uint16_t port, const std::string& folder) {
  constexpr size_t kKeys =
      26'000;  // a batch of 1000 examples of the click model
  auto worker = Speed::Connect(port, 0, true);
  auto saver = Speed::Connect(port, 1, true);
  std::vector<float> rows(kRequest * kDim);
  Fill(kZipfRows, [&](const std::vector<Key>& keys) {
    Check(worker->Pull(kZipf, keys, rows, {}, Soon()));
  });
  const Requests requests =
      fleet::table::ZipfRequests(kNumRequests, kKeys, kZipfRows);
  auto turn = worker->BeginTurn(Soon());
  Check(turn.status());
  size_t num_steps = 0;
  auto step = [&] {
    const std::vector<Key>& keys = requests[num_steps++ % kNumRequests];
    const auto some = std::span(rows).first(keys.size() * kDim);
    return Seconds([&] {
      if (worker->cut_wanted()) {
        Check(worker->EndTurn(*turn, Soon()));
        turn = worker->BeginTurn(Soon());
        Check(turn.status());
      }
      Check(worker->Pull(kZipf, keys, some, {}, Soon()));
      for (float& x : some) x *= 1e-3f;
      Check(worker->Push(kZipf, keys, some, Soon()));
    });
  };
  // Steps as long as `goes_on`, at least one.
  auto stretch = [&](const std::function<bool()>& goes_on) {
    std::vector<double> seconds;
    do {
      seconds.push_back(step());
    } while (goes_on());
    std::sort(seconds.begin(), seconds.end());
    return seconds;
  };
  std::array<double, 4> best;
  best.fill(std::numeric_limits<double>::infinity());
  auto take = [&](size_t at, const std::vector<double>& seconds) {
    best[at] = std::min(best[at], seconds[seconds.size() / 2]);
    best[at + 1] =
        std::min(best[at + 1], seconds[(seconds.size() * 99 - 1) / 100]);
  };
  (void)stretch([&] { return num_steps < 3 * kNumRequests; });
  for (int i = 0; i < 5; ++i) {
    std::atomic<bool> saved = false;
    std::thread saving([&] {
      Check(saver->Save(folder, {}, Soon()));
      saved = true;
    });
    const std::vector<double> beside = stretch([&] { return !saved; });
    saving.join();
    take(2, beside);
    size_t left = beside.size();
    take(0, stretch([&] { return --left > 0; }));
  }
  Check(worker->EndTurn(*turn, Soon()));
  std::ostringstream out;
  for (const double seconds : best) out << seconds << ' ';
  return out.str();
}

}  // namespace

int main() {
  std::unique_ptr<Speed> speed;
  std::unique_ptr<SparseTable> saved;
  std::unique_ptr<SparseTable> loaded;
  uint64_t save_number = 0;
  pid_t server = 0;
  uint16_t port = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string what;
    std::string folder;
    in >> what >> folder;
    if ((what == "turn" || what == "beside") && server == 0) {
      int ends[2];
      if (pipe(ends) != 0) return 1;
      server = fork();
      if (server == 0) {
        RunServer(ends[1]);
        _exit(0);
      }
      if (read(ends[0], &port, sizeof(port)) != sizeof(port)) return 1;
    }
    if (what == "turn") {
      if (speed == nullptr) speed = std::make_unique<Speed>(port);
      speed->Turn();
      std::cout << speed->Best() << std::endl;
    } else if (what == "memory") {
      std::cout << WorstBytesOfARow() << std::endl;
    } else if (what == "save") {
      if (saved == nullptr) {
        saved = MakeTable("emb");
        std::vector<float> rows(kRequest * kDim);
        Fill(kZipfRows, [&](const std::vector<Key>& keys) {
          Check(saved->Pull(keys, rows));
        });
      }
      uint64_t byte_size = 0;
      const double seconds = Seconds([&] {
        auto done = saved->Save(folder, {{.number = ++save_number}});
        Check(done.status());
        byte_size = done->byte_size;
      });
      Check(fleet::table::RemoveOlderSaves(folder, "emb", save_number));
      std::cout << seconds << ' ' << byte_size << std::endl;
    } else if (what == "beside") {
      std::cout << Beside(port, folder) << std::endl;
    } else if (what == "deltas") {
      std::cout << Deltas(folder) << std::endl;
    } else if (what == "load") {
      loaded = MakeTable("emb");
      const double seconds =
          Seconds([&] { Check(loaded->Load(folder, 0, 1).status()); });
      std::cout << seconds << std::endl;
    }
  }
  if (server > 0) {
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
  }
  return 0;
}
