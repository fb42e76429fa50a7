// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/tensor_container.h"

#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/bytes.h"
#include "fleet/base/status_matchers.h"

namespace fleet::exec {
namespace {

using ::testing::HasSubstr;

class TensorContainerTest : public ::testing::Test {
 protected:
  saved::ContainerWriter Writer() {
    return saved::ContainerWriter([this](std::span<const std::byte> more) {
      bytes_ += base::TextOf(more);
      return OkStatus();
    });
  }
  Result<saved::ContainerReader> Reader() {
    return saved::ContainerReader::Open(
        saved::ReadFromMemory(std::as_bytes(std::span(bytes_))), bytes_.size());
  }

  std::string bytes_;
};

TEST_F(TensorContainerTest, TensorsOfEveryTypeAndLayoutComeBack) {
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat,
        at::kComplexDouble}) {
    tensors.push_back(at::arange(6).view({2, 3}).to(type));
  }
  tensors.push_back(at::ones({3, 0, 2}));
  tensors.push_back(at::ones({}));
  tensors.push_back(at::randn({3, 4}).t());
  tensors.push_back(at::randn({4, 6}).slice(1, 1, 6, 2));
  tensors.push_back(at::ones({3, 1}).expand({3, 5}));
  // The memory has other values than the tensor.
  tensors.push_back(at::randn({3}, at::kComplexFloat).conj());
  tensors.push_back(at::randn({3}).requires_grad_());
  saved::ContainerWriter writer = Writer();
  saved::List blobs;
  for (const at::Tensor& tensor : tensors) {
    ASSERT_OK_AND_ASSIGN(const saved::BlobId blob,
                         AddTensor(writer, "w", tensor));
    blobs.push_back(saved::Value{blob});
  }
  ASSERT_OK(writer.Finish(saved::Value{std::move(blobs)}));
  ASSERT_OK_AND_ASSIGN(const saved::ContainerReader reader, Reader());
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const at::Tensor back,
                         ReadTensor(reader, static_cast<saved::BlobId>(i)));
    EXPECT_EQ(back.scalar_type(), tensors[i].scalar_type());
    EXPECT_TRUE(at::equal(back, tensors[i])) << i;
    EXPECT_FALSE(back.requires_grad());
  }
}

TEST_F(TensorContainerTest, TensorsThatCannotBeSavedAreNamed) {
  saved::ContainerWriter writer = Writer();
  EXPECT_THAT(AddTensor(writer, "w", at::Tensor()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("'w' is not a dense tensor")));
  EXPECT_THAT(AddTensor(writer, "w", at::ones({2}).to_sparse()),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(AddTensor(writer, "w", at::ones({2}).to(at::kFloat8_e4m3fn)),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("'w' is of type Float8_e4m3fn")));
  EXPECT_THAT(AddTensor(writer, "\xff", at::ones({2})),
              HasCode(StatusCode::kInvalidArgument));
}

TEST_F(TensorContainerTest, WhatCannotBeATensorIsNone) {
  saved::ContainerWriter writer = Writer();
  const std::string bytes(8, 'x');
  const auto add = [&](const saved::Blob& blob) {
    return saved::Value{
        writer.Add(blob, std::as_bytes(std::span(bytes))).value()};
  };
  using Kind = saved::Blob::Kind;
  ASSERT_OK(writer.Finish(saved::Value{saved::List{
      add({}), add({.kind = Kind::kScalar, .element = "<f8"}),
      add({.kind = Kind::kArray, .element = "<u4", .shape = {2}}),
      add({.kind = Kind::kArray, .element = "<i4", .shape = {2}})}}));
  ASSERT_OK_AND_ASSIGN(const saved::ContainerReader reader, Reader());
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_THAT(ReadTensor(reader, saved::BlobId{i}),
                HasCode(StatusCode::kInvalidArgument));
  }
  ASSERT_OK_AND_ASSIGN(const at::Tensor array,
                       ReadTensor(reader, saved::BlobId{3}));
  EXPECT_EQ(array.scalar_type(), at::kInt);
}

}  // namespace
}  // namespace fleet::exec
