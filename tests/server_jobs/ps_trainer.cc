// SPDX-License-Identifier: Apache-2.0

// A worker that moves rows of a sparse table, and a dense parameter, towards
// known targets. Every number it computes with follows from step, worker and
// place, so that a test computes the same in numpy (reference.py).
//
// Says "READY n" at the step where it is told to wait, "DONE ..." at its end,
// and leaves rows and dense values as raw floats where it is told to.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"
#include "fleet/ps/client.h"
#include "fleet/ps/serve.h"

namespace {

using fleet::DeadlineExceeded;
using fleet::OkStatus;
using fleet::Result;
using fleet::Status;
using fleet::base::Deadline;
using fleet::ps::PsClient;
using fleet::ps::TableId;
using fleet::table::Key;
using namespace std::chrono_literals;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr size_t kNumWeights = 1000;

class Flags final {
 public:
  Flags(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values_[argv[i]] = argv[i + 1];
  }
  int64_t Number(const std::string& name, int64_t otherwise = 0) const {
    const auto it = values_.find(fleet::base::Concat("--", name));
    return it == values_.end() ? otherwise : std::stoll(it->second);
  }
  std::string Text(const std::string& name) const {
    const auto it = values_.find(fleet::base::Concat("--", name));
    return it == values_.end() ? "" : it->second;
  }
  // Whether `number` is one of "5,10".
  bool Lists(const std::string& name, int64_t number) const {
    const std::string list = fleet::base::Concat(",", Text(name), ",");
    return list.find(fleet::base::Concat(",", number, ",")) !=
           std::string::npos;
  }

 private:
  std::map<std::string, std::string> values_;
};

// Spread over the keys, the same in reference.py.
Key KeyAt(uint64_t step, uint64_t worker, uint64_t place, uint64_t num_keys) {
  return (step * 7919 + worker * 104729 + place * 1299709 + 17) % num_keys;
}

float TargetOf(Key key, size_t column) {
  return static_cast<float>((key * 31 + column * 7) % 17) / 17.0f - 0.5f;
}

class Trainer final {
 public:
  Trainer(const Flags& flags, int worker)
      : flags_(flags),
        worker_(worker),
        num_keys_(static_cast<uint64_t>(flags.Number("keys", 1000))),
        dim_(static_cast<size_t>(flags.Number("dim", 4))),
        batch_(static_cast<size_t>(flags.Number("batch", 64))),
        sync_(flags.Text("mode") != "async"),
        ones_(flags.Text("gradient") == "ones") {}

