// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/message.h"

#include "fleet/base/status_matchers.h"

namespace fleet::channel {
namespace {

using testing::ElementsAre;

TEST(Message, ReadsWhatWasWritten) {
  const std::string bytes = MessageWriter()
                                .U8(0xfe)
                                .U32(0xfedcba98)
                                .U64(0xfedcba9876543210)
                                .Text(std::string("a\0b", 3))
                                .OptionalText(std::nullopt)
                                .OptionalText("")
                                .Texts({"x", "", "yz"})
                                .Failure(OkStatus())
                                .Failure(DataLoss("torn"))
                                .Take();
  MessageReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0xfe);
  EXPECT_EQ(reader.U32(), 0xfedcba98);
  EXPECT_EQ(reader.U64(), 0xfedcba9876543210);
  EXPECT_EQ(reader.Text(), std::string("a\0b", 3));
  EXPECT_EQ(reader.OptionalText(), std::nullopt);
  EXPECT_EQ(reader.OptionalText(), "");
  EXPECT_THAT(reader.Texts(), ElementsAre("x", "", "yz"));
  EXPECT_OK(reader.Failure());
  EXPECT_THAT(reader.Failure(), StatusIs(StatusCode::kDataLoss, "torn"));
  EXPECT_OK(reader.Finish());
}

TEST(Message, IsLittleEndian) {
  EXPECT_EQ(MessageWriter().U32(0x64636261).Take(), "abcd");
  EXPECT_EQ(MessageWriter().Text("hi").Take(), std::string("\2\0\0\0hi", 6));
}

TEST(Message, WhatIsMissingOrLeftOverIsFoundAtTheEnd) {
  const std::string bytes = MessageWriter()
                                .U32(7)
                                .Text("text")
                                .OptionalText("more")
                                .Texts({"a", "bc"})
                                .Failure(DataLoss("torn"))
                                .Take();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string prefix = bytes.substr(0, size);
    MessageReader reader(prefix);
    reader.U32();
    reader.Text();
    reader.OptionalText();
    reader.Texts();
    reader.Failure().ok();
    EXPECT_THAT(reader.Finish(), HasCode(StatusCode::kDataLoss)) << size;
  }
  MessageReader half(bytes);
  half.U32();
  EXPECT_THAT(half.Finish(), HasCode(StatusCode::kDataLoss));
}

TEST(Message, ACountBeyondItsEndAllocatesNothing) {
  const std::string bytes = MessageWriter().U32(0xffffffff).Take();
  MessageReader reader(bytes);
  EXPECT_THAT(reader.Texts(), testing::SizeIs(testing::Le(1)));
  EXPECT_THAT(reader.Finish(), HasCode(StatusCode::kDataLoss));
}

TEST(Message, AFailureOfAnUnknownKindIsDamage) {
  const std::string bytes = MessageWriter().U8(200).Text("?").Take();
  MessageReader reader(bytes);
  EXPECT_THAT(reader.Failure(), HasCode(StatusCode::kInternal));
  EXPECT_THAT(reader.Finish(), HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::channel
