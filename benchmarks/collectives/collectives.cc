// SPDX-License-Identifier: Apache-2.0

// Blocking all-reduce of floats over two ranks of one host, ours and a peer's
// in turns in the same processes. Rank 0 prints a line for each case:
//
//   name  bytes  ours  peer      best time of a call in microseconds
//
// "anywhere" is plain memory, "allocated" memory from Allocate. In the cases
// called "new" every rank rewrites its data before each call, as gradients are;
// in the others calls follow each other, as benchmarks of collectives have it.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fleet/comm/shared_memory.h"

#include "benchmarks/collectives/peer.h"

namespace {

using namespace std::chrono_literals;
using fleet::Status;
using fleet::base::Deadline;
using fleet::comm::Buffer;
using fleet::comm::Communicator;
using fleet::comm::DataType;
using fleet::comm::ReduceOp;
using fleet::comm::Span;
using Clock = std::chrono::steady_clock;

// Many short turns: on a machine that others use too, some are undisturbed.
// Where it is very busy, fewer.
constexpr int kTurns = 25;
constexpr int kFewTurns = 7;
constexpr auto kEnoughTime = 4s;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

class Bench {
 public:
  Bench(Communicator& comm, Peer& peer)
      : comm_(comm), peer_(peer), deadline_(Deadline::After(600s)) {}

  void Run(const std::string& name, size_t byte_size, bool allocated,
           bool renewed) {
    const size_t count = byte_size / sizeof(float);
    std::vector<float> plain(count), other(count);
    Buffer buffer;
    float* ours = plain.data();
    if (allocated) {
      auto made = comm_.Allocate(byte_size, deadline_);
      Check(made.status());
      buffer = *made;
      ours = reinterpret_cast<float*>(buffer.bytes().data());
    }
    auto our_call = [&](float* data) {
      Check(comm_.AllReduce({reinterpret_cast<std::byte*>(data), count,
                             DataType::kFloat32, nullptr},
                            ReduceOp::kSum, deadline_));
    };
    CheckSum(our_call, ours, count);

    const int calls = static_cast<int>(
        std::clamp<size_t>(40'000'000 / (byte_size + 4000), 2, 5'000));
    double our_best = std::numeric_limits<double>::infinity();
    double peer_best = our_best;
    auto turn = [&](double& best, auto call, float* data) {
      best = std::min(best, renewed ? Renewed(call, data, count, calls)
                                    : InARow(call, data, count, calls));
    };
    const auto begin = Clock::now();
    for (int i = 0; i < kTurns && !Enough(i, begin); ++i) {
      turn(our_best, our_call, ours);
      if (!peer_.exists()) continue;
      // Whichever of its two forms is faster.
      turn(
          peer_best, [&](float* data) { peer_.AllReduce(data, count); },
          plain.data());
      turn(
          peer_best,
          [&](float* data) { peer_.AllReduce(data, other.data(), count); },
          plain.data());
    }
    if (comm_.rank() == 0) {
      std::printf("%s %zu %.4f %.4f\n", name.c_str(), byte_size, our_best,
                  peer_.exists() ? peer_best : 0.0);
      std::fflush(stdout);
    }
  }

 private:
  // All ranks must agree.
  bool Enough(int turns, Clock::time_point begin) {
    uint8_t enough = turns >= kFewTurns && Clock::now() - begin > kEnoughTime;
    Check(comm_.Broadcast(
        {reinterpret_cast<std::byte*>(&enough), 1, DataType::kUInt8, nullptr},
        0, deadline_));
    return enough != 0;
  }

  template <typename Call>
  double InARow(Call call, float* data, size_t count, int calls) {
    std::fill_n(data, count, 0.0f);
    for (int i = 0; i < 1 + calls / 10; ++i) call(data);
    Check(comm_.Barrier(deadline_));
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call(data);
    return Microseconds(Clock::now() - begin) / calls;
  }

  // The median: a call's time holds how much later the other rank came.
  template <typename Call>
  double Renewed(Call call, float* data, size_t count, int calls) {
    std::vector<double> times;
    for (int i = 0; i < std::max(3, calls / 10); ++i) {
      std::fill_n(data, count, static_cast<float>(i));
      Check(comm_.Barrier(deadline_));
      const auto begin = Clock::now();
      call(data);
      times.push_back(Microseconds(Clock::now() - begin));
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2,
                     times.end());
    return times[times.size() / 2];
  }

  // What is measured is right, too.
  template <typename Call>
  void CheckSum(Call call, float* data, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      data[i] = static_cast<float>(i % 1000) + static_cast<float>(comm_.rank());
    }
    call(data);
    for (size_t i = 0; i < count; ++i) {
      const float expected = 2 * static_cast<float>(i % 1000) + 1;
      if (data[i] == expected) continue;
      std::fprintf(stderr, "element %zu is %g, not %g\n", i, data[i], expected);
      std::exit(1);
    }
  }

  Communicator& comm_;
  Peer& peer_;
  const Deadline deadline_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::unique_ptr<Peer> peer = MakePeer(&argc, &argv);
  auto comm = fleet::comm::ConnectSharedMemory({.store = &peer->store(),
                                                .prefix = "bench/",
                                                .rank = peer->rank(),
                                                .size = peer->size(),
                                                .processes_on_host = 2},
                                               {}, Deadline::After(60s));
  Check(comm.status());
  Bench bench(**comm, *peer);
  const bool brief = argc > 1 && std::string(argv[1]) == "--brief";
  for (size_t size : {4, 4096, 65536})
    bench.Run("anywhere", size, false, false);
  for (size_t size : {1 << 20, 4 << 20, 32 << 20}) {
    bench.Run("anywhere", size, false, false);
    bench.Run("allocated", size, true, false);
    if (!brief) bench.Run("allocated_new", size, true, true);
  }
  return 0;
}
