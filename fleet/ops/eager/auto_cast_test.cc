// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/auto_cast.h"

#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

const OpLibrary& Library() {
  static const OpLibrary library;
  return library;
}

// The types of what `op` is given in place of tensors of types `given`.
std::vector<at::ScalarType> Cast(const char* op,
                                 std::vector<at::ScalarType> given,
                                 std::vector<uint32_t> slot_end) {
  AutoCast lists;
  lists.dtype = program::DType::kBfloat16;
  lists.white = {"matmul_v2", "fc", "cast"};
  lists.black = {"softmax", "exp"};
  std::vector<at::Tensor> inputs;
  for (at::ScalarType type : given) {
    inputs.push_back(at::ones({2, 2}, at::TensorOptions(type)));
  }
  EXPECT_OK(CastInputs(lists, *Library().Find("cast"), *Library().Find(op),
                       inputs, slot_end, Context()));
  std::vector<at::ScalarType> types;
  for (const at::Tensor& input : inputs) types.push_back(input.scalar_type());
  return types;
}

TEST(AutoCast, TheListsOfALevelComeFromTheDefinitions) {
  using program::AmpLevel;
  using program::Precision;
  const auto at = [](AmpLevel level, bool promote) {
    const AutoCast lists = MakeAutoCast(
        Library().definitions(), program::DType::kFloat16, level,
        {{"sin", Precision::kWhite}, {"fc", Precision::kBlackAlways}}, promote);
    std::string text;
    for (const char* op :
         {"matmul_v2", "fc", "sin", "tanh", "softmax", "erf"}) {
      text += lists.white.contains(op)   ? 'w'
              : lists.black.contains(op) ? 'b'
                                         : '-';
    }
    return text;
  };
  EXPECT_EQ(at(AmpLevel::kByList, true), "wbw-b-");
  EXPECT_EQ(at(AmpLevel::kWhite, true), "wbwbbb");
  EXPECT_EQ(at(AmpLevel::kAll, false), "wbwww-");
  EXPECT_EQ(at(AmpLevel::kAll, true), "wbw---");
}

using Types = std::vector<at::ScalarType>;
constexpr at::ScalarType kShort = at::kBFloat16;

TEST(AutoCast, WhiteIsShort) {
  EXPECT_EQ(Cast("matmul_v2", {at::kFloat, at::kFloat}, {1, 2}),
            (Types{kShort, kShort}));
  EXPECT_EQ(Cast("matmul_v2", {kShort, at::kFloat}, {1, 2}),
            (Types{kShort, kShort}));
  // Without a bias.
  EXPECT_EQ(Cast("fc", {at::kFloat, at::kFloat}, {1, 2, 2}),
            (Types{kShort, kShort}));
}

TEST(AutoCast, BlackIsFloat32) {
  EXPECT_EQ(Cast("softmax", {kShort}, {1}), Types{at::kFloat});
  EXPECT_EQ(Cast("softmax", {at::kFloat}, {1}), Types{at::kFloat});
}

TEST(AutoCast, OthersTakeWhatTheyGetAndFloat32IfItIsBoth) {
  EXPECT_EQ(Cast("tanh", {kShort}, {1}), Types{kShort});
  EXPECT_EQ(Cast("elementwise_add", {kShort, kShort}, {1, 2}),
            (Types{kShort, kShort}));
  EXPECT_EQ(Cast("elementwise_add", {kShort, at::kFloat}, {1, 2}),
            (Types{at::kFloat, at::kFloat}));
}

TEST(AutoCast, IntegersFloat64AndCastsStay) {
  EXPECT_EQ(Cast("lookup_table_v2", {at::kFloat, at::kLong}, {1, 2}),
            (Types{at::kFloat, at::kLong}));
  EXPECT_EQ(Cast("matmul_v2", {at::kDouble, at::kFloat}, {1, 2}),
            (Types{at::kDouble, at::kFloat}));
  EXPECT_EQ(Cast("cast", {at::kFloat}, {1}), Types{at::kFloat});
}

TEST(AutoCast, ANormIsGivenItsParametersAsTheyAre) {
  EXPECT_EQ(Cast("batch_norm",
                 {kShort, at::kFloat, at::kFloat, at::kFloat, at::kFloat},
                 {1, 2, 3, 4, 5}),
            (Types{kShort, at::kFloat, at::kFloat, at::kFloat, at::kFloat}));
}

TEST(AutoCast, GradientsFlowBackInTheirOwnType) {
  AutoCast lists;
  lists.white = {"exp"};
  const at::Tensor x = at::ones({3}).requires_grad_();
  std::vector<at::Tensor> inputs = {x};
  const std::vector<uint32_t> ends = {1};
  ASSERT_OK(CastInputs(lists, *Library().Find("cast"), *Library().Find("exp"),
                       inputs, ends, Context()));
  ASSERT_EQ(inputs[0].scalar_type(), at::kHalf);
  inputs[0].sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(x.grad().equal(at::ones({3})));
}

}  // namespace
}  // namespace fleet::ops
