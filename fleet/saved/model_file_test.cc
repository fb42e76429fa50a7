// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/model_file.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::saved {
namespace {

using program::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// y = softmax(x w)
class ModelFileTest : public ::testing::Test {
 protected:
  ModelFileTest() { program::DefineAllOps(registry_); }
  void MakeModel() {
    AddVariable("x", {-1, 4}).is_data = true;
    AddVariable("w", {4, 5}).persistable = true;
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
    Append("softmax", {{"X", {"h"}}}, {{"Out", {"y"}}});
  }
  program::Variable& AddVariable(const std::string& name, program::Dims dims) {
    return program_.block(0).AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, program::Slots inputs,
              program::Slots outputs, program::AttrMap attrs = {}) {
    program::Block& block = program_.block(0);
    ASSERT_OK(
        block.InferTypes(registry_, block.Append({.type = type,
                                                  .inputs = std::move(inputs),
                                                  .outputs = std::move(outputs),
                                                  .attrs = std::move(attrs)})));
  }
  Result<std::unique_ptr<program::Program>> Parse(std::string_view bytes) {
    return ParseProgram(registry_, bytes, "net");
  }

  program::OpRegistry registry_;
  program::Program program_;
  const testing::TemporaryFolder temporary_;
  const base::Path& folder_ = temporary_.path();
};

TEST_F(ModelFileTest, WhichLayoutIsThere) {
  EXPECT_THAT(FindModel(folder_ / "net"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("net.pdmodel"),
                                                    HasSubstr("__model__"))));
  ASSERT_OK(base::AtomicWriteFile(folder_ / "__model__", "program"));
  ASSERT_OK_AND_ASSIGN(const ModelFiles each, FindModel(folder_));
  EXPECT_EQ(each.program, folder_ / "__model__");
  EXPECT_EQ(each.parameters, folder_);
  EXPECT_FALSE(each.combined);
  ASSERT_OK(base::AtomicWriteFile(folder_ / "__params__", "all"));
  ASSERT_OK_AND_ASSIGN(const ModelFiles one, FindModel(folder_));
  EXPECT_EQ(one.parameters, folder_ / "__params__");
  EXPECT_TRUE(one.combined);
  ASSERT_OK(base::AtomicWriteFile(folder_ / "net.pdmodel", "program"));
  ASSERT_OK_AND_ASSIGN(const ModelFiles prefix, FindModel(folder_ / "net"));
  EXPECT_EQ(prefix.parameters, folder_ / "net.pdiparams");
}

TEST_F(ModelFileTest, NamesThatLeaveTheFolder) {
  EXPECT_THAT(FileOfVariable(folder_, ""),
              HasCode(StatusCode::kInvalidArgument));
  const std::pair<const char*, const char*> files[] = {
      {"w", "w"},
      {"encoder/w", "encoder/w"},
      {"../w", "%2E.%2Fw"},
      {"/tmp/w", "%2Ftmp%2Fw"},
      {"a/../../w", "a%2F..%2F..%2Fw"},
      {"a//w", "a%2F%2Fw"},
      {"a/", "a%2F"},
      {".", "%2E"},
      // Not the file of "../w".
      {"%2E.%2Fw", "%252E.%252Fw"}};
  for (const auto& [name, file] : files) {
    ASSERT_OK_AND_ASSIGN(const base::Path path, FileOfVariable(folder_, name));
    EXPECT_EQ(path, folder_ / file);
  }
}

TEST_F(ModelFileTest, AnInferenceProgramComesBack) {
  MakeModel();
  ASSERT_OK(ToInference(registry_, program_, {"x"}, {"y", "h"}, Paddle::k2));
  const base::Path path = folder_ / "net.pdmodel";
  ASSERT_OK(SaveProgram(program_, path));
  ASSERT_OK_AND_ASSIGN(const auto back, LoadProgram(registry_, path));
  EXPECT_EQ(ToString(*back), ToString(program_));
  EXPECT_THAT(FeedsOf(*back), ElementsAre("x"));
  EXPECT_THAT(FetchesOf(*back), ElementsAre("y", "h"));
  ASSERT_EQ(SavedVariables(*back).size(), 1u);
  EXPECT_EQ(SavedVariables(*back)[0]->name, "w");
}

