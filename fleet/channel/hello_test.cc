// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/hello.h"

#include <span>
#include <string>
#include <string_view>

#include "fleet/base/status_matchers.h"

namespace fleet::channel {
namespace {

using testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (std::byte b : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    out += kHex[std::to_integer<int>(b) >> 4];
    out += kHex[std::to_integer<int>(b) & 15];
  }
  return out;
}

TEST(Hmac, AgreesWithRfc4231) {
  ASSERT_OK_AND_ASSIGN(
      const Digest second,
      HmacSha256("Jefe", Bytes("what do ya want for nothing?")));
  EXPECT_EQ(Hex(second),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  ASSERT_OK_AND_ASSIGN(
      const Digest sixth,
      HmacSha256(std::string(131, '\xaa'),
                 Bytes("Test Using Larger Than Block-Size Key - Hash Key "
                       "First")));
  EXPECT_EQ(Hex(sixth),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_TRUE(SameDigest(sixth, sixth));
  EXPECT_FALSE(SameDigest(second, sixth));
}

TEST(Hello, SurvivesTheWire) {
  ASSERT_OK_AND_ASSIGN(const Hello hello,
                       MakeHello({ProcessKind::kServer, 41}, true));
  ASSERT_OK_AND_ASSIGN(const Hello back, DecodeHello(Encode(hello)));
  EXPECT_EQ(back.version, kProtocolVersion);
  EXPECT_TRUE(back.has_secret);
  EXPECT_EQ(back.sender.Name(), "server 41");
  EXPECT_EQ(back.nonce, hello.nonce);
}

TEST(Hello, HasANewNonceEachTime) {
  ASSERT_OK_AND_ASSIGN(const Hello one, MakeHello({}, false));
  ASSERT_OK_AND_ASSIGN(const Hello two, MakeHello({}, false));
  EXPECT_NE(one.nonce, two.nonce);
}

TEST(Hello, GarbageIsShownFromItsFirstByte) {
  EXPECT_OK(CheckBegin(Bytes("")));
  EXPECT_OK(CheckBegin(Bytes("FLEET")));
  EXPECT_THAT(CheckBegin(Bytes("G")), HasCode(StatusCode::kDataLoss));
  EXPECT_THAT(CheckBegin(Bytes("GET / HTTP/1.1\r\nHost: x")),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("\"GET / HTTP/1.1\\x0d\\x0a\"")));
}

TEST(Hello, AnotherVersionDoesNotFit) {
  Hello theirs;
  for (const uint32_t version : {1u, 9u}) {
    theirs.version = version;
    EXPECT_THAT(
        CheckFit({}, theirs),
        StatusIs(StatusCode::kFailedPrecondition,
                 HasSubstr(base::Concat("version ", version,
                                        ", and this process version 2"))));
  }
}

TEST(Hello, OneSecretAndNoneDoNotFit) {
  Hello with;
  with.has_secret = true;
  EXPECT_THAT(CheckFit({}, with), StatusIs(StatusCode::kFailedPrecondition,
                                           HasSubstr("this process has none")));
  EXPECT_THAT(CheckFit(with, {}), StatusIs(StatusCode::kFailedPrecondition,
                                           HasSubstr("has no job secret")));
  EXPECT_OK(CheckFit(with, with));
}

TEST(Proof, HoldsForItsSecretSideAndHellosOnly) {
  ASSERT_OK_AND_ASSIGN(const Hello one, MakeHello({}, true));
  ASSERT_OK_AND_ASSIGN(const Hello two, MakeHello({}, true));
  const HelloBytes a = Encode(one);
  const HelloBytes b = Encode(two);
  ASSERT_OK_AND_ASSIGN(const ProofBytes proof,
                       MakeProof("secret", Side::kCaller, a, b));
  EXPECT_OK(CheckProof(proof, "secret", Side::kCaller, a, b));
  for (const Status& wrong : {
           CheckProof(proof, "Secret", Side::kCaller, a, b),
           CheckProof(proof, "secret", Side::kHost, a, b),
           CheckProof(proof, "secret", Side::kCaller, b, a),
           CheckProof(proof, "secret", Side::kCaller, a, a),
       }) {
    EXPECT_THAT(wrong, StatusIs(StatusCode::kFailedPrecondition,
                                HasSubstr("does not know this job's secret")));
  }
}

TEST(Proof, TellsThatTheOthersWasWrong) {
  EXPECT_THAT(CheckProof(MakeRefusal(Verdict::kWrongSecret), "secret",
                         Side::kHost, {}, {}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("refused this process")));
}

}  // namespace
}  // namespace fleet::channel
