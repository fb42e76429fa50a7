// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_tensor.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SavedTensorTest : public ::testing::Test {
 protected:
  SavedTensorTest() {
    std::string name = "/tmp/saved_tensor_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~SavedTensorTest() override { std::filesystem::remove_all(folder_); }

  base::Path folder_;
};

std::vector<std::string> NamesOf(const std::vector<SavedTensor>& tensors) {
  std::vector<std::string> names;
  for (const SavedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

std::vector<SavedTensor> Examples() {
  std::vector<SavedTensor> tensors;
  for (at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat,
        at::kComplexDouble}) {
    tensors.push_back({.name = c10::toString(type),
                       .value = at::arange(6).to(type).view({2, 3})});
  }
  tensors.push_back({.name = "none", .value = at::zeros({0, 4})});
  tensors.push_back({.name = "scalar", .value = at::ones({})});
  tensors.push_back({.name = "rows",
                     .value = at::randn({5, 2}),
                     .lod = {{0, 2, 5}, {0, 1, 2, 3, 4, 5}}});
  // Not row by row in memory.
  tensors.push_back({.name = "turned", .value = at::randn({3, 4}).t()});
  return tensors;
}

TEST_F(SavedTensorTest, TensorsComeBack) {
  const std::vector<SavedTensor> tensors = Examples();
  const base::Path path = folder_ / "all";
  ASSERT_OK(SaveTensors(path, tensors));
  ASSERT_OK_AND_ASSIGN(std::vector<SavedTensor> back,
                       LoadTensors(path, NamesOf(tensors)));
  ASSERT_EQ(back.size(), tensors.size());
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].name, tensors[i].name);
    EXPECT_EQ(back[i].value.scalar_type(), tensors[i].value.scalar_type());
    EXPECT_TRUE(at::equal(back[i].value, tensors[i].value)) << back[i].name;
    EXPECT_EQ(back[i].lod, tensors[i].lod);
  }
  ASSERT_OK_AND_ASSIGN(const std::string bytes, SerializeTensors(tensors));
  ASSERT_OK_AND_ASSIGN(const std::string file, base::ReadFile(path));
  EXPECT_EQ(bytes, file);
}

TEST_F(SavedTensorTest, TheBytesThatPaddleWrites) {
  // By hand: a float32 [2] of Paddle, which has no checksum.
  std::string bytes(4, '\0');
  bytes += std::string(8, '\0');                          // no LoD
  bytes += std::string(4, '\0');                          // version
  bytes += std::string("\x04\0\0\0\x08\x05\x10\x02", 8);  // type and size
  const float values[] = {1.5F, -2.0F};
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  const std::string name = "w";
  ASSERT_OK_AND_ASSIGN(std::vector<SavedTensor> back,
                       ParseTensors(bytes, {&name, 1}, "here"));
  ASSERT_EQ(back[0].value.sizes(), (std::vector<int64_t>{2}));
  EXPECT_EQ(back[0].value[0].item<float>(), 1.5F);
  EXPECT_EQ(back[0].value[1].item<float>(), -2.0F);
}

TEST_F(SavedTensorTest, EveryCutIsNoticed) {
  const std::vector<SavedTensor> tensors = Examples();
  ASSERT_OK_AND_ASSIGN(const std::string bytes, SerializeTensors(tensors));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ParseTensors(bytes.substr(0, size), NamesOf(tensors), "w"),
                HasCode(StatusCode::kDataLoss))
        << size;
  }
}

TEST_F(SavedTensorTest, EveryChangedByteIsNoticed) {
  std::vector<SavedTensor> tensors;
  tensors.push_back({.name = "a", .value = at::randn({2, 3})});
  tensors.push_back({.name = "b", .value = at::arange(4), .lod = {{0, 1, 4}}});
  ASSERT_OK_AND_ASSIGN(const std::string bytes, SerializeTensors(tensors));
  int unnoticed = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      Result<std::vector<SavedTensor>> back =
          ParseTensors(changed, NamesOf(tensors), "w");
      if (!back.ok()) continue;
      // Only a checksum that is no longer seen as one can go unnoticed.
      ++unnoticed;
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(at::equal((*back)[i].value, tensors[i].value)) << at;
        EXPECT_EQ((*back)[i].lod, tensors[i].lod) << at;
      }
    }
  }
  EXPECT_LT(unnoticed, 2 * 3 * 8);
}

TEST_F(SavedTensorTest, ErrorsSayWhere) {
  std::vector<SavedTensor> tensors;
  tensors.push_back({.name = "a", .value = at::ones({2, 3})});
  tensors.push_back({.name = "fc.w", .value = at::ones({100})});
  const base::Path path = folder_ / "w";
  ASSERT_OK(SaveTensors(path, tensors));
  std::filesystem::resize_file(path, 400);
  EXPECT_THAT(
      LoadTensors(path, NamesOf(tensors)),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr(path.string()),
                     HasSubstr("tensor 2 of 2 ('fc.w'), which begins at byte"),
                     HasSubstr("cut off: float32 [100] takes 400 bytes"))));
  std::filesystem::remove(path);
  EXPECT_THAT(LoadTensors(path, NamesOf(tensors)),
              StatusIs(StatusCode::kNotFound, HasSubstr(path.string())));
  std::ofstream(path) << "This is a letter, and no tensor at all.";
  EXPECT_THAT(LoadTensors(path, NamesOf(tensors)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("no tensor")));
  EXPECT_THAT(LoadTensors(folder_, NamesOf(tensors)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("plain file")));
}

TEST_F(SavedTensorTest, BytesLeftOver) {
  const std::vector<SavedTensor> tensors = Examples();
  ASSERT_OK_AND_ASSIGN(const std::string bytes, SerializeTensors(tensors));
  std::vector<std::string> names = NamesOf(tensors);
  names.pop_back();
  EXPECT_THAT(ParseTensors(bytes, names, "w"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("left over")));
}

TEST_F(SavedTensorTest, ASizeThatLiesAsksForNoMemory) {
  std::string bytes(16, '\0');
  // float64 [2^40].
  bytes +=
      std::string("\x09\0\0\0\x08\x06\x10\x80\x80\x80\x80\x80\x80\x20", 13);
  bytes += "data";
  const std::string name = "w";
  EXPECT_THAT(ParseTensors(bytes, {&name, 1}, "here"),
              HasCode(StatusCode::kDataLoss));
}

TEST_F(SavedTensorTest, WhatCannotBeSaved) {
  std::vector<SavedTensor> tensors;
  tensors.push_back({.name = "w", .value = at::Tensor()});
  EXPECT_THAT(
      SaveTensors(folder_ / "w", tensors),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a dense tensor")));
  EXPECT_FALSE(base::Exists(folder_ / "w"));
}

// The disk is full in the middle of the second file: the first one stays.
TEST_F(SavedTensorTest, FullDiskLeavesTheOldFile) {
  std::vector<SavedTensor> tensors;
  tensors.push_back({.name = "w", .value = at::ones({10})});
  const base::Path path = folder_ / "w";
  ASSERT_OK(SaveTensors(path, tensors));
  tensors[0].value = at::zeros({1 << 20});
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = SaveTensors(path, tensors);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path.string()));
  const std::string name = "w";
  ASSERT_OK_AND_ASSIGN(std::vector<SavedTensor> back,
                       LoadTensors(path, {&name, 1}));
  EXPECT_TRUE(at::equal(back[0].value, at::ones({10})));
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> files,
                       base::ListFolder(folder_));
  EXPECT_EQ(files, std::vector<std::string>{"w"});
}

}  // namespace
}  // namespace fleet::exec
