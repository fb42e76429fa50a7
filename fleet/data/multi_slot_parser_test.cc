// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/multi_slot_parser.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/data/batch.h"

namespace fleet::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Slot> kSlots = {
    {.name = "ids", .type = SlotType::kInt64, .ragged = true},
    {.name = "dense", .type = SlotType::kFloat32, .dims = {3}},
    {.name = "label", .type = SlotType::kInt64, .dims = {1}}};

// What a line with one value of `slot` holds.
Batch Parsed(const std::vector<Slot>& slots,
             const std::vector<std::string>& lines) {
  const MultiSlotParser parser(slots);
  SampleBlock block;
  for (const std::string& line : lines) {
    const Status status = parser.Parse(line, 0, block);
    EXPECT_OK(status);
  }
  std::vector<SampleView> samples;
  for (size_t i = 0; i < block.num_samples(); ++i) {
    samples.push_back(block.sample(i));
  }
  Batch batch;
  batch.Fill(slots, samples);
  return batch;
}

std::string Refused(const std::vector<Slot>& slots, const std::string& line) {
  SampleBlock block;
  const Status status = MultiSlotParser(slots).Parse(line, 0, block);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
  EXPECT_EQ(block.num_samples(), 0u);
  EXPECT_EQ(block.num_words(), 0u);
  return status.message();
}

