// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/json.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::saved {
namespace {

std::string NumberText(double number) {
  std::string out;
  AppendJsonNumber(out, number);
  return out;
}

std::string QuotedText(std::string_view text) {
  std::string out;
  EXPECT_TRUE(AppendJsonText(out, text));
  return out;
}

template <class T>
T Read(std::string_view text) {
  const Result<Json> json = ParseJson(text, 10);
  EXPECT_TRUE(json.ok()) << text;
  return std::get<T>(json->held);
}

// What Python's repr() gives.
TEST(Json, NumbersAreWrittenAsPythonWritesThem) {
  EXPECT_EQ(NumberText(0.0), "0.0");
  EXPECT_EQ(NumberText(-0.0), "-0.0");
  EXPECT_EQ(NumberText(1), "1.0");
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(123456789.125), "123456789.125");
  EXPECT_EQ(NumberText(1e15), "1000000000000000.0");
  EXPECT_EQ(NumberText(1.5e15), "1500000000000000.0");
  EXPECT_EQ(NumberText(1e16), "1e+16");
  EXPECT_EQ(NumberText(1.25e16), "1.25e+16");
  EXPECT_EQ(NumberText(0.0001), "0.0001");
  EXPECT_EQ(NumberText(0.00012), "0.00012");
  EXPECT_EQ(NumberText(0.00001), "1e-05");
  EXPECT_EQ(NumberText(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(NumberText(1e100), "1e+100");
  EXPECT_EQ(NumberText(5e-324), "5e-324");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::max()),
            "1.7976931348623157e+308");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::infinity()), "Infinity");
  EXPECT_EQ(NumberText(-std::numeric_limits<double>::infinity()), "-Infinity");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(Json, EveryNumberComesBack) {
  std::mt19937_64 draw(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = draw();
    double number = 0;
    std::memcpy(&number, &bits, sizeof(number));
    if (!(number - number == 0)) continue;
    ASSERT_EQ(Read<double>(NumberText(number)), number);
  }
}

TEST(Json, TextsAreWrittenAsciiOnly) {
  EXPECT_EQ(QuotedText("a/b"), R"("a/b")");
  EXPECT_EQ(QuotedText("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
  EXPECT_EQ(QuotedText(std::string("\0\x1f\x7f", 3)),
            R"("\u0000\u001f\u007f")");
  EXPECT_EQ(QuotedText("\u00e9\u4e2d"), R"("\u00e9\u4e2d")");
  EXPECT_EQ(QuotedText("\U0001f600"), R"("\ud83d\ude00")");
  // Half a pair, which Python's texts may hold.
  EXPECT_EQ(QuotedText("\xed\xa0\x80"), R"("\ud800")");
}

TEST(Json, WhatIsNoUtf8IsRefused) {
  std::string out;
  for (const char* text : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80",
                           "\xf4\x90\x80\x80", "\xff", "a\xc3z"}) {
    EXPECT_FALSE(AppendJsonText(out, text)) << text;
    EXPECT_FALSE(ParseJson('"' + std::string(text) + '"', 1).ok()) << text;
  }
}

TEST(Json, TextsAreRead) {
  EXPECT_EQ(Read<std::string>(R"("a\/\"\\\b\f\n\r\t")"), "a/\"\\\b\f\n\r\t");
  EXPECT_EQ(Read<std::string>(R"("\u00e9\u4E2D é")"), "\u00e9\u4e2d é");
  EXPECT_EQ(Read<std::string>(R"("\ud83d\ude00")"), "\U0001f600");
  EXPECT_EQ(Read<std::string>(R"("\ud800\u0041\ud800")"),
            "\xed\xa0\x80"
            "A"
            "\xed\xa0\x80");
}

TEST(Json, IntegersOfAnySizeAreRead) {
  EXPECT_EQ(Read<int64_t>("-0"), 0);
  EXPECT_EQ(Read<int64_t>("-9223372036854775808"),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Read<BigInteger>("9223372036854775808").digits,
            "9223372036854775808");
  EXPECT_EQ(Read<double>("1e3"), 1000);
  EXPECT_FALSE(ParseJson(std::string(4301, '9'), 1).ok());
}

TEST(Json, MembersAreFound) {
  ASSERT_OK_AND_ASSIGN(const Json json,
                       ParseJson(R"( { "a" : [ 1 , null ] , "b" : { } } )", 3));
  EXPECT_EQ(std::get<JsonArray>(json.Find("a")->held).size(), 2u);
  EXPECT_TRUE(std::get<JsonObject>(json.Find("b")->held).empty());
  EXPECT_EQ(json.Find("c"), nullptr);
  EXPECT_EQ(json.Find("a")->Find("b"), nullptr);
}

TEST(Json, WhatIsNoneIsRefused) {
  for (const char* text :
       {"",       " ",        "nul",       "tru",         "+1",
        "01",     "1.",       ".5",        "1e",          "1e+",
        "--1",    "0x1",      "1e999",     "[",           "[1",
        "[1,]",   "[,]",      "[1 2]",     "{",           "{}}",
        "{1:2}",  R"({"a"})", R"({"a":})", R"({"a":1,})", R"(")",
        R"("\)",  R"("\x")",  R"("\u12")", R"("\u-123")", R"("\ud800\u")",
        "\"\n\"", "1 2",      "nan",       "\xff"}) {
    EXPECT_THAT(ParseJson(text, 5), HasCode(StatusCode::kDataLoss)) << text;
  }
}

TEST(Json, DepthHasALimit) {
  EXPECT_TRUE(ParseJson("[[[]]]", 3).ok());
  EXPECT_FALSE(ParseJson("[[[[]]]]", 3).ok());
  EXPECT_FALSE(ParseJson(std::string(1000000, '['), 300).ok());
}

}  // namespace
}  // namespace fleet::saved
