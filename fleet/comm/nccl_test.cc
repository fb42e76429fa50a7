// SPDX-License-Identifier: Apache-2.0

// The backend over NCCL with libraries that stand for NCCL and CUDA
// (nccl_fake.cc, nccl_cuda_fake.cc), so that several ranks are tested without a
// GPU. nccl_check.cc runs the real ones.

#include "fleet/comm/nccl.h"

#include "fleet/comm/communicator_conformance.h"
#include "fleet/comm/in_process.h"
#include "fleet/comm/nccl_library.h"

extern "C" unsigned int fake_cuda_memory;

namespace fleet::comm {
namespace {

Ranks MakeNccl(int size,
               const std::function<CommunicatorOptions(int)>& options) {
  Ranks companions = MakeInProcess(size, [&](int rank) {
    // Only the communicator on top tells of failures.
    CommunicatorOptions of_rank = options(rank);
    of_rank.on_failure = nullptr;
    return of_rank;
  });
  Ranks ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      auto made = ConnectNccl(std::move(companions[i]), 0, options(i), Soon());
      EXPECT_OK(made);
      if (made.ok()) ranks[i] = std::move(*made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

CommunicatorKind OnDevice() {
  return {
      .name = "nccl",
      .make =
          [](int size, const std::function<CommunicatorOptions(int)>& options) {
            fake_cuda_memory = kCudaDeviceMemory;
            return MakeNccl(size, options);
          },
      .sends_wait = false};
}

CommunicatorKind OnHost() {
  return {.name = "nccl, memory of the host",
          .make = [](int size,
                     const std::function<CommunicatorOptions(int)>& options) {
            fake_cuda_memory = 1;
            return MakeNccl(size, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance,
                         testing::Values(OnDevice(), OnHost()));
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorFailures,
                         testing::Values(OnDevice(), OnHost()));

TEST(Nccl, IsForMemoryOfAGpu) {
  Ranks ranks = OnDevice().make(1, [](int) { return CommunicatorOptions(); });
  EXPECT_TRUE(ranks[0]->on_device());
  EXPECT_EQ(ranks[0]->backend(), "nccl");
}

TEST(Nccl, AGpuThatIsNotThereIsNamed) {
  EXPECT_THAT(
      ConnectNccl(std::move(MakeInProcess(1)[0]), 7, {}, Soon()),
      StatusIs(StatusCode::kUnavailable, HasSubstr("GPU 7: no such GPU")));
}

}  // namespace
}  // namespace fleet::comm
