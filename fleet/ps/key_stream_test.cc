// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/key_stream.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::ps {
namespace {

using testing::ElementsAre;

TEST(KeyStream, LooksNoFurtherThanAsked) {
  std::vector<Key> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i / 2;
  std::vector<float> rows(keys.size());
  const RowsOfKeys part{keys, rows};
  KeyStream stream;
  stream.Begin(std::span(&part, 1), 1, 1);
  const size_t first = stream.Reach(0, 10);
  EXPECT_GE(first, 10u);
  EXPECT_LT(first, 100u);
  EXPECT_THAT(stream.keys(0, 1, 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(stream.Reach(0, 5000), 500u);
}

TEST(KeyStream, CountsKeys) {
  const std::vector<Key> keys{5, 6, 5, 5};
  std::vector<float> rows(4);
  const RowsOfKeys part{keys, rows};
  KeyStream stream;
  stream.Begin(std::span(&part, 1), 1, 1);
  stream.Finish();
  std::vector<uint32_t> counts(2);
  stream.Count(0, 0, counts);
  EXPECT_THAT(counts, ElementsAre(3, 1));
}

// Memory that follows keys is used as it is; where keys occur twice or lie in
// two parts, it is not.
TEST(KeyStream, KnowsWhichRowsLieSideBySide) {
  const std::vector<Key> keys{1, 2, 3, 2, 4};
  std::vector<float> memory(20);
  const std::vector<RowsOfKeys> parts{
      {keys, std::span(memory).first(10)},
      {std::vector<Key>{}, {}},
  };
  KeyStream stream;
  stream.Begin(parts, 2, 1);
  stream.Finish();
  EXPECT_EQ(stream.Direct(0, 0, 3).data(), memory.data());
  EXPECT_EQ(stream.Direct(0, 0, 3).size(), 6u);
  EXPECT_TRUE(stream.Direct(0, 0, 4).empty());
  EXPECT_EQ(stream.Direct(0, 3, 1).data(), memory.data() + 8);

  // The second part lies right behind the first, and is still another one.
  const std::vector<Key> more{7, 8};
  const std::vector<RowsOfKeys> two{
      {std::span(keys).first(2), std::span(memory).first(4)},
      {more, std::span(memory).subspan(4, 4)}};
  stream.Begin(two, 2, 1);
  stream.Finish();
  EXPECT_TRUE(stream.Direct(0, 1, 2).empty());
  EXPECT_FALSE(stream.Direct(0, 2, 2).empty());
}

TEST(KeyStream, BringsRowsToAllPlacesOfAKey) {
  std::mt19937_64 random(1);
  for (const uint32_t num_servers : {1u, 4u}) {
    for (const size_t dim : {1u, 3u, 8u, 16u, 32u, 64u}) {
      std::vector<std::vector<Key>> keys(3, std::vector<Key>(400));
      std::vector<std::vector<float>> rows(3, std::vector<float>(400 * dim));
      std::vector<RowsOfKeys> parts;
      for (size_t p = 0; p < 3; ++p) {
        for (Key& key : keys[p]) key = random() % 500;
        parts.push_back({keys[p], rows[p]});
      }
      KeyStream stream;
      stream.Begin(parts, dim, num_servers);
      for (uint32_t s = 0; s < num_servers; ++s) {
        for (size_t begin = 0; stream.Reach(s, begin + 32) > begin;
             begin += 32) {
          const size_t count =
              std::min<size_t>(32, stream.Reach(s, begin + 32) - begin);
          const auto of_server = stream.keys(s, begin, count);
          std::vector<float> came;
          for (Key key : of_server) {
            EXPECT_TRUE(num_servers == 1 ||
                        table::ServerOfKey(key, num_servers) == s);
            came.insert(came.end(), dim, static_cast<float>(key));
          }
          stream.Scatter(s, begin, count, came.data());
        }
      }
      stream.CopyRepeats();
      for (size_t p = 0; p < 3; ++p) {
        for (size_t i = 0; i < rows[p].size(); ++i) {
          ASSERT_EQ(rows[p][i], static_cast<float>(keys[p][i / dim]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fleet::ps
