// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/bytes.h"

#include <array>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

enum class Color : uint16_t { kRed = 0x1234 };

struct Head {
  uint32_t kind = 0;
  Color color{};
  uint16_t zero = 0;
  uint64_t count = 0;
};

// In memory of just that size, so that a sanitizer sees a read beyond its end.
std::unique_ptr<std::byte[]> CopyOf(std::string_view text) {
  auto copy = std::make_unique<std::byte[]>(text.size());
  std::memcpy(copy.get(), text.data(), text.size());
  return copy;
}

TEST(Bytes, AreLittleEndian) {
  std::string out;
  Append(out, uint32_t{0x64636261});
  Append(out, Color::kRed);
  Append(out, 1.0f);
  EXPECT_EQ(out, std::string("abcd\x34\x12\0\0\x80\x3f", 10));
}

TEST(Bytes, ReadWhatWasWritten) {
  const Head head{.kind = 7, .color = Color::kRed, .count = uint64_t{1} << 60};
  std::string out;
  Append(out, head);
  Append(out, int8_t{-3});
  out += "rest";
  ByteReader in(out);
  const Head again = in.Take<Head>();
  EXPECT_EQ(again.kind, head.kind);
  EXPECT_EQ(again.color, head.color);
  EXPECT_EQ(again.count, head.count);
  EXPECT_EQ(in.Take<int8_t>(), -3);
  EXPECT_EQ(TextOf(in.rest()), "rest");
  EXPECT_TRUE(in.whole());
  EXPECT_FALSE(in.finished());
  EXPECT_EQ(TextOf(in.TakeBytes(4)), "rest");
  EXPECT_TRUE(in.finished());
}

TEST(Bytes, AreFoundAtTheirPlace) {
  std::array<std::byte, 12> bytes{};
  StoreAt(bytes, 1, uint64_t{0x0102030405060708});
  EXPECT_EQ(bytes[1], std::byte{8});
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(LoadAt<uint64_t>(bytes, 1), 0x0102030405060708u);
  EXPECT_EQ(LoadAt<uint16_t>(bytes, 7), 0x0102u);
}

TEST(BytesDeathTest, APlaceBeyondTheEndIsABrokenInvariant) {
  std::array<std::byte, 12> bytes{};
  EXPECT_DEATH(StoreAt(bytes, 5, uint64_t{1}), "");
  EXPECT_DEATH(LoadAt<uint32_t>(bytes, 9), "");
  EXPECT_DEATH(LoadAt<uint32_t>(bytes, ~size_t{0}), "");
}

TEST(ByteReader, GivesNothingAfterWhatWasMissing) {
  std::string out;
  Append(out, uint16_t{5});
  Append(out, uint8_t{6});
  ByteReader in(out);
  EXPECT_EQ(in.Take<uint64_t>(), 0u);
  EXPECT_FALSE(in.whole());
  EXPECT_EQ(in.Take<uint8_t>(), 0u);
  EXPECT_TRUE(in.rest().empty());
  EXPECT_FALSE(in.finished());
}

TEST(ByteReader, EveryPrefixOfAMessageIsAnError) {
  std::string out;
  Append(out, Head{.kind = 1, .count = 2});
  for (uint64_t value : {3, 4}) Append(out, value);
  Append(out, uint8_t{9});
  out += "tail";
  auto read = [](ByteReader& in) {
    const Head head = in.Take<Head>();
    const std::span<const uint64_t> values = in.TakeSpan<uint64_t>(head.count);
    const uint64_t sum = values.size() == 2 ? values[0] + values[1] : 0;
    const auto nine = in.Take<uint8_t>();
    return sum + nine + in.TakeBytes(4).size();
  };
  for (size_t size = 0; size <= out.size(); ++size) {
    const auto copy = CopyOf(std::string_view(out).substr(0, size));
    ByteReader in(std::span<const std::byte>(copy.get(), size));
    const uint64_t seen = read(in);
    EXPECT_EQ(in.finished(), size == out.size()) << size;
    EXPECT_TRUE(size < out.size() || seen == 3 + 4 + 9 + 4);
  }
  out += "x";
  ByteReader longer(out);
  read(longer);
  EXPECT_FALSE(longer.finished());
}

TEST(ByteReader, NoBytesMakeItReadBeyondTheEnd) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const auto copy = CopyOf(text);
    ByteReader in(std::span<const std::byte>(copy.get(), text.size()));
    size_t taken = 0;
    while (in.whole()) {
      // Counts come out of the bytes, as they do in messages.
      const auto count = in.Take<uint8_t>();
      taken += in.whole() ? 1 : 0;
      if (count % 2 == 0) {
        taken += in.TakeBytes(count % 16).size();
      } else {
        const auto large = in.Take<uint64_t>();
        taken += in.whole() ? sizeof(large) : 0;
        taken += in.TakeBytes(large).size();
      }
    }
    ASSERT_LE(taken, text.size());
    ASSERT_TRUE(in.rest().empty());
  }
}

TEST(ByteReader, ACountThatOverflowsIsAnError) {
  std::array<uint64_t, 4> values{};
  ByteReader in(std::as_bytes(std::span(values)));
  EXPECT_TRUE(in.TakeSpan<uint64_t>((uint64_t{1} << 61) + 1).empty());
  EXPECT_FALSE(in.whole());
}

TEST(ByteReader, WhatMakesNoSenseIsAnError) {
  ByteReader in("abc");
  in.Take<uint8_t>();
  in.Spoil();
  EXPECT_FALSE(in.finished());
  EXPECT_TRUE(in.rest().empty());
}

}  // namespace
}  // namespace fleet::base
