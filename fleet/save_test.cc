// SPDX-License-Identifier: Apache-2.0
#include "fleet/save.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "fleet/base/status_matchers.h"
#include "fleet/module_tensors.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t out = 2) : fc(3, out), norm(out) {
    register_module("fc", fc);
    register_module("norm", norm);
    const torch::NoGradGuard no_grad;
    norm->running_mean.uniform_();
  }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Net);

class SaveTest : public ::testing::Test {
 protected:
  SaveTest() { torch::manual_seed(1); }

  const testing::TemporaryFolder temporary_;
  const base::Path path_ = temporary_.path() / "net.pdparams";
};

std::vector<std::string> NamesOf(
    const std::vector<sync::NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const sync::NamedTensor& each : tensors) names.push_back(each.name);
  return names;
}

void ExpectSame(const Net& a, const Net& b) {
  const auto first = ModuleTensors(*a, LayerStyle::kTorch);
  const auto second = ModuleTensors(*b, LayerStyle::kTorch);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i].tensor, second[i].tensor))
        << first[i].name;
  }
}

TEST_F(SaveTest, TensorsComeBackInTheirOrder) {
  const Tensor w = torch::randn({2, 3}), n = torch::ones({}, torch::kLong);
  ASSERT_OK(SaveTensors(path_, {{"w", w}, {"n", n}, {"a", w.t()}}));
  ASSERT_OK_AND_ASSIGN(const auto back, LoadTensors(path_));
  EXPECT_THAT(NamesOf(back), ElementsAre("w", "n", "a"));
  EXPECT_TRUE(torch::equal(back[0].tensor, w));
  EXPECT_TRUE(torch::equal(back[1].tensor, n));
  EXPECT_TRUE(torch::equal(back[2].tensor, w.t()));
}

TEST_F(SaveTest, WhatTheFormatLacksIsRefused) {
  EXPECT_THAT(SaveTensors(path_, {{"none", Tensor()}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(SaveTensors(path_, {{"rows", torch::ones({2, 2}).to_sparse()}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_FALSE(base::Exists(path_));
}

TEST_F(SaveTest, AModuleComesBack) {
  Net net, other;
  net->norm->num_batches_tracked.fill_(7);
  ASSERT_OK(SaveModule(*net, path_));
  ASSERT_OK(LoadModule(*other, path_));
  ExpectSame(net, other);
  EXPECT_TRUE(other->fc->weight.requires_grad());
}

TEST_F(SaveTest, PaddlesLayersHaveOtherNamesAndShapes) {
  Net net, other;
  ASSERT_OK(SaveModule(*net, path_, LayerStyle::kPaddle));
  ASSERT_OK_AND_ASSIGN(const auto saved, LoadTensors(path_));
  EXPECT_THAT(NamesOf(saved),
              ElementsAre("fc.weight", "fc.bias", "norm.weight", "norm.bias",
                          "norm._mean", "norm._variance"));
  EXPECT_TRUE(torch::equal(saved[0].tensor, net->fc->weight.t()));
  ASSERT_OK(LoadModule(*other, path_, LayerStyle::kPaddle));
  ExpectSame(net, other);
}

TEST_F(SaveTest, ALayerAloneIsAModule) {
  torch::nn::Linear fc(3, 2), other(3, 2);
  ASSERT_OK(SaveModule(*fc, path_, LayerStyle::kPaddle));
  ASSERT_OK(LoadModule(*other, path_, LayerStyle::kPaddle));
  EXPECT_TRUE(torch::equal(fc->weight, other->weight));
}

TEST_F(SaveTest, AllDifferencesAreListedAndNothingChanges) {
  Net net;
  Net before;
  ASSERT_OK(SaveModule(*net, path_));
  ASSERT_OK(LoadModule(*before, path_));
  std::vector<sync::NamedTensor> tensors =
      ModuleTensors(*Net(), LayerStyle::kTorch);
  tensors.erase(tensors.begin() + 1);  // fc.bias
  tensors[0].tensor = torch::ones({2, 4});
  tensors[1].tensor = torch::ones({2}, torch::kDouble);
  tensors.push_back({"fc.extra", torch::ones({1})});
  ASSERT_OK(SaveTensors(path_, tensors));
  EXPECT_THAT(
      LoadModule(*net, path_),
      StatusIs(
          StatusCode::kInvalidArgument,
          AllOf(HasSubstr("net.pdparams: its tensors are not those of the "
                          "module: missing fc.bias; unexpected fc.extra; "),
                HasSubstr("fc.weight is Float [2, 4] in place of Float "
                          "[2, 3], norm.weight is Double [2] in place of "
                          "Float [2]"))));
  ExpectSame(net, before);
}

TEST_F(SaveTest, OtherValuesAreNoTensorsByName) {
  const auto write = [&](saved::Value root) {
    return WriteContainer(path_, [&](saved::ContainerWriter&) {
      return Result<saved::Value>(root);
    });
  };
  ASSERT_OK(write(saved::Value{int64_t{3}}));
  EXPECT_THAT(LoadTensors(path_), HasCode(StatusCode::kInvalidArgument));
  saved::Dict dict;
  dict.items.emplace_back(saved::Value{std::string("epoch")},
                          saved::Value{int64_t{3}});
  ASSERT_OK(write(saved::Value{dict}));
  EXPECT_THAT(LoadTensors(path_), StatusIs(StatusCode::kInvalidArgument,
                                           HasSubstr("'epoch' is no tensor")));
  dict.items.front().first = saved::Value{int64_t{1}};
  ASSERT_OK(write(saved::Value{dict}));
  EXPECT_THAT(LoadTensors(path_), HasCode(StatusCode::kInvalidArgument));
}

TEST_F(SaveTest, ADamagedFileChangesNothing) {
  Net net, other;
  EXPECT_THAT(LoadModule(*net, path_), HasCode(StatusCode::kNotFound));
  ASSERT_OK(SaveModule(*net, path_));
  ASSERT_OK_AND_ASSIGN(std::string bytes, base::ReadFile(path_));
  bytes[64 + 3 * 64] ^= 1;  // in the fourth tensor
  ASSERT_OK(base::AtomicWriteFile(path_, bytes));
  const Tensor weight = other->fc->weight.clone();
  EXPECT_THAT(
      LoadModule(*other, path_),
      StatusIs(StatusCode::kDataLoss, HasSubstr("net.pdparams: 'norm")));
  EXPECT_TRUE(torch::equal(other->fc->weight, weight));
}

}  // namespace
}  // namespace fleet