  Status Run(PsClient& client) {
    RETURN_IF_ERROR(client.CreateTables(Tables(), Soon()));
    weights_.resize(kNumWeights);
    if (worker_ == 0) {
      for (size_t i = 0; i < kNumWeights; ++i) {
        weights_[i] = static_cast<float>(i) / kNumWeights;
      }
      RETURN_IF_ERROR(client.InitializeDense(kWeights, weights_, Soon()));
    }
    RETURN_IF_ERROR(client.StartBarrier("begin", Soon()));
    RETURN_IF_ERROR(client.PullDense(kWeights, weights_, Soon()));
    const int64_t steps = flags_.Number("steps", 20);
    for (int64_t step = flags_.Number("first_step"); step < steps; ++step) {
      if (flags_.Lists("save_at", step)) RETURN_IF_ERROR(Save(client));
      if (step == flags_.Number("wait_at", -1)) RETURN_IF_ERROR(Wait(step));
      if (worker_ == flags_.Number("slow_worker", -1)) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(flags_.Number("pause_ms")));
      }
      RETURN_IF_ERROR(Step(client, static_cast<uint64_t>(step)));
    }
    RETURN_IF_ERROR(client.Barrier("end", Soon()));
    if (flags_.Lists("save_at", steps)) RETURN_IF_ERROR(Save(client));
    if (worker_ == 0) RETURN_IF_ERROR(Show(client));
    return client.Barrier("shown", Soon());
  }

 private:
  static Deadline Soon() { return Deadline::After(60s); }

  std::vector<fleet::table::TableSpec> Tables() const {
    fleet::table::SparseTableOptions rows;
    rows.name = "rows";
    rows.dim = dim_;
    rows.initializer = fleet::table::ConstantInit{0.25f};
    rows.update.learning_rate.base = 0.125;
    rows.update.drop_nonfinite = flags_.Number("drop_nonfinite") != 0;
    if (const std::string disk = flags_.Text("disk"); !disk.empty()) {
      rows.disk.emplace();
      rows.disk->folder = disk;
      rows.disk->memory_byte_size =
          static_cast<uint64_t>(flags_.Number("disk_memory"));
    }
    fleet::table::DenseSpec weights;
    weights.name = "weights";
    weights.size = kNumWeights;
    weights.update.learning_rate.base = 0.125;
    return {{kRows, rows}, {kWeights, weights}};
  }

  Status Step(PsClient& client, uint64_t step) {
    std::vector<Key> keys(batch_);
    for (size_t i = 0; i < batch_; ++i) {
      keys[i] = KeyAt(step, static_cast<uint64_t>(worker_), i, num_keys_);
    }
    std::vector<float> rows(batch_ * dim_);
    RETURN_IF_ERROR(client.Pull(kRows, keys, rows, {}, Soon()));
    for (size_t i = 0; i < batch_; ++i) {
      for (size_t d = 0; d < dim_; ++d) {
        float& value = rows[i * dim_ + d];
        value = ones_ ? 1.0f : value - TargetOf(keys[i], d);
      }
    }
    if (static_cast<int64_t>(step) == flags_.Number("nan_at", -1)) {
      rows[0] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<float> gradient(kNumWeights);
    for (size_t i = 0; i < kNumWeights; ++i) {
      gradient[i] =
          ones_ ? 1.0f : (weights_[i] - 0.5f) * static_cast<float>(1 + worker_);
    }
    const std::vector<fleet::ps::DenseGradient> dense = {{kWeights, gradient}};
    if (sync_) {
      RETURN_IF_ERROR(client.Accumulate(kRows, keys, rows, Soon()));
      RETURN_IF_ERROR(client.FinishStep(dense, {}, Soon()));
    } else {
      RETURN_IF_ERROR(client.Push(kRows, keys, rows, Soon()));
      RETURN_IF_ERROR(client.PushDenseMany(dense, Soon()));
    }
    return client.PullDense(kWeights, weights_, Soon());
  }

  Status Save(PsClient& client) {
    RETURN_IF_ERROR(client.Barrier("before a save", Soon()));
    if (worker_ == 0) {
      PsClient::SaveOptions options;
      const Status saved = client.Save(flags_.Text("save"), options, Soon());
      std::printf("SAVED %s\n", saved.ToString().c_str());
      std::fflush(stdout);
    }
    return client.Barrier("after a save", Soon());
  }

  // Until the file is there.
  Status Wait(int64_t step) const {
    std::printf("READY %ld\n", static_cast<long>(step));
    std::fflush(stdout);
    const std::string file = flags_.Text("wait_for");
    const Deadline deadline = Soon();
    while (!fleet::base::Exists(file)) {
      if (deadline.expired()) return DeadlineExceeded("no file ", file);
      std::this_thread::sleep_for(5ms);
    }
    return OkStatus();
  }

  // In parts: all rows need not fit here.
  Status Show(PsClient& client) {
    std::ofstream out;
    if (!flags_.Text("out").empty()) {
      out.open(flags_.Text("out"), std::ios::binary);
    }
    constexpr uint64_t kPart = 10'000;
    for (uint64_t begin = 0; out.is_open() && begin < num_keys_;
         begin += kPart) {
      std::vector<Key> keys(std::min(kPart, num_keys_ - begin));
      std::iota(keys.begin(), keys.end(), begin);
      std::vector<float> rows(keys.size() * dim_);
      PsClient::PullOptions options;
      options.training = false;
      RETURN_IF_ERROR(client.Pull(kRows, keys, rows, options, Soon()));
      out.write(reinterpret_cast<const char*>(rows.data()),
                static_cast<std::streamsize>(rows.size() * sizeof(float)));
    }
    RETURN_IF_ERROR(client.PullDense(kWeights, weights_, Soon()));
    out.write(reinterpret_cast<const char*>(weights_.data()),
              static_cast<std::streamsize>(weights_.size() * sizeof(float)));
    ASSIGN_OR_RETURN(const fleet::table::SparseTableStats stats,
                     client.Stats(kRows, Soon()));
    std::printf("DONE rows=%lu in_memory=%lu bytes=%lu nonfinite=%lu\n",
                static_cast<unsigned long>(stats.num_rows),
                static_cast<unsigned long>(stats.num_rows_in_memory),
                static_cast<unsigned long>(stats.byte_size),
                static_cast<unsigned long>(stats.num_nonfinite));
    std::fflush(stdout);
    return OkStatus();
  }

  const Flags& flags_;
  const int worker_;
  const uint64_t num_keys_;
  const size_t dim_;
  const size_t batch_;
  const bool sync_;
  const bool ones_;
  std::vector<float> weights_;
};

Status Train(const Flags& flags) {
  const fleet::cluster::Environment env = fleet::cluster::ReadEnvironment();
  ASSIGN_OR_RETURN(const fleet::cluster::Role role,
                   fleet::cluster::RoleFromEnvironment(env, false));
  ASSIGN_OR_RETURN(const fleet::ps::ConnectOptions options,
                   fleet::ps::ReadConnectOptions(role, env));
  ASSIGN_OR_RETURN(std::unique_ptr<PsClient> client,
                   PsClient::Connect(options.servers, options.client,
                                     Deadline::After(options.start_timeout)));
  RETURN_IF_ERROR(Trainer(flags, role.index).Run(*client));
  return client->Stop(Deadline::After(60s));
}

}  // namespace

int main(int argc, char** argv) {
  const Status trained = Train(Flags(argc, argv));
  if (trained.ok()) return 0;
  std::fprintf(stderr, "ps_trainer: %s\n", trained.ToString().c_str());
  return 7;
}
