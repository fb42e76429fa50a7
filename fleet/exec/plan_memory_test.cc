// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan_memory.h"

#include <random>

#include <gtest/gtest.h>

namespace fleet::exec {
namespace {

bool Overlap(int64_t begin_a, int64_t end_a, int64_t begin_b, int64_t end_b) {
  return begin_a < end_b && begin_b < end_a;
}

TEST(LayOut, NothingNeedsNothing) { EXPECT_EQ(LayOut({}).byte_size, 0); }

TEST(LayOut, ValuesThatFollowEachOtherShareMemory) {
  const std::vector<Lifetime> lives = {{256, 0, 1}, {256, 2, 3}, {128, 4, 4}};
  EXPECT_EQ(LayOut(lives).byte_size, 256);
}

TEST(LayOut, ReadAndWrittenInOneStepAreApart) {
  const std::vector<Lifetime> lives = {{64, 0, 1}, {64, 1, 2}};
  const MemoryLayout layout = LayOut(lives);
  EXPECT_NE(layout.offsets[0], layout.offsets[1]);
  EXPECT_EQ(layout.byte_size, 128);
}

TEST(LayOut, AGapTakesWhatFits) {
  // 0 and 2 live long, 1 makes room early; 3 goes where 1 was.
  const std::vector<Lifetime> lives = {
      {512, 0, 9}, {256, 0, 2}, {256, 0, 9}, {200, 4, 8}};
  EXPECT_EQ(LayOut(lives).byte_size, 1024);
}

TEST(LayOut, NeverOverlapsInSpaceAndTimeAndStaysNearTheLowerBound) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<Lifetime> lives;
    for (int i = 0; i < 100; ++i) {
      const int first = static_cast<int>(random() % 100);
      lives.push_back({static_cast<int64_t>(random() % 5000), first,
                       first + static_cast<int>(random() % 10)});
    }
    const MemoryLayout layout = LayOut(lives);
    int64_t most = 0;
    for (int step = 0; step < 110; ++step) {
      int64_t sum = 0;
      for (const Lifetime& life : lives) {
        if (life.first <= step && step <= life.last) sum += life.byte_size + 64;
      }
      most = std::max(most, sum);
    }
    EXPECT_LE(layout.byte_size, most * 5 / 4);
    for (size_t a = 0; a < lives.size(); ++a) {
      EXPECT_EQ(layout.offsets[a] % 64, 0);
      EXPECT_LE(layout.offsets[a] + lives[a].byte_size, layout.byte_size);
      for (size_t b = 0; b < a; ++b) {
        if (!Overlap(lives[a].first, lives[a].last + 1, lives[b].first,
                     lives[b].last + 1)) {
          continue;
        }
        EXPECT_FALSE(
            Overlap(layout.offsets[a], layout.offsets[a] + lives[a].byte_size,
                    layout.offsets[b], layout.offsets[b] + lives[b].byte_size))
            << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace fleet::exec
