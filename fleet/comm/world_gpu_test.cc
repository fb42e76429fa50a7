// SPDX-License-Identifier: Apache-2.0

// When a job's collectives go over NCCL, with libraries that stand for NCCL and
// for a CUDA with two GPUs (nccl_fake.cc, nccl_cuda_fake.cc).

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/world_fixtures.h"

namespace fleet::comm {
namespace {

// Whether a job whose ranks have these GPUs and hosts has NCCL; its collectives
// work in any case, also those of a group.
struct Place {
  std::optional<int> gpu;
  std::string host = "a";
};
bool UsesNccl(const std::vector<Place>& places, std::string backend = "auto") {
  std::vector<char> uses(places.size());
  FakeJob job(static_cast<int>(places.size()));
  job.RunEach(
      [&](int rank) {
        return WorldOptions{.backend = backend,
                            .gpu = places[rank].gpu,
                            .host_key = places[rank].host};
      },
      [&](World& world, auto&) {
        const int rank = world.all().rank();
        int32_t number = 1;
        EXPECT_OK(Sum(world.all(), number));
        EXPECT_EQ(number, places.size());
        uses[rank] = world.all().backend() == "nccl";
        EXPECT_EQ(world.all().on_device(), uses[rank] != 0);
        ASSERT_OK_AND_ASSIGN(auto group, world.NewGroup({0}, Soon()));
        if (group != nullptr) {
          EXPECT_EQ(group->backend() == "nccl", uses[rank] != 0);
          EXPECT_OK(group->Barrier(Soon()));
        }
      });
  for (char one : uses) EXPECT_EQ(one, uses.front());
  return uses.front() != 0;
}

TEST(WorldGpu, RanksWithGpusOfTheirOwnUseNccl) {
  EXPECT_TRUE(UsesNccl({{.gpu = 0}, {.gpu = 1}}));
  EXPECT_TRUE(UsesNccl({{.gpu = 0, .host = "a"}, {.gpu = 0, .host = "b"}}));
}

TEST(WorldGpu, RanksThatShareAGpuDoNot) {
  EXPECT_FALSE(UsesNccl({{.gpu = 0}, {.gpu = 0}}));
}

TEST(WorldGpu, OneRankWithoutAGpuDecidesForAll) {
  EXPECT_FALSE(UsesNccl({{.gpu = 0}, {}}));
  EXPECT_FALSE(UsesNccl({{.gpu = 0}, {.gpu = 7}}));  // there are 0 and 1
  EXPECT_FALSE(UsesNccl({{}, {}}));
}

TEST(WorldGpu, ABackendThatWasNamedStays) {
  EXPECT_FALSE(UsesNccl({{.gpu = 0}, {.gpu = 1}}, "shm"));
  EXPECT_TRUE(UsesNccl({{.gpu = 0}}, "nccl"));
  EXPECT_FALSE(UsesNccl({{.gpu = 0}}));  // nobody to talk to
}

}  // namespace
}  // namespace fleet::comm
