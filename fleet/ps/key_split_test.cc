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

TEST(KeySplit, LeavesDifferentKeysOfOneServerAsTheyAre) {
  KeySplit split;
  split.Assign(std::vector<Key>{5, 0, ~Key{0}}, 1);
  EXPECT_TRUE(split.is_identity());
  EXPECT_THAT(split.keys(), ElementsAre(5, 0, ~Key{0}));
  EXPECT_THAT(split.slots(), ElementsAre(0, 1, 2));
}

TEST(KeySplit, KeepsEachKeyOnce) {
  KeySplit split;
  split.Assign(std::vector<Key>{5, 6, 5, 5}, 1);
  EXPECT_FALSE(split.is_identity());
  EXPECT_THAT(split.keys(), ElementsAre(5, 6));
  EXPECT_THAT(split.slots(), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(split.Counts(), ElementsAre(3, 1));
}

TEST(KeySplit, TakesNoKeys) {
  KeySplit split;
  split.Assign({}, 3);
  EXPECT_EQ(split.size(), 0u);
  EXPECT_EQ(split.begin(3), 0u);
}

TEST(KeySplit, PutsTheKeysOfAServerSideBySide) {
  std::mt19937_64 random(1);
  std::vector<Key> keys(10'000);
  for (Key& key : keys) key = random() % 3000;
  KeySplit split;
  for (int again = 0; again < 2; ++again) {
    split.Assign(keys, 4);
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
    }
  }
}

TEST(KeySplit, SumsAndExpandsRows) {
  for (const size_t dim : {1u, 3u, 8u, 16u, 32u, 64u}) {
    const std::vector<Key> keys{7, 8, 7, 9, 9};
    KeySplit split;
    split.Assign(keys, 2);
    std::vector<float> rows(keys.size() * dim);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    std::vector<float> unique;
    split.Sum(rows, dim, unique);
    std::map<Key, std::vector<float>> sums;
    for (size_t i = 0; i < keys.size(); ++i) {
      auto& sum = sums[keys[i]];
      sum.resize(dim);
      for (size_t k = 0; k < dim; ++k) sum[k] += rows[i * dim + k];
    }
    split.Expand(unique, dim, rows);
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t k = 0; k < dim; ++k) {
        ASSERT_EQ(rows[i * dim + k], sums[keys[i]][k]) << dim;
      }
    }
  }
}

}  // namespace
}  // namespace fleet::ps
