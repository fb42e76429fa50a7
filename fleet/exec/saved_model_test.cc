// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_model.h"

#include <cstdlib>
#include <string>
#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/prune.h"
#include "fleet/program/text.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::exec {
namespace {

using program::DType;
using saved::FilesOfFolder;
using saved::FilesOfPrefix;
using saved::ModelFiles;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sizes = std::vector<int64_t>;

// softmax(tanh(x w1) w2), and a loss that needs a label.
class SavedModelTest : public ::testing::Test {
 protected:
  SavedModelTest() {
    AddVariable("x", {-1, 4}).is_data = true;
    AddVariable("label", {-1, 3}).is_data = true;
    AddVariable("w1", {4, 5}).persistable = true;
    AddVariable("w2", {5, 3}).persistable = true;
    AddVariable("unused", {7}).persistable = true;
    Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w1"}}}, {{"Out", {"h1"}}});
    Append("tanh", {{"X", {"h1"}}}, {{"Out", {"h2"}}});
    Append("matmul_v2", {{"X", {"h2"}}, {"Y", {"w2"}}}, {{"Out", {"h3"}}});
    Append("softmax", {{"X", {"h3"}}}, {{"Out", {"y"}}});
    Append("mse_loss", {{"Input", {"y"}}, {"Label", {"label"}}},
           {{"Out", {"loss"}}});
    scope_.Get("w1") = at::randn({4, 5});
    scope_.Get("w2") = at::randn({5, 3});
  }

  program::Variable& AddVariable(const std::string& name, program::Dims dims) {
    return program_.block(0).AddVariable(
        {.name = name, .type = {DType::kFloat32, std::move(dims)}});
  }
  void Append(const std::string& type, program::Slots inputs,
              program::Slots outputs, program::AttrMap attrs = {}) {
    program::Block& block = program_.block(0);
    ASSERT_OK(block.InferTypes(library_.definitions(),
                               block.Append({.type = type,
                                             .inputs = std::move(inputs),
                                             .outputs = std::move(outputs),
                                             .attrs = std::move(attrs)})));
  }

  at::Tensor Expected(const at::Tensor& x) {
    return at::softmax(
        at::matmul(at::tanh(at::matmul(x, scope_.Get("w1"))), scope_.Get("w2")),
        -1);
  }

  Status Save(const ModelFiles& files) {
    ASSIGN_OR_RETURN(auto inference, ToInference(library_.definitions(),
                                                 program_, {"x"}, {"y", "h3"}));
    return SaveModel(*inference, scope_, files);
  }

  ops::OpLibrary library_;
  program::Program program_;
  Scope scope_;
  testing::TemporaryFolder temporary_;
  const base::Path folder_ = temporary_.path();
};

TEST_F(SavedModelTest, BothLayoutsComeBackAndRun) {
  const base::Path prefix = folder_ / "deep" / "net";
  ASSERT_OK(Save(FilesOfPrefix(prefix)));
  ASSERT_OK(Save(FilesOfFolder(folder_ / "each")));
  ASSERT_OK(Save(FilesOfFolder(folder_ / "one", "", "__params__")));
  EXPECT_TRUE(base::Exists(folder_ / "each" / "w1"));
  EXPECT_FALSE(base::Exists(folder_ / "each" / "unused"));
  const at::Tensor x = at::randn({6, 4});
  for (const base::Path& path : {prefix, folder_ / "each", folder_ / "one"}) {
    ASSERT_OK_AND_ASSIGN(auto model, LoadedModel::Open(path));
    EXPECT_THAT(model->inputs(), ElementsAre("x"));
    EXPECT_THAT(model->outputs(), ElementsAre("y", "h3"));
    ASSERT_OK_AND_ASSIGN(std::vector<at::Tensor> got, model->Run({x}));
    EXPECT_TRUE(at::allclose(got[0], Expected(x), 1e-5, 1e-6)) << path;
    EXPECT_THAT(model->Run({}), StatusIs(StatusCode::kInvalidArgument,
                                         HasSubstr("1 inputs, but 0")));
  }
}

TEST_F(SavedModelTest, InferenceNeedsItsInputs) {
  EXPECT_THAT(
      ToInference(library_.definitions(), program_, {"x"}, {"loss"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("the data label")));
  EXPECT_THAT(ToInference(library_.definitions(), program_, {"z"}, {"y"}),
              StatusIs(StatusCode::kNotFound, HasSubstr("z to feed")));
}

TEST_F(SavedModelTest, ParametersWithoutValue) {
  scope_.Erase("w2");
  EXPECT_THAT(Save(FilesOfPrefix(folder_ / "net")),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("w2"), HasSubstr("startup program"))));
  EXPECT_FALSE(base::Exists(folder_ / "net.pdmodel"));
}

