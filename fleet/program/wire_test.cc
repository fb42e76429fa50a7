// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/wire.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Program> Example() {
  auto program = std::make_unique<Program>();
  Block& main = program->block(0);
  main.AddVariable({.name = "x",
                    .type = {DType::kFloat32, {-1, 4}},
                    .lod_level = 1,
                    .stop_gradient = true,
                    .is_data = true});
  main.AddVariable({.name = "w",
                    .type = {DType::kFloat64, {4, 2}},
                    .persistable = true,
                    .is_parameter = true});
  main.AddVariable({.name = "rows",
                    .kind = VariableKind::kSelectedRows,
                    .type = {DType::kFloat32, {100, 8}}});
  main.AddVariable({.name = "feed", .kind = VariableKind::kFeedList});
  Block& body = program->AddBlock(0);
  body.Append({.type = "relu", .inputs = {{"X", {"x"}}}});
  main.Append(
      {.type = "all_kinds",
       .inputs = {{"X", {"x", "w"}}, {"Empty", {}}},
       .outputs = {{"Out", {"y"}}},
       .attrs = {
           {"int", {AttrKind::kInt, int64_t{-7}}},
           {"float", {AttrKind::kFloat, 0.5}},
           {"string", {AttrKind::kString, std::string("a\0b", 3)}},
           {"ints", {AttrKind::kInts, std::vector<int64_t>{1, -2, 3}}},
           {"floats", {AttrKind::kFloats, std::vector<double>{0.25, -1}}},
           {"strings",
            {AttrKind::kStrings, std::vector<std::string>{"a", "", "c"}}},
           {"bool", {AttrKind::kBool, true}},
           {"bools", {AttrKind::kBools, std::vector<bool>{true, false}}},
           {"block", {AttrKind::kBlock, int64_t{1}}},
           {"blocks", {AttrKind::kBlocks, std::vector<int64_t>{1, 0}}},
           {"long", {AttrKind::kLong, int64_t{1} << 40}},
           {"longs", {AttrKind::kLongs, std::vector<int64_t>{-1, 1LL << 50}}},
           {"float64", {AttrKind::kFloat64, 0.1}},
           {"float64s", {AttrKind::kFloat64s, std::vector<double>{0.1, 2}}},
           {"no_ints", {AttrKind::kInts, std::vector<int64_t>{}}},
       }});
  return program;
}

TEST(WireTest, RoundTrip) {
  std::unique_ptr<Program> program = Example();
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> read,
                       Parse(Serialize(*program)));
  ASSERT_EQ(read->num_blocks(), 2);
  const Block& from = program->block(0);
  const Block& to = read->block(0);
  ASSERT_EQ(to.variables().size(), from.variables().size());
  for (size_t i = 0; i < to.variables().size(); ++i) {
    EXPECT_EQ(*to.variables()[i], *from.variables()[i]);
  }
  ASSERT_EQ(to.num_ops(), 1);
  EXPECT_EQ(to.op(0).type, "all_kinds");
  EXPECT_EQ(to.op(0).inputs, from.op(0).inputs);
  EXPECT_EQ(to.op(0).outputs, from.op(0).outputs);
  EXPECT_EQ(to.op(0).attrs, from.op(0).attrs);
  EXPECT_EQ(read->block(1).parent(), 0);
  EXPECT_EQ(read->block(1).op(0).type, "relu");
  EXPECT_EQ(Serialize(*read), Serialize(*program));
}

TEST(WireTest, EveryCutIsAnErrorOrAShorterProgram) {
  const std::string bytes = Serialize(*Example());
  for (size_t n = 0; n < bytes.size(); ++n) {
    Result<std::unique_ptr<Program>> read = Parse(bytes.substr(0, n));
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
    }
  }
  EXPECT_EQ(Parse("").status().code(), StatusCode::kDataLoss);
}

TEST(WireTest, EveryChangedByteIsReadOrRefused) {
  const std::string bytes = Serialize(*Example());
  for (size_t n = 0; n < bytes.size(); ++n) {
    for (int bit : {0, 3, 7}) {
      std::string changed = bytes;
      changed[n] = static_cast<char>(changed[n] ^ (1 << bit));
      Result<std::unique_ptr<Program>> read = Parse(changed);
      if (!read.ok()) {
        EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
      }
    }
  }
}

// Written by Paddle 2.6: numbers that carry their type, and variables in place
// of numbers.
TEST(WireTest, KindsOfAttributesThatOnlyNewerVersionsHave) {
  static constexpr char kBytes[] =
      "\x0a\x7a\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x22"
      "\x6b\x1a\x0c\x61\x73\x73\x69\x67\x6e\x5f\x76\x61\x6c\x75\x65\x22"
      "\x26\x0a\x06\x76\x61\x6c\x75\x65\x73\x10\x11\xaa\x01\x0b\x08\x03"
      "\x21\x00\x00\x00\x00\x00\x00\xf8\x3f\xaa\x01\x0b\x08\x03\x21\x00"
      "\x00\x00\x00\x00\x00\x00\xc0\x22\x10\x0a\x05\x77\x68\x6f\x6c\x65"
      "\x10\x11\xaa\x01\x04\x08\x02\x18\x07\x22\x0e\x0a\x03\x6f\x6e\x65"
      "\x10\x10\xa2\x01\x04\x08\x01\x10\x01\x22\x11\x0a\x05\x73\x68\x61"
      "\x70\x65\x10\x0e\x92\x01\x01\x6e\x92\x01\x01\x6d";
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Program> program,
                       Parse(std::string_view(kBytes, sizeof(kBytes) - 1)));
  const AttrMap& attrs = program->block(0).op(0).attrs;
  EXPECT_EQ(attrs.at("values"),
            (AttrValue{AttrKind::kFloat64s, std::vector<double>{1.5, -2}}));
  EXPECT_EQ(attrs.at("whole"),
            (AttrValue{AttrKind::kLongs, std::vector<int64_t>{7}}));
  EXPECT_EQ(attrs.at("one"), (AttrValue{AttrKind::kBool, true}));
  EXPECT_EQ(attrs.at("shape"), (AttrValue{AttrKind::kStrings,
                                          std::vector<std::string>{"n", "m"}}));
}

TEST(WireTest, BlockThatIsNotThere) {
  Program program;
  program.block(0).Append(
      {.type = "while",
       .attrs = {{"sub_block", {AttrKind::kBlock, int64_t{3}}}}});
  EXPECT_THAT(Parse(Serialize(program)).status().message(),
              HasSubstr("while: sub_block is block 3 of 1"));
}

TEST(WireTest, TypesAlone) {
  const TensorType type{DType::kBfloat16, {2, 0, 7}};
  const std::string bytes = Serialize(type);
  ASSERT_OK_AND_ASSIGN(TensorType back, ParseTensorType(bytes));
  EXPECT_EQ(back, type);
  EXPECT_THAT(ParseTensorType(bytes.substr(0, bytes.size() - 1)),
              HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::program
