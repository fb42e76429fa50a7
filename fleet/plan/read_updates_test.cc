// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/read_updates.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kStartup[] = R"({
    {Out=['rate']} = fill_constant(inputs={}, value = 0.5)
    {Out=['moment']} = fill_constant(inputs={}, value = 0.1)
})";

Result<std::vector<ParameterUpdate>> Read(
    const std::string& ops, const std::set<std::string>* only = nullptr) {
  auto main = Parse("{" + ops + "}");
  auto startup = Parse(kStartup);
  const ProgramIndex index(*main);
  const ProgramIndex startup_index(*startup);
  return ReadUpdates(*main, index, startup_index, {}, only);
}

// The only update of `w`, whose gradient is w@GRAD before `ops`.
table::UpdateOptions ReadOne(const std::string& ops) {
  Result<std::vector<ParameterUpdate>> updates = Read(ops);
  EXPECT_OK(updates.status());
  if (!updates.ok() || updates->size() != 1) return {};
  EXPECT_EQ((*updates)[0].parameter, "w");
  EXPECT_EQ((*updates)[0].gradient, "w@GRAD");
  return (*updates)[0].options;
}

// An update of w by `type`, with the attributes and further inputs.
std::string Update(const std::string& type, const std::string& attrs = "",
                   const std::string& inputs = "",
                   const std::string& gradient = "w@GRAD") {
  return "\n{ParamOut=['w']} = " + type + "(inputs={Param=['w'], Grad=['" +
         gradient + "'], LearningRate=['rate']" + inputs + "}" + attrs +
         ", op_role = 2)\n";
}

TEST(ReadUpdates, KnowsEveryRule) {
  EXPECT_EQ(ReadOne(Update("sgd")).rule, optim::UpdateRule(optim::Sgd{}));
  EXPECT_EQ(
      ReadOne(Update("momentum", ", mu = 0.75, use_nesterov = True")).rule,
      optim::UpdateRule(optim::Momentum{.mu = 0.75, .nesterov = true}));
  EXPECT_EQ(ReadOne(Update("adam",
                           ", beta1 = 0.5, beta2 = 0.75, epsilon = 0.125, "
                           "lazy_mode = True"))
                .rule,
            optim::UpdateRule(optim::Adam{
                .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.125, .lazy = true}));
  EXPECT_EQ(ReadOne(Update("adam")).rule, optim::UpdateRule(optim::Adam{}));
  EXPECT_EQ(
      ReadOne(Update("adagrad", ", epsilon = 0.25", ", Moment=['moment']"))
          .rule,
      optim::UpdateRule(optim::Adagrad{.epsilon = 0.25, .initial = 0.1}));
  EXPECT_EQ(ReadOne(Update("adamax", ", beta1 = 0.5")).rule,
            optim::UpdateRule(optim::Adamax{.beta1 = 0.5}));
  EXPECT_EQ(
      ReadOne(Update("rmsprop",
                     ", decay = 0.5, epsilon = 0.25, momentum = 0.125, "
                     "centered = True"))
          .rule,
      optim::UpdateRule(optim::RmsProp{
          .rho = 0.5, .epsilon = 0.25, .momentum = 0.125, .centered = true}));
  EXPECT_EQ(ReadOne(Update("adadelta", ", rho = 0.5")).rule,
            optim::UpdateRule(optim::Adadelta{.rho = 0.5}));
  EXPECT_EQ(
      ReadOne(Update("ftrl", ", l1 = 0.5, l2 = 0.25, lr_power = -0.25")).rule,
      optim::UpdateRule(optim::Ftrl{.l1 = 0.5, .l2 = 0.25, .power = -0.25}));
}

TEST(ReadUpdates, KnowsRulesThatDecayByThemselves) {
  const table::UpdateOptions adamw = ReadOne(
      Update("adamw", ", coeff = 0.25, with_decay = True, lr_ratio = 0.5"));
  EXPECT_EQ(adamw.rule, optim::UpdateRule(optim::Adam{}));
  EXPECT_EQ(adamw.decay.decoupled, 0.25);
  EXPECT_EQ(adamw.learning_rate.base, 0.5);
  EXPECT_EQ(adamw.learning_rate.factor, 0.5);
  EXPECT_EQ(ReadOne(Update("adamw", ", coeff = 0.25")).decay.decoupled, 0.0);
  const table::UpdateOptions lamb =
      ReadOne(Update("lamb", ", weight_decay = 0.25, always_adapt = True"));
  EXPECT_EQ(lamb.rule, optim::UpdateRule(optim::Lamb{.always_adapt = true}));
  EXPECT_EQ(lamb.decay.decoupled, 0.25);
  const table::UpdateOptions momentum =
      ReadOne(Update("momentum",
                     ", mu = 0.5, regularization_method = 'l2_decay', "
                     "regularization_coeff = 0.25"));
  EXPECT_EQ(momentum.decay.l2, 0.25);
}

TEST(ReadUpdates, ReadsSeveralParametersOfOneOperation) {
  ASSERT_OK_AND_ASSIGN(
      std::vector<ParameterUpdate> updates,
      Read("\n{ParamOut=['a', 'b']} = lars_momentum(inputs={Param=['a', 'b'], "
           "Grad=['a@GRAD', 'b@GRAD'], LearningRate=['rate', 'rate']}, "
           "lars_weight_decay = [0.5, 0.25], mu = 0.75, rescale_grad = 2.0, "
           "op_role = 2)\n"));
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0].parameter, "a");
  EXPECT_EQ(updates[1].gradient, "b@GRAD");
  EXPECT_EQ(updates[1].options.rule,
            optim::UpdateRule(optim::Lars{.mu = 0.75}));
  EXPECT_EQ(updates[0].options.decay.decoupled, 0.5);
  EXPECT_EQ(updates[1].options.decay.decoupled, 0.25);
  EXPECT_EQ(updates[1].options.transform.scale, 2.0);
}