TEST_F(SavedModelTest, NothingThere) {
  EXPECT_THAT(LoadedModel::Open(folder_ / "net"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("net.pdmodel"),
                                                    HasSubstr("__model__"))));
  ASSERT_OK(Save(FilesOfPrefix(folder_ / "net")));
  ASSERT_OK(base::Remove(folder_ / "net.pdiparams"));
  EXPECT_THAT(LoadedModel::Open(folder_ / "net"),
              StatusIs(StatusCode::kNotFound, HasSubstr("net.pdiparams")));
  ASSERT_OK(Save(FilesOfFolder(folder_ / "each")));
  ASSERT_OK(base::Remove(folder_ / "each" / "w2"));
  EXPECT_THAT(LoadedModel::Open(folder_ / "each"),
              StatusIs(StatusCode::kNotFound, HasSubstr("each/w2")));
}

TEST_F(SavedModelTest, ParametersOfAnotherShape) {
  const ModelFiles files = FilesOfPrefix(folder_ / "net");
  ASSERT_OK(Save(files));
  std::vector<SavedTensor> others;
  others.push_back({.name = "w1", .value = at::ones({5, 4})});
  others.push_back({.name = "w2", .value = at::ones({5, 3})});
  ASSERT_OK(SaveTensors(files.parameters, others));
  Scope scope;
  scope.Get("w2") = at::zeros({5, 3});
  EXPECT_THAT(LoadModel(library_.definitions(), files, scope),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("float32 [5, 4] for w1"),
                             HasSubstr("the program has float32 [4, 5]"))));
  // None or all.
  EXPECT_TRUE(at::equal(scope.Get("w2"), at::zeros({5, 3})));
}

TEST_F(SavedModelTest, VariablesKeepTheirMemory) {
  const ModelFiles files = FilesOfPrefix(folder_ / "net");
  ASSERT_OK(Save(files));
  const at::Tensor held = scope_.Get("w1");
  const at::Tensor saved = held.clone();
  held.zero_();
  ASSERT_OK(LoadModel(library_.definitions(), files, scope_));
  EXPECT_TRUE(at::equal(held, saved));
}

TEST_F(SavedModelTest, NamesThatWouldLeaveTheFolderStayInside) {
  const std::string elsewhere = (folder_ / "elsewhere" / "w").string();
  for (const std::string& name :
       {std::string("../w"), elsewhere, std::string("a/../../w")}) {
    scope_.Get(name) = at::ones({1});
    ASSERT_OK(SaveVariables(scope_, {name}, folder_ / "each", false));
    EXPECT_FALSE(base::Exists(folder_ / "each" / name)) << name;
  }
  ASSERT_OK_AND_ASSIGN(const auto files, base::ListFolder(folder_ / "each"));
  EXPECT_EQ(files.size(), 3u);
  scope_.Get("encoder/w") = at::ones({1});
  ASSERT_OK(SaveVariables(scope_, {"encoder/w"}, folder_ / "each", false));
  EXPECT_TRUE(base::Exists(folder_ / "each" / "encoder" / "w"));
}

