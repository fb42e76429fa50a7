// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/precision.h"

#include <gtest/gtest.h>

#include "fleet/program/define_ops.h"

namespace fleet::program {
namespace {

TEST(Precisions, EveryListedNameIsAnOp) {
  OpRegistry ops;
  DefineAllOps(ops);
  for (const auto& [name, precision] : DefinedPrecisions().listed()) {
    EXPECT_NE(ops.Find(name), nullptr) << name;
    EXPECT_NE(precision, Precision::kUnlisted) << name;
  }
  EXPECT_FALSE(DefinedPrecisions().listed().empty());
}

TEST(Precisions, AnOpIsInOneListOrNone) {
  const Precisions& defined = DefinedPrecisions();
  EXPECT_EQ(defined.Of("matmul_v2"), Precision::kWhite);
  EXPECT_EQ(defined.Of("tanh"), Precision::kGray);
  EXPECT_EQ(defined.Of("softmax"), Precision::kBlack);
  EXPECT_EQ(defined.Of("scatter"), Precision::kBlackAlways);
  EXPECT_EQ(defined.Of("erf"), Precision::kUnlisted);
  EXPECT_EQ(defined.Of("tanh", {{"tanh", Precision::kWhite}}),
            Precision::kWhite);
}

TEST(PrecisionsDeathTest, ItIsSaidOnce) {
  Precisions listed;
  listed.Add(Precision::kGray, {"demo"});
  EXPECT_DEATH(listed.Add(Precision::kBlack, {"demo"}), "demo is said twice");
}

TEST(AtLevel, ALevelSaysHowFarItGoes) {
  const auto at = [](AmpLevel level, bool promote) {
    std::string text;
    for (const Precision precision :
         {Precision::kWhite, Precision::kGray, Precision::kBlack,
          Precision::kBlackAlways, Precision::kUnlisted}) {
      const Computes computes = AtLevel(precision, level, promote);
      text += computes == Computes::kShort       ? 's'
              : computes == Computes::kGoesAlong ? 'g'
                                                 : '-';
    }
    return text;
  };
  EXPECT_EQ(at(AmpLevel::kNone, false), "-----");
  EXPECT_EQ(at(AmpLevel::kWhite, false), "s----");
  EXPECT_EQ(at(AmpLevel::kByList, false), "sg---");
  EXPECT_EQ(at(AmpLevel::kAll, false), "sss--");
  EXPECT_EQ(at(AmpLevel::kAll, true), "sgg--");
}

}  // namespace
}  // namespace fleet::program
