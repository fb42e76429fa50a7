// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/key_index.h"

#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::table {
namespace {

void Put(KeyIndex& index, Key key, uint32_t value) {
  ASSERT_OK(index.Reserve(1));
  *index.FindOrInsert(key, index.Home(HashKey(key))) = value;
}

TEST(KeyIndex, FindsNothingWhenEmpty) {
  const KeyIndex index;
  EXPECT_EQ(index.Find(0), nullptr);
  EXPECT_EQ(index.size(), 0u);
}

TEST(KeyIndex, HoldsEveryKindOfKey) {
  KeyIndex index;
  Put(index, 0, 1);
  Put(index, ~Key{0}, 2);
  Put(index, Key{1} << 63, 3);
  EXPECT_EQ(*index.Find(0), 1u);
  EXPECT_EQ(*index.Find(~Key{0}), 2u);
  EXPECT_EQ(*index.Find(Key{1} << 63), 3u);
  EXPECT_EQ(index.Find(1), nullptr);
}

TEST(KeyIndex, BehavesAsAMapUnderRandomCalls) {
  std::mt19937_64 random(3);
  KeyIndex index;
  std::unordered_map<Key, uint32_t> map;
  for (uint32_t i = 0; i < 200'000; ++i) {
    const Key key = random() % 20'000;
    if (random() % 3 == 0) {
      EXPECT_EQ(index.Erase(key), map.erase(key) == 1);
    } else {
      Put(index, key, i);
      map[key] = i;
    }
  }
  EXPECT_EQ(index.size(), map.size());
  for (Key key = 0; key < 20'000; ++key) {
    const uint32_t* value = index.Find(key);
    const auto it = map.find(key);
    ASSERT_EQ(value != nullptr, it != map.end()) << key;
    if (value != nullptr) {
      ASSERT_EQ(*value, it->second);
    }
  }
  size_t visited = 0;
  index.ForEach([&](Key key, uint32_t value) {
    EXPECT_EQ(map.at(key), value);
    ++visited;
  });
  EXPECT_EQ(visited, map.size());
}

TEST(KeyIndex, TakesFewBytesForAKey) {
  KeyIndex index;
  for (Key key = 0; key < 1'000'000; ++key) {
    Put(index, key, 1);
    if (key > 1000) {
      ASSERT_LE(index.byte_size(), 23 * index.size()) << key;
    }
  }
}

}  // namespace
}  // namespace fleet::table
