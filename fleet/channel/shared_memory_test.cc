// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/shared_memory.h"

#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>

#include "fleet/channel/channel_conformance.h"

namespace fleet::channel {
namespace {

std::string LocalName(const std::string& what) {
  return "@fleet-test-" + std::to_string(getpid()) + "-" + what;
}

ChannelKind SharedMemory(const std::string& what, SharedMemoryOptions options) {
  return OverAddress(LocalName(what), {.shared_memory = options});
}

// The usual ring, the smallest, and one whose waits spin.
INSTANTIATE_TEST_SUITE_P(
    SharedMemory, ChannelConformance,
    testing::Values(SharedMemory("usual", {}),
                    SharedMemory("small", {.ring_byte_size = 1}),
                    SharedMemory("spin", {.processes_on_host = 1})));
INSTANTIATE_TEST_SUITE_P(SharedMemory, ProcessConformance,
                         testing::Values(SharedMemory("usual", {})));

std::pair<base::Descriptor, base::Descriptor> ConnectedSockets() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  return {base::Descriptor::OfThisProcess(fds[0]),
          base::Descriptor::OfThisProcess(fds[1])};
}

TEST(SharedMemory, LackOfMemoryIsAnErrorOnBothSides) {
  // A limit on file sizes stands for a full memory: fallocate fails the same
  // way.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  auto [maker, taker] = ConnectedSockets();
  const auto offered = OfferSharedMemory(std::move(maker), {});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);

  EXPECT_THAT(offered, StatusIs(StatusCode::kUnavailable,
                                HasSubstr("shared memory of 2101248 bytes")));
  EXPECT_THAT(TakeSharedMemory(std::move(taker), Soon()),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("shared memory of 2101248 bytes")));
}

TEST(SharedMemory, NothingHandedOverIsDeadlineExceeded) {
  auto [maker, taker] = ConnectedSockets();
  EXPECT_THAT(TakeSharedMemory(std::move(taker), Now()),
              HasCode(StatusCode::kDeadlineExceeded));
}

TEST(SharedMemory, APeerThatLeavesInsteadOfHandingOverIsUnavailable) {
  auto [maker, taker] = ConnectedSockets();
  maker = base::Descriptor();
  EXPECT_THAT(TakeSharedMemory(std::move(taker), Soon()),
              HasCode(StatusCode::kUnavailable));
}

TEST(SharedMemory, AHandoverWithoutADescriptorIsDataLoss) {
  auto [maker, taker] = ConnectedSockets();
  Message bytes(256, std::byte{0});
  bytes[2] = std::byte{16};  // a ring of 1 MB, little-endian
  ASSERT_OK(WriteAll(maker.get(), bytes, Soon()));
  EXPECT_THAT(TakeSharedMemory(std::move(taker), Soon()),
              HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::channel
