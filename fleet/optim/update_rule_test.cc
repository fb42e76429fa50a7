// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::optim {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(UpdateRule, NamesItsStateAsPaddleDoes) {
  EXPECT_THAT(StateNames(Sgd{}), IsEmpty());
  EXPECT_THAT(StateNames(Momentum{}), ElementsAre("velocity"));
  EXPECT_THAT(StateNames(Adam{}), ElementsAre("moment1", "moment2"));
  EXPECT_THAT(StateNames(Adagrad{}), ElementsAre("moment"));
  EXPECT_THAT(StateNames(Adamax{}), ElementsAre("moment", "inf_norm"));
  EXPECT_THAT(StateNames(RmsProp{}),
              ElementsAre("momentum", "mean_square", "mean_grad"));
  EXPECT_THAT(StateNames(Adadelta{}),
              ElementsAre("_avg_squared_grad", "_avg_squared_update"));
  EXPECT_THAT(StateNames(Lamb{}), ElementsAre("moment1", "moment2"));
  EXPECT_THAT(StateNames(Lars{}), ElementsAre("velocity"));
  EXPECT_THAT(StateNames(Ftrl{}), ElementsAre("squared", "linear"));
}

TEST(UpdateRule, PowersBeginAtTheirBeta) {
  const UpdateRule adam = Adam{.beta1 = 0.8, .beta2 = 0.95};
  EXPECT_THAT(PowerNames(adam), ElementsAre("beta1_pow_acc", "beta2_pow_acc"));
  EXPECT_EQ(PowerBase(adam, 0), 0.8);
  EXPECT_EQ(PowerBase(adam, 1), 0.95);
  EXPECT_THAT(PowerNames(Adamax{}), ElementsAre("beta1_pow_acc"));
  EXPECT_THAT(PowerNames(Momentum{}), IsEmpty());
}

TEST(UpdateRule, OnlyAdagradBeginsElsewhereThanAtZero) {
  EXPECT_EQ(InitialState(Adagrad{.initial = 0.25}), 0.25);
  EXPECT_EQ(InitialState(Adam{}), 0.0);
}

TEST(UpdateRule, LeavesOtherRowsAloneOnlyWherePaddleDoes) {
  EXPECT_TRUE(UpdatesOnlyGivenRows(Sgd{}));
  EXPECT_TRUE(UpdatesOnlyGivenRows(Adagrad{}));
  EXPECT_TRUE(UpdatesOnlyGivenRows(Ftrl{}));
  EXPECT_TRUE(UpdatesOnlyGivenRows(Adam{.lazy = true}));
  EXPECT_FALSE(UpdatesOnlyGivenRows(Adam{}));
  EXPECT_FALSE(UpdatesOnlyGivenRows(Momentum{}));
}

}  // namespace
}  // namespace fleet::optim
