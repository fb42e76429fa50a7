// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/key_split.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::ps {
namespace {

using testing::ElementsAre;

void AssignKeys(KeySplit& split, const std::vector<Key>& keys,
                uint32_t num_servers) {
  const ValuesOfKeys part{keys, {}};
  split.Assign(std::span(&part, 1), num_servers);
}

TEST(KeySplit, LeavesDifferentKeysOfOneServerAsTheyAre) {
  KeySplit split;
  AssignKeys(split, {5, 0, ~Key{0}}, 1);
  EXPECT_TRUE(split.is_identity());
  EXPECT_THAT(split.keys(), ElementsAre(5, 0, ~Key{0}));
  EXPECT_THAT(split.slots(), ElementsAre(0, 1, 2));
}

TEST(KeySplit, KeepsEachKeyOnceInTheOrderOfLastPlaces) {
  KeySplit split;
  AssignKeys(split, {5, 6, 5, 5, 7, 6}, 1);
  EXPECT_FALSE(split.is_identity());
  EXPECT_THAT(split.keys(), ElementsAre(5, 7, 6));
  EXPECT_THAT(split.slots(), ElementsAre(0, 2, 0, 0, 1, 2));
  EXPECT_THAT(split.last_places(), ElementsAre(3, 4, 5));
  EXPECT_THAT(split.SumOfEach(std::vector<float>{1, 2, 3, 4, 5, 6}),
              ElementsAre(8, 5, 8));
}

TEST(KeySplit, TakesNoKeys) {
  KeySplit split;
  AssignKeys(split, {}, 3);
  EXPECT_EQ(split.size(), 0u);
  EXPECT_EQ(split.begin(3), 0u);
}

TEST(KeySplit, PutsTheKeysOfAServerSideBySide) {
  std::mt19937_64 random(1);
  std::vector<Key> keys(10'000);
  for (Key& key : keys) key = random() % 3000;
  KeySplit split;
  for (int again = 0; again < 2; ++again) {
    AssignKeys(split, keys, 4);
    EXPECT_EQ(split.size(), std::set<Key>(keys.begin(), keys.end()).size());
    EXPECT_EQ(split.begin(0), 0u);
    EXPECT_EQ(split.begin(4), split.size());
    for (uint32_t server = 0; server < 4; ++server) {
      EXPECT_GT(split.begin(server + 1), split.begin(server) + 500);
      for (size_t i = split.begin(server); i < split.begin(server + 1); ++i) {
        ASSERT_EQ(table::ServerOfKey(split.keys()[i], 4), server);
      }
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(split.keys()[split.slots()[i]], keys[i]);
      ASSERT_LE(i, split.last_places()[split.slots()[i]]);
    }
  }
}

// What a part of the slots needs is complete before the rest is looked at.
TEST(KeySplit, MergesAsFarAsAsked) {
  std::mt19937_64 random(3);
  for (const uint32_t num_servers : {1u, 3u}) {
    for (const size_t dim : {1u, 3u, 16u}) {
      std::vector<std::vector<Key>> keys(3);
      std::vector<std::vector<float>> values(3);
      std::map<Key, std::vector<float>> sums;
      std::map<Key, float> last;
      for (size_t p : {0u, 2u}) {  // part 1 stays empty
        for (int i = 0; i < 500; ++i) {
          keys[p].push_back(random() % 300);
          auto& sum = sums[keys[p].back()];
          sum.resize(dim);
          for (size_t k = 0; k < dim; ++k) {
            values[p].push_back(static_cast<float>(random() % 16));
            sum[k] += values[p].back();
          }
          last[keys[p].back()] = values[p].back();
        }
      }
      std::vector<ValuesOfKeys> parts;
      for (size_t p = 0; p < 3; ++p) parts.push_back({keys[p], values[p]});
      for (const auto merge :
           {KeySplit::Merge::kSum, KeySplit::Merge::kTakeLast}) {
        KeySplit split;
        split.Assign(parts, num_servers);
        std::vector<float> merged(2 * split.size() * dim, -1.0f);
        for (uint32_t s = 0; s < num_servers; ++s) {
          for (size_t begin = split.begin(s); begin < split.begin(s + 1);
               begin += 40) {
            const size_t end = std::min(begin + 40, split.begin(s + 1));
            split.MergeUpTo(end, parts, dim, merge, merged);
            for (size_t slot = begin; slot < end; ++slot) {
              const Key key = split.keys()[slot];
              const float got = merged[slot * dim + dim - 1];
              ASSERT_EQ(got, merge == KeySplit::Merge::kSum ? sums[key].back()
                                                            : last[key]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fleet::ps
