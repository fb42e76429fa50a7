// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/crc32c.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

uint32_t ByTable(std::string_view bytes, uint32_t before = 0) {
  return Crc32cByTable(std::as_bytes(std::span(bytes)), before);
}

std::string Bytes(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i)
    bytes.push_back(static_cast<char>(first + step * i));
  return bytes;
}

// The iSCSI standard (RFC 3720, B.4) and the usual check value.
TEST(Crc32c, MatchesTheStandard) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Bytes(0, 1)), 0x46dd794eu);
  EXPECT_EQ(Crc32c(Bytes(31, -1)), 0x113fdb5cu);
}

TEST(Crc32c, TableAndInstructionAgreeAtEverySizeAndAddress) {
  std::mt19937 random(1);
  std::string bytes(300, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; begin + size <= 100; ++size) {
      const std::string_view part = std::string_view(bytes).substr(begin, size);
      ASSERT_EQ(Crc32c(part, 7), ByTable(part, 7)) << begin << ' ' << size;
    }
  }
}

TEST(Crc32c, PartsAddUpToTheWhole) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view all(text);
    EXPECT_EQ(Crc32c(all.substr(cut), Crc32c(all.substr(0, cut))), Crc32c(all));
    EXPECT_EQ(ByTable(all.substr(cut), ByTable(all.substr(0, cut))),
              Crc32c(all));
  }
}

// Large ones are computed in several pieces at a time.
TEST(Crc32c, TableAndInstructionAgreeOnLargeMessages) {
  std::mt19937 random(2);
  std::string bytes(100'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  for (const size_t size : {12'287u, 12'288u, 12'289u, 24'583u, 99'999u}) {
    const std::string_view part = std::string_view(bytes).substr(1, size);
    EXPECT_EQ(Crc32c(part, 7), ByTable(part, 7)) << size;
  }
}

TEST(Crc32c, JoinsChecksumsWithoutTheBytes) {
  std::mt19937 random(3);
  std::string bytes(70'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  const std::string_view all(bytes);
  for (const size_t cut : {0u, 1u, 8u, 12'345u, 65'536u, 70'000u}) {
    EXPECT_EQ(JoinCrc32c(Crc32c(all.substr(0, cut)), Crc32c(all.substr(cut)),
                         bytes.size() - cut),
              Crc32c(all))
        << cut;
  }
}

TEST(Crc32c, NoticesEveryBit) {
  std::string text(64, 'a');
  const uint32_t good = Crc32c(text);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_NE(Crc32c(text), good);
    text[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace fleet::base
