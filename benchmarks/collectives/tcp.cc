// SPDX-License-Identifier: Apache-2.0

// Blocking all-reduce of floats over two ranks by TCP on loopback. Rank 0
// prints a line for each size:
//
//   bytes  best time of a call in microseconds

#include "fleet/comm/tcp.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "fleet/testing/forked_ranks.h"

namespace {

using namespace std::chrono_literals;
using fleet::base::Deadline;
using fleet::comm::DataType;
using fleet::comm::ReduceOp;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 8;

void Check(const fleet::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double BestTime(fleet::comm::Communicator& comm, size_t byte_size) {
  const Deadline deadline = Deadline::After(300s);
  std::vector<float> data(byte_size / sizeof(float));
  const int calls =
      static_cast<int>(std::clamp<size_t>((8 << 20) / byte_size, 2, 200));
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    Check(comm.Barrier(deadline));
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) {
      Check(comm.AllReduce({reinterpret_cast<std::byte*>(data.data()),
                            data.size(), DataType::kFloat32, nullptr},
                           ReduceOp::kSum, deadline));
    }
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  fleet::comm::ForkedStore store;  // made before the fork
  const pid_t child = fork();
  const int rank = child > 0 ? 0 : 1;
  auto comm = fleet::comm::ConnectTcp(
      {.store = &store, .prefix = "bench", .rank = rank, .size = 2}, {},
      Deadline::After(60s));
  Check(comm.status());
  for (int i = 1; i < argc; ++i) {
    const size_t byte_size = std::strtoull(argv[i], nullptr, 10);
    const double best = BestTime(**comm, byte_size);
    if (rank == 0) std::printf("%zu %.3f\n", byte_size, best);
  }
  std::fflush(stdout);
  comm->reset();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return 0;
}
