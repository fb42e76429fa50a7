// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/ledger.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::ps {
namespace {

Ledger TwoWorkers() {
  return {{{.worker = 1,
            .incarnation = 7,
            .lanes = {{0, 12, {{TableId{3}, 5}, {TableId{4}, 6}}}, {1, 2, {}}}},
           {.worker = 2, .incarnation = 9, .lanes = {}}}};
}

TEST(Ledger, IsWhatItWas) {
  ASSERT_OK_AND_ASSIGN(const Ledger got, DecodeLedger(Encode(TwoWorkers())));
  EXPECT_EQ(got, TwoWorkers());
}

TEST(Ledger, EveryPrefixIsDamage) {
  const std::string bytes = Encode(TwoWorkers());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeLedger(bytes.substr(0, size)),
                HasCode(StatusCode::kDataLoss))
        << size;
  }
  EXPECT_THAT(DecodeLedger(bytes + '\0'), HasCode(StatusCode::kDataLoss));
}

TEST(Ledger, ACountBeyondItsEndIsDamageAtOnce) {
  EXPECT_THAT(DecodeLedger("\xff\xff\xff\xff"), HasCode(StatusCode::kDataLoss));
}

TEST(Goodbyes, AreWhatTheyWere) {
  const Goodbye goodbye{1, 7, {{TableId{3}, {"emb", 12}}}};
  const std::string bytes = Encode(std::vector<Goodbye>{goodbye, {}});
  ASSERT_OK_AND_ASSIGN(const std::vector<Goodbye> got, DecodeGoodbyes(bytes));
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].worker, 1u);
  EXPECT_EQ(got[0].incarnation, 7u);
  EXPECT_EQ(got[0].updates.at(TableId{3}).table, "emb");
  EXPECT_EQ(got[0].updates.at(TableId{3}).count, 12u);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeGoodbyes(bytes.substr(0, size)).status(),
                HasCode(StatusCode::kDataLoss))
        << size;
  }
}

TEST(HelloAnswer, IsWhatItWas) {
  const HelloAnswer answer{2, 8, true, TwoWorkers().workers[0].lanes,
                           "3 updates of emb of worker 1"};
  ASSERT_OK_AND_ASSIGN(const HelloAnswer got,
                       DecodeHelloAnswer(Encode(answer)));
  EXPECT_EQ(got.epoch, 2u);
  EXPECT_EQ(got.incarnation, 8u);
  EXPECT_TRUE(got.is_back);
  EXPECT_EQ(got.lanes, answer.lanes);
  EXPECT_EQ(got.lost_of_gone, answer.lost_of_gone);
}

}  // namespace
}  // namespace fleet::ps