TEST_F(ModelFileTest, CutAndAlteredPrograms) {
  MakeModel();
  ASSERT_OK(ToInference(registry_, program_, {"x"}, {"y"}, Paddle::k2));
  const std::string bytes = SerializeProgram(program_);
  ASSERT_OK_AND_ASSIGN(auto whole, Parse(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    Result<std::unique_ptr<program::Program>> cut =
        Parse(std::string_view(bytes).substr(0, size));
    if (cut.ok()) {
      // What was cut off says nothing about the program.
      EXPECT_EQ(ToString(**cut), ToString(*whole)) << size;
      EXPECT_GT(size + 16, bytes.size());
    } else {
      EXPECT_EQ(cut.status().code(), StatusCode::kDataLoss);
    }
  }
  for (size_t at = 0; at + 7 < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_THAT(Parse(changed),
                StatusIs(StatusCode::kDataLoss, HasSubstr("altered")));
  }
}

// ---- dialect.h

class DialectTest : public ModelFileTest {
 protected:
  DialectTest() {
    AddVariable("image", {-1, 3, 8, 8}).is_data = true;
    AddVariable("kernel", {4, 3, 3, 3}).persistable = true;
    AddVariable("bias", {4}).persistable = true;
  }
  // The program in Paddle's ops, as text.
  std::string Saved(Paddle version) {
    const std::unique_ptr<program::Program> copy = program_.Clone();
    EXPECT_OK(ToPaddle(registry_, *copy, version));
    return ToString(*copy);
  }
};

TEST_F(DialectTest, ConvolutionWithBiasAndPool) {
  Append("conv2d",
         {{"Input", {"image"}}, {"Filter", {"kernel"}}, {"Bias", {"bias"}}},
         {{"Output", {"c"}}});
  Append("avg_pool2d", {{"X", {"c"}}}, {{"Out", {"p"}}},
         {{"ksize", {program::AttrKind::kInts, std::vector<int64_t>{2, 2}}}});
  const std::string text = Saved(Paddle::k2);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("= conv2d(inputs={Input=['image'], Filter=['kernel']}"),
            HasSubstr("elementwise_add(inputs={X=['c.saved_0'], Y=['bias']}, "
                      "axis = 1"),
            HasSubstr("pool2d(inputs={X=['c']}, adaptive = False"),
            HasSubstr("ksize = [2, 2]"), HasSubstr("pooling_type = 'avg'"),
            HasSubstr("strides = [2, 2]")));
}

TEST_F(DialectTest, FlattenForTheOlderOne) {
  Append("flatten_contiguous_range", {{"X", {"image"}}}, {{"Out", {"flat"}}});
  EXPECT_THAT(Saved(Paddle::k2), AllOf(HasSubstr("= flatten_contiguous_range("),
                                       HasSubstr("XShape=['flat.saved_0']")));
  EXPECT_THAT(Saved(Paddle::k1_8),
              AllOf(HasSubstr("= reshape2("), HasSubstr("shape = [0, -1]")));
}

TEST_F(DialectTest, NumbersOf64Bits) {
  AddVariable("ids", {-1, 2}).type.dtype = DType::kInt64;
  AddVariable("table", {5, 3}).persistable = true;
  Append("lookup_table_v2", {{"W", {"table"}}, {"Ids", {"ids"}}},
         {{"Out", {"rows"}}});
  EXPECT_THAT(Saved(Paddle::k2), HasSubstr("padding_idx = long(-1)"));
}

}  // namespace
}  // namespace fleet::saved
