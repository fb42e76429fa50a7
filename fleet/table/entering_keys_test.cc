// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/entering_keys.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::table {
namespace {

using Entry = EnteringKeys::Entry;

TEST(EnteringKeys, HandsOutEachOnceInTheOrderOfItsKey) {
  ASSERT_OK_AND_ASSIGN(EnteringKeys entering, EnteringKeys::Make(0));
  std::map<Key, std::vector<uint32_t>> rows;
  auto enter = [&](std::span<const Entry> entries) {
    for (const Entry& entry : entries) rows[entry.key].push_back(entry.row);
    return OkStatus();
  };
  constexpr uint32_t kNumEntries = 100'000;
  constexpr uint32_t kNumKeys = 30'000;
  for (uint32_t i = 0; i < kNumEntries; ++i) {
    ASSERT_OK(entering.Add(HashKey(i % kNumKeys), i, enter));
  }
  ASSERT_OK(entering.TakeAll(enter));
  ASSERT_EQ(rows.size(), kNumKeys);
  for (uint32_t i = 0; i < kNumKeys; ++i) {
    const std::vector<uint32_t>& of_key = rows[HashKey(i)];
    ASSERT_EQ(of_key.size(), kNumEntries / kNumKeys + (i < 10'000 ? 1 : 0));
    for (size_t k = 0; k < of_key.size(); ++k) {
      ASSERT_EQ(of_key[k], i + k * kNumKeys);
    }
  }
  // Nothing is left.
  rows.clear();
  ASSERT_OK(entering.TakeAll(enter));
  EXPECT_TRUE(rows.empty());
}

TEST(EnteringKeys, HandsOutThoseTogetherWhoseHashesAreNear) {
  ASSERT_OK_AND_ASSIGN(EnteringKeys entering, EnteringKeys::Make(200'000));
  size_t most = 0;
  auto enter = [&](std::span<const Entry> entries) {
    for (const Entry& entry : entries) {
      EXPECT_EQ(HashKey(entry.key) >> 56, HashKey(entries[0].key) >> 56);
    }
    most = std::max(most, entries.size());
    return OkStatus();
  };
  for (uint32_t i = 0; i < 200'000; ++i) {
    ASSERT_OK(entering.Add(i, i, enter));
  }
  ASSERT_OK(entering.TakeAll(enter));
  EXPECT_GE(most, 200'000u / 512);
}

TEST(EnteringKeys, PassesOnWhatFails) {
  ASSERT_OK_AND_ASSIGN(EnteringKeys entering, EnteringKeys::Make(0));
  auto fail = [](std::span<const Entry> entries) {
    return entries.empty() ? OkStatus() : Unavailable("no memory");
  };
  ASSERT_OK(entering.Add(1, 0, fail));
  EXPECT_THAT(entering.TakeAll(fail), HasCode(StatusCode::kUnavailable));
}

}  // namespace
}  // namespace fleet::table