// ---- tensors

TEST_F(SavedModelTest, TensorsComeBack) {
  std::vector<SavedTensor> tensors;
  std::vector<std::string> names;
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
  // Not row by row in memory, and with other values than the memory has.
  tensors.push_back({.name = "turned", .value = at::randn({3, 4}).t()});
  tensors.push_back(
      {.name = "conjugate", .value = at::randn({3}, at::kComplexFloat).conj()});
  for (const SavedTensor& tensor : tensors) names.push_back(tensor.name);
  const base::Path path = folder_ / "all";
  ASSERT_OK(SaveTensors(path, tensors));
  ASSERT_OK_AND_ASSIGN(const std::vector<SavedTensor> back,
                       LoadTensors(path, names));
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
  EXPECT_OK(ParseTensors(bytes, names, "here").status());
}

TEST_F(SavedModelTest, TensorsThatCannotBeSaved) {
  const base::Path path = folder_ / "w";
  std::vector<SavedTensor> tensors;
  tensors.push_back({.name = "w", .value = at::Tensor()});
  EXPECT_THAT(SaveTensors(path, tensors),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("'w' is not a dense tensor")));
  tensors[0].value = at::ones({2}).to(at::kFloat8_e4m3fn);
  EXPECT_THAT(SaveTensors(path, tensors),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("'w' is of type Float8_e4m3fn")));
  EXPECT_FALSE(base::Exists(path));
}

// ---- saved/dialect.h

class DialectTest : public SavedModelTest {
 protected:
  DialectTest() {
    AddVariable("image", {-1, 3, 8, 8}).is_data = true;
    AddVariable("kernel", {4, 3, 3, 3}).persistable = true;
    AddVariable("bias", {4}).persistable = true;
  }
};

// What is written in Paddle's words is read back in ours.
TEST_F(DialectTest, ThereAndBack) {
  Append("atan2", {{"X", {"image"}}, {"Y", {"image"}}}, {{"Out", {"angle"}}});
  Append("interpolate", {{"X", {"angle"}}}, {{"Out", {"large"}}},
         {{"out_shape", {program::AttrKind::kInts, Sizes{16, 16}}},
          {"mode", {program::AttrKind::kString, std::string("bilinear")}}});
  Append("logsumexp", {{"X", {"large"}}}, {{"Out", {"sum"}}},
         {{"dim", {program::AttrKind::kInts, Sizes{1, 2}}},
          {"keep_dim", {program::AttrKind::kBool, true}}});
  ASSERT_OK_AND_ASSIGN(
      auto inference,
      ToInference(library_.definitions(), program_, {"image"}, {"sum"}));
  EXPECT_THAT(ToString(*inference, {.variables = false}),
              AllOf(HasSubstr("atan2(inputs={X1=['image'], X2=['image']}"),
                    HasSubstr("bilinear_interp_v2("), HasSubstr("out_h = 16"),
                    HasSubstr("axis = [1, 2]"), HasSubstr("keepdim = True")));
  const ModelFiles files = FilesOfPrefix(folder_ / "net");
  ASSERT_OK(SaveModel(*inference, scope_, files));
  const at::Tensor image = at::randn({2, 3, 8, 8});
  ASSERT_OK_AND_ASSIGN(auto ours, plan::Prune(program_, {"image"}, {"sum"}));
  Executor executor(library_, {});
  ASSERT_OK_AND_ASSIGN(
      std::vector<at::Tensor> wanted,
      executor.Run(*ours, scope_, {{"image", image}}, {"sum"}));
  ASSERT_OK_AND_ASSIGN(auto model, LoadedModel::Open(folder_ / "net"));
  ASSERT_OK_AND_ASSIGN(std::vector<at::Tensor> got, model->Run({image}));
  EXPECT_TRUE(at::allclose(got[0], wanted[0], 1e-5, 1e-6));
}

}  // namespace
}  // namespace fleet::exec
