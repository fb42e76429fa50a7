// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/sum_stream.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
TEST(SumStream, LeavesDifferentKeysOfOneServerWhereTheyAre) {
  const std::vector<Key> keys{5, 0, ~Key{0}};
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const ValuesOfKeys part{keys, values};
  SumStream stream;
  stream.Begin(std::span(&part, 1), 2, 1);
  ASSERT_EQ(stream.Reach(0, 3), 3u);
  EXPECT_THAT(stream.keys(0, 0, 3), ElementsAre(5, 0, ~Key{0}));
  std::vector<float> memory;
  EXPECT_EQ(stream.values(0, 0, 3, memory).data(), values.data());
  EXPECT_EQ(stream.values(0, 1, 2, memory).data(), values.data() + 2);
  EXPECT_THAT(memory, IsEmpty());
}

TEST(SumStream, HasEachKeyOnceWithItsSums) {
  const std::vector<Key> keys{5, 6, 5, 5, 7, 6};
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<float> shows{1, 1, 1, 1, 1, 2};
  const std::vector<float> clicks{0, 1, 0, 1, 1, 0};
  const ValuesOfKeys part{keys, values};
  SumStream stream;
  stream.Begin(std::span(&part, 1), 1, 1, shows, clicks);
  ASSERT_EQ(stream.Reach(0, 100), 3u);
  std::vector<float> memory;
  std::vector<std::vector<float>> found;
  for (size_t i = 0; i < 3; ++i) {
    found.push_back({static_cast<float>(stream.keys(0, i, 1)[0]),
                     stream.values(0, i, 1, memory)[0],
                     stream.shows(0, i, 1)[0], stream.clicks(0, i, 1)[0]});
  }
  EXPECT_THAT(found, UnorderedElementsAre(ElementsAre(5, 8, 3, 1),
                                          ElementsAre(6, 8, 3, 1),
                                          ElementsAre(7, 5, 1, 1)));
}

TEST(SumStream, TakesNoKeys) {
  const ValuesOfKeys nothing;
  SumStream stream;
  stream.Begin(std::span(&nothing, 1), 4, 3);
  for (uint32_t server = 0; server < 3; ++server) {
    EXPECT_EQ(stream.Reach(server, 1), 0u);
  }
  std::vector<float> memory;
  EXPECT_THAT(stream.values(0, 0, 0, memory), IsEmpty());
}

TEST(SumStream, LetsKeysGoBeforeAllWereLookedAt) {
  std::vector<Key> keys(10'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> values(keys.size());
  const ValuesOfKeys part{keys, values};
  for (const uint32_t num_servers : {1u, 4u}) {
    SumStream stream;
    stream.Begin(std::span(&part, 1), 1, num_servers);
    EXPECT_GE(stream.Reach(0, 40), 40u);
    EXPECT_LT(stream.Reach(0, 40), 200u);
    size_t all = 0;
    for (uint32_t s = 0; s < num_servers; ++s) all += stream.Reach(s, 10'000);
    EXPECT_EQ(all, 10'000u);
  }
}

TEST(RepeatFilter, NamesAllThatRepeatAndFewOthers) {
  RepeatFilter filter;
  for (int again = 0; again < 2; ++again) {
    filter.Reset(10'000);
    for (Key key = 0; key < 9'000; ++key) filter.Mark(key * 77);
    for (Key key = 0; key < 1'000; ++key) filter.Mark(key * 77);
    for (Key key = 0; key < 1'000; ++key) {
      ASSERT_TRUE(filter.MayRepeat(key * 77));
    }
    size_t others = 0;
    for (Key key = 1'000; key < 9'000; ++key) {
      others += filter.MayRepeat(key * 77) ? 1 : 0;
    }
    EXPECT_LT(others, 1'000u);
    EXPECT_GE(filter.num_again(), 1'000u);
    EXPECT_LE(others + 2'000, 2 * filter.num_again());
  }
}

// What it has after each request is complete, and at the end it is all.
TEST(SumStream, MergesPartsForAllServers) {
  std::mt19937_64 random(3);
  SumStream stream;  // its memory is used again
  for (const uint64_t num_keys : {300u, 100'000u}) {
    for (const uint32_t num_servers : {1u, 3u}) {
      for (const size_t dim : {1u, 3u, 16u}) {
        std::vector<std::vector<Key>> keys(3);
        std::vector<std::vector<float>> values(3);
        std::map<Key, std::vector<float>> sums;
        for (size_t p : {0u, 2u}) {  // part 1 stays empty
          for (int i = 0; i < 500; ++i) {
            const Key key = random() % num_keys;
            keys[p].push_back(key);
            sums[key].resize(dim);
            for (size_t k = 0; k < dim; ++k) {
              const auto value = static_cast<float>(random() % 16);
              values[p].push_back(value);
              sums[key][k] += value;
            }
          }
        }
        std::vector<ValuesOfKeys> parts;
        for (size_t p = 0; p < 3; ++p) parts.push_back({keys[p], values[p]});
        stream.Begin(parts, dim, num_servers);
        auto expected = sums;
        for (uint32_t s = 0; s < num_servers; ++s) {
          for (size_t begin = 0;; begin += 40) {
            const size_t end = stream.Reach(s, begin + 40);
            if (end <= begin) break;
            const size_t count = std::min<size_t>(40, end - begin);
            std::vector<float> memory;
            const auto got = stream.values(s, begin, count, memory);
            ASSERT_EQ(got.size(), count * dim);
            for (size_t i = 0; i < count; ++i) {
              const Key key = stream.keys(s, begin, count)[i];
              ASSERT_EQ(table::ServerOfKey(key, num_servers), s);
              const auto it = expected.find(key);
              ASSERT_NE(it, expected.end()) << key << " came twice";
              ASSERT_TRUE(
                  std::equal(it->second.begin(), it->second.end(),
                             got.begin() + static_cast<ptrdiff_t>(i * dim)));
              expected.erase(it);
            }
          }
        }
        EXPECT_TRUE(expected.empty());
      }
    }
  }
}

}  // namespace
}  // namespace fleet::ps