TEST(ReadUpdates, ARegularizerBecomesDecay) {
  const table::UpdateOptions l2 = ReadOne(
      "\n{Out=['part']} = scale(inputs={X=['w']}, op_role = 2, scale = 0.25)"
      "\n{Out=['sum']} = sum(inputs={X=['w@GRAD', 'part']}, op_role = 2)" +
      Update("sgd", "", "", "sum"));
  EXPECT_EQ(l2.decay.l2, 0.25);
  EXPECT_EQ(l2.decay.l1, 0.0);
  const table::UpdateOptions l1 = ReadOne(
      "\n{Out=['sign']} = sign(inputs={X=['w']}, op_role = 2)"
      "\n{Out=['part']} = scale(inputs={X=['sign']}, op_role = 2, scale = 0.25)"
      "\n{Out=['sum']} = sum(inputs={X=['w@GRAD', 'part']}, op_role = 2)" +
      Update("sgd", "", "", "sum"));
  EXPECT_EQ(l1.decay.l1, 0.25);
  EXPECT_EQ(l1.decay.l2, 0.0);
}

TEST(ReadUpdates, ClipsByValueAndFactorsBecomeATransform) {
  const table::UpdateOptions options = ReadOne(
      "\n{Out=['cut']} = clip(inputs={X=['w@GRAD']}, max = 2.0, min = -1.0, "
      "op_role = 2)"
      "\n{Out=['half']} = scale(inputs={X=['cut']}, op_role = 2, scale = 0.5)"
      "\n{Out=['part']} = scale(inputs={X=['w']}, op_role = 2, scale = 0.25)"
      "\n{Out=['sum']} = sum(inputs={X=['half', 'part']}, op_role = 2)" +
      Update("sgd", "", "", "sum"));
  // clip(g, -1, 2) / 2 is clip(g / 2, -0.5, 1).
  EXPECT_EQ(options.transform.scale, 0.5);
  EXPECT_EQ(options.transform.min, -0.5);
  EXPECT_EQ(options.transform.max, 1.0);
  EXPECT_EQ(options.decay.l2, 0.25);
}

TEST(ReadUpdates, OtherOperationsOnAGradientStayBeforeIt) {
  ASSERT_OK_AND_ASSIGN(
      std::vector<ParameterUpdate> updates,
      Read("\n{Out=['clipped']} = elementwise_mul(inputs={X=['w@GRAD'], "
           "Y=['factor']}, op_role = 2)"
           "\n{Out=['part']} = scale(inputs={X=['w']}, op_role = 2, "
           "scale = 0.25)"
           "\n{Out=['sum']} = sum(inputs={X=['clipped', 'part']}, "
           "op_role = 2)" +
           Update("sgd", "", "", "sum")));
  EXPECT_EQ(updates[0].gradient, "clipped");
  EXPECT_EQ(updates[0].options.decay.l2, 0.25);
  EXPECT_THAT(updates[0].folded, ElementsAre(1, 2));
}

TEST(ReadUpdates, ASumInsideOfAClipIsNoDecay) {
  ASSERT_OK_AND_ASSIGN(
      std::vector<ParameterUpdate> updates,
      Read("\n{Out=['part']} = scale(inputs={X=['w']}, op_role = 2, "
           "scale = 0.25)"
           "\n{Out=['sum']} = sum(inputs={X=['w@GRAD', 'part']}, op_role = 2)"
           "\n{Out=['cut']} = clip(inputs={X=['sum']}, max = 1.0, min = -1.0, "
           "op_role = 2)" +
           Update("sgd", "", "", "cut")));
  EXPECT_EQ(updates[0].gradient, "sum");
  EXPECT_EQ(updates[0].options.decay.l2, 0.0);
  EXPECT_EQ(updates[0].options.transform.max, 1.0);
}

TEST(ReadUpdates, SumsOfBackwardAreNoRegularizers) {
  ASSERT_OK_AND_ASSIGN(
      std::vector<ParameterUpdate> updates,
      Read("\n{Out=['part']} = scale(inputs={X=['w']}, scale = 0.25)"
           "\n{Out=['sum']} = sum(inputs={X=['w@GRAD', 'part']}, op_role = 1)" +
           Update("sgd", "", "", "sum")));
  EXPECT_EQ(updates[0].gradient, "sum");
}

TEST(ReadUpdates, RefusesASecondUpdateOfAParameter) {
  EXPECT_THAT(Read(Update("sgd") + Update("adam")).status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("parameter w is updated a second time by "
                                 "adam")));
}

TEST(ReadUpdates, RefusesWhatIsNoRule) {
  EXPECT_THAT(Read(Update("dpsgd")).status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("parameter w: it is updated by dpsgd")));
  // Where a worker updates by itself, any operation will do.
  const std::set<std::string> none;
  EXPECT_OK(Read(Update("dpsgd"), &none).status());
}

TEST(ReadUpdates, RefusesUpdatesInABody) {
  auto main = Parse(
      "{\n{Out=['w']} = conditional_block(inputs={Cond=['c']}, "
      "sub_block = block[1])\n}\n{ // block 1, parent 0" +
      Update("sgd") + "}");
  auto startup = Parse(kStartup);
  EXPECT_THAT(
      ReadUpdates(*main, ProgramIndex(*main), ProgramIndex(*startup), {})
          .status(),
      StatusIs(StatusCode::kUnimplemented,
               HasSubstr("parameter w: its update sgd stands in a "
                         "branch or loop")));
}

}  // namespace
}  // namespace fleet::plan