TEST(MultiSlotParser, CutsLinesIntoSlots) {
  const Batch batch = Parsed(kSlots, {"2 7 8 3 0.5 -1 2e1 1 1", "0 3 1 2 3 1 0",
                                      "\t1  9  3 4 5 6\t1 1 \r"});
  EXPECT_EQ(batch.num_samples(), 3u);
  EXPECT_THAT(batch.columns()[0].ints, ElementsAre(7, 8, 9));
  EXPECT_THAT(batch.columns()[0].offsets, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(batch.columns()[1].floats,
              ElementsAre(0.5f, -1, 20, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.columns()[1].offsets, IsEmpty());
  EXPECT_THAT(batch.columns()[2].ints, ElementsAre(1, 0, 1));
}

TEST(MultiSlotParser, KeysHaveAll64Bits) {
  const std::vector<Slot> slots = {{.name = "k", .ragged = true}};
  const Batch batch = Parsed(
      slots, {"6 18446744073709551615 9223372036854775808 9223372036854775807 "
              "-9223372036854775808 -1 00000000000000000000000012"});
  EXPECT_THAT(batch.columns()[0].ints,
              ElementsAre(-1, std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min(), -1, 12));
  EXPECT_THAT(Refused(slots, "1 18446744073709551616"),
              HasSubstr("'18446744073709551616', which does not fit"));
  EXPECT_THAT(Refused(slots, "1 -9223372036854775809"), HasSubstr("not fit"));
}

// Digits are looked at eight at a time, where the line is long enough.
TEST(MultiSlotParser, NumbersOfEveryLengthAnywhereInALine) {
  const std::vector<Slot> slots = {
      {.name = "k", .ragged = true},
      {.name = "f", .type = SlotType::kFloat32, .ragged = true}};
  const std::string digits = "9182736450918273645";
  for (size_t length = 1; length <= digits.size(); ++length) {
    const std::string key = digits.substr(0, length);
    const std::string fraction = "0." + digits.substr(0, length);
    for (const char* behind : {"", " ", "          "}) {
      const Batch batch = Parsed(slots, {"2 " + key + " " + key + " 2 " +
                                         fraction + " " + fraction + behind});
      const auto bits =
          static_cast<int64_t>(std::strtoull(key.c_str(), nullptr, 10));
      EXPECT_THAT(batch.columns()[0].ints, ElementsAre(bits, bits));
      const auto part =
          static_cast<float>(std::strtod(fraction.c_str(), nullptr));
      EXPECT_THAT(batch.columns()[1].floats, ElementsAre(part, part));
    }
    for (const char* wrong : {"x", "/", ":", "\x80"}) {
      EXPECT_THAT(Refused(slots, "1 " + key + wrong + " 1 0.5         "),
                  HasSubstr("expected an integer of 64 bits"));
    }
  }
}

TEST(MultiSlotParser, FloatsAreThoseOfTheCLibrary) {
  const std::vector<Slot> slots = {
      {.name = "f", .type = SlotType::kFloat32, .dims = {1}}};
  std::vector<std::string> texts = {"0",
                                    "-0",
                                    "1.",
                                    ".5",
                                    "+2.25",
                                    "1e-3",
                                    "1E+10",
                                    "3.4e38",
                                    "1e-45",
                                    "1e-400",
                                    "16777217",
                                    "0.1",
                                    "inf",
                                    "-inf",
                                    "123456789012345678901234567890",
                                    "0.000000000000000000000000000001234",
                                    "9007199254740993",
                                    "1.17549435082228750797e-38"};
  uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    char text[64];
    std::snprintf(text, sizeof(text), i % 2 == 0 ? "%.*g" : "%.*f", 1 + i % 17,
                  std::ldexp(static_cast<double>(state >> 11),
                             static_cast<int>(state % 40) - 60));
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const Batch batch = Parsed(slots, {"1 " + text});
    EXPECT_EQ(batch.columns()[0].floats[0],
              static_cast<float>(std::strtod(text.c_str(), nullptr)))
        << text;
  }
  EXPECT_TRUE(std::isnan(Parsed(slots, {"1 nan"}).columns()[0].floats[0]));
  EXPECT_THAT(Refused(slots, "1 1e39"), HasSubstr("does not fit"));
  EXPECT_THAT(Refused(slots, "1 1e400"), HasSubstr("does not fit"));
}

TEST(MultiSlotParser, ErrorsNameTheSlotAndWhatWasExpected) {
  EXPECT_THAT(Refused(kSlots, "1 7 2 0.5 1 1 1"),
              HasSubstr("slot 'dense' (2 of 3): expected 3 values, but the "
                        "line says 2"));
  EXPECT_THAT(Refused(kSlots, "2 7 x8 3 1 2 3 1 0"),
              HasSubstr("slot 'ids' (1 of 3): expected an integer of 64 bits "
                        "as value 2 of 2, but found 'x8'"));
  EXPECT_THAT(Refused(kSlots, "1 7.5 3 1 2 3 1 0"),
              HasSubstr("an integer of 64 bits as value 1 of 1, but found "
                        "'7.5'"));
  EXPECT_THAT(Refused(kSlots, "1 7 3 1 2 three 1 0"),
              HasSubstr("expected a number as value 3 of 3, but found "
                        "'three'"));
  EXPECT_THAT(Refused(kSlots, "ids 7"),
              HasSubstr("expected the number of its values, but found 'ids'"));
  EXPECT_THAT(Refused(kSlots, "-1 7"), HasSubstr("but found '-1'"));
}

TEST(MultiSlotParser, ALineWithTooFewOrTooManySlots) {
  EXPECT_THAT(Refused(kSlots, "1 7 3 1 2 3"),
              HasSubstr("slot 'label' (3 of 3): expected the number of its "
                        "values, but found the end of the line"));
  EXPECT_THAT(Refused(kSlots, "1 7 3 1 2"),
              HasSubstr("but found the end of the line"));
  EXPECT_THAT(Refused(kSlots, "1 7 3 1 2 3 1 0 1 5"),
              HasSubstr("goes on after the last of 3 slots, 'label', with "
                        "'1'"));
}

TEST(MultiSlotParser, ACountThatTheLineCannotHoldTakesNoMemory) {
  EXPECT_THAT(Refused(kSlots, "4000000000000 1 2"),
              HasSubstr("the line says 4000000000000 values and has 4 "
                        "characters left"));
}

TEST(MultiSlotParser, RowsOfSeveralNumbers) {
  const std::vector<Slot> slots = {
      {.name = "r", .type = SlotType::kFloat32, .ragged = true, .dims = {2}}};
  const Batch batch = Parsed(slots, {"4 1 2 3 4", "2 5 6"});
  EXPECT_THAT(batch.columns()[0].offsets, ElementsAre(0, 2, 3));
  EXPECT_THAT(Refused(slots, "3 1 2 3"), HasSubstr("no rows of 2"));
  const Batch none = Parsed(slots, {"0", "0"});
  EXPECT_THAT(none.columns()[0].offsets, ElementsAre(0, 0, 0));
  EXPECT_THAT(none.columns()[0].floats, IsEmpty());
}

TEST(MultiSlotParser, TextsBeforeTheSlotsArePassedOver) {
  const MultiSlotParser parser({{.name = "x", .dims = {1}}}, 2);
  SampleBlock block;
  ASSERT_OK(parser.Parse("1 id-17 1 made/from/this 1 5", 3, block));
  EXPECT_EQ(block.sample(0).file(), 3u);
  EXPECT_THAT(parser.Parse("1 5", 0, block).message(),
              HasSubstr("text 2 of 2 before the slots"));
}

TEST(MultiSlotParser, EmptyLinesAreNoSamples) {
  SampleBlock block;
  const MultiSlotParser parser(kSlots);
  ASSERT_OK(parser.Parse("", 0, block));
  ASSERT_OK(parser.Parse(" \t\r", 0, block));
  EXPECT_EQ(block.num_samples(), 0u);
}

TEST(CheckSlots, RefusesWhatCannotBeRead) {
  EXPECT_THAT(CheckSlots({}).message(), HasSubstr("no slots"));
  EXPECT_THAT(CheckSlots({{.name = "a"}, {.name = "a"}}).message(),
              HasSubstr("named twice"));
  EXPECT_THAT(CheckSlots({{.name = "a", .dims = {-1}}}).message(),
              HasSubstr("unknown size"));
  EXPECT_OK(CheckSlots(kSlots));
}

}  // namespace
}  // namespace fleet::data
