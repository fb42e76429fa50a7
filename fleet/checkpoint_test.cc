// SPDX-License-Identifier: Apache-2.0
#include "fleet/checkpoint.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "fleet/base/status_matchers.h"
#include "fleet/save.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet {
namespace {

namespace optim = torch::optim;
using ::testing::HasSubstr;
using torch::Tensor;
using Optimizer = std::unique_ptr<optim::Optimizer>;
using MakeOptimizer = std::function<Optimizer(torch::nn::Linear&)>;

struct Rule {
  std::string name;
  MakeOptimizer make;
};

template <class T, class Options>
Rule RuleOf(std::string name, Options options) {
  return {std::move(name), [options](torch::nn::Linear& net) -> Optimizer {
            return std::make_unique<T>(net->parameters(), options);
          }};
}

std::vector<Rule> Rules() {
  return {
      RuleOf<optim::Adam>("Adam", optim::AdamOptions(0.1).amsgrad(true)),
      RuleOf<optim::AdamW>("AdamW", optim::AdamWOptions(0.1)),
      RuleOf<optim::SGD>("Momentum", optim::SGDOptions(0.1).momentum(0.9)),
      RuleOf<optim::SGD>("SGD", optim::SGDOptions(0.1)),
      RuleOf<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.1)),
      RuleOf<optim::RMSprop>(
          "RMSprop", optim::RMSpropOptions(0.1).momentum(0.9).centered(true)),
  };
}

void Step(torch::nn::Linear& net, optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  const Tensor x = torch::linspace(-1, 1, 12).view({4, 3});
  net(x).square().sum().backward();
  optimizer.step();
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { torch::manual_seed(1); }

  const testing::TemporaryFolder temporary_;
  const base::Path path_ = temporary_.path() / "net.checkpoint";
};

TEST_F(CheckpointTest, TrainingGoesOnToTheLastBit) {
  for (const Rule& rule : Rules()) {
    SCOPED_TRACE(rule.name);
    torch::nn::Linear net(3, 2);
    const Optimizer optimizer = rule.make(net);
    for (int i = 0; i < 3; ++i) Step(net, *optimizer);
    optimizer->param_groups()[0].options().set_lr(0.05);
    ASSERT_OK(SaveCheckpoint(path_, *net, *optimizer, 3));
    for (int i = 0; i < 3; ++i) Step(net, *optimizer);

    torch::nn::Linear other(3, 2);
    const Optimizer resumed = rule.make(other);
    Step(other, *resumed);  // has a state of its own, which goes
    ASSERT_OK_AND_ASSIGN(const int64_t progress,
                         LoadCheckpoint(path_, *other, *resumed));
    EXPECT_EQ(progress, 3);
    EXPECT_EQ(resumed->param_groups()[0].options().get_lr(), 0.05);
    for (int i = 0; i < 3; ++i) Step(other, *resumed);
    EXPECT_TRUE(torch::equal(net->weight, other->weight));
    EXPECT_TRUE(torch::equal(net->bias, other->bias));
  }
}

TEST_F(CheckpointTest, AParameterWithoutGradientsHasNoState) {
  torch::nn::Linear net(3, 2), other(3, 2);
  optim::Adam adam(net->parameters(), 0.1), resumed(other->parameters(), 0.1);
  net->bias.requires_grad_(false);
  Step(net, adam);
  Step(other, resumed);
  ASSERT_OK(SaveCheckpoint(path_, *net, adam, 1));
  ASSERT_OK(LoadCheckpoint(path_, *other, resumed));
  EXPECT_EQ(resumed.state().size(), 1u);
}

TEST_F(CheckpointTest, AnotherOptimizerIsRefusedAndNothingChanges) {
  torch::nn::Linear net(3, 2), other(3, 2);
  optim::Adam adam(net->parameters(), 0.1);
  Step(net, adam);
  ASSERT_OK(SaveCheckpoint(path_, *net, adam, 1));
  const Tensor before = other->weight.detach().clone();
  optim::SGD sgd(other->parameters(), 0.1);
  EXPECT_THAT(
      LoadCheckpoint(path_, *other, sgd),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("net.checkpoint: it has the state of Adam, and "
                         "the optimizer is SGD")));
  optim::Adam weights_only({other->weight}, 0.1);
  EXPECT_THAT(LoadCheckpoint(path_, *other, weights_only),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("the state of 2 parameters in 1 groups, and "
                                 "the optimizer has 1 in 1")));
  optim::Adam turned({other->bias, other->weight}, 0.1);
  EXPECT_THAT(
      LoadCheckpoint(path_, *other, turned),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("the state of parameter 0: exp_avg is Float [2, 3], "
                         "and the parameter Float [2]")));
  torch::nn::Linear large(4, 2);
  optim::Adam of_large(large->parameters(), 0.1);
  EXPECT_THAT(LoadCheckpoint(path_, *large, of_large),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("weight is")));
  EXPECT_TRUE(torch::equal(other->weight, before));
  EXPECT_TRUE(turned.state().empty());
}

TEST_F(CheckpointTest, OtherFilesAreNoCheckpoints) {
  torch::nn::Linear net(3, 2);
  optim::Adam adam(net->parameters(), 0.1);
  EXPECT_THAT(LoadCheckpoint(path_, *net, adam),
              HasCode(StatusCode::kNotFound));
  ASSERT_OK(SaveModule(*net, path_));
  EXPECT_THAT(LoadCheckpoint(path_, *net, adam),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("it is no checkpoint: it lacks 'model'")));
}

TEST_F(CheckpointTest, AnOptimizerOfAnotherKindIsNotSaved) {
  torch::nn::Linear net(3, 2);
  const optim::LBFGS lbfgs(net->parameters());
  EXPECT_THAT(SaveCheckpoint(path_, *net, lbfgs, 0),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_FALSE(base::Exists(path_));
}

}  // namespace
}  // namespace fleet
