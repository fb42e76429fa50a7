// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/program/define_ops.h"

namespace fleet::program {
namespace {

using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

// An op with the attributes of a call; the others have their defaults.
class Call {
 public:
  explicit Call(const char* op)
      : def_(Definitions().Find(op)),
        inputs_(def_->inputs.size()),
        attrs_(def_->DefaultAttrs()) {}

  Call& In(const char* slot, Dims dims, DType dtype = kF32) {
    inputs_[def_->InputSlot(slot)].push_back({dtype, std::move(dims)});
    return *this;
  }
  Call& Set(const char* name, Attr value) {
    attrs_[def_->AttrIndex(name)] = std::move(value);
    return *this;
  }

  Result<std::vector<TensorType>> Types() {
    return def_->InferTypes(OpTypes(*def_, inputs_, attrs_));
  }
  Dims Shape() { return Types().value()[0].dims; }
  std::string Error() { return Types().status().ToString(); }

 private:
  static const OpRegistry& Definitions() {
    static const OpRegistry all = [] {
      OpRegistry ops;
      DefineAllOps(ops);
      return ops;
    }();
    return all;
  }

  const OpDef* def_;
  std::vector<std::vector<TensorType>> inputs_;
  Attrs attrs_;
};

using Ints = std::vector<int64_t>;

Dims Reshaped(Dims x, Ints shape) {
  return Call("reshape2").In("X", x).Set("shape", shape).Shape();
}
std::string ReshapeError(Dims x, Ints shape) {
  return Call("reshape2").In("X", x).Set("shape", shape).Error();
}

TEST(Reshape, ZeroCopiesAndMinusOneIsInferred) {
  EXPECT_EQ(Reshaped({2, 3, 4}, {0, -1}), (Dims{2, 12}));
  EXPECT_EQ(Reshaped({6}, {2, 3}), (Dims{2, 3}));
  EXPECT_EQ(Reshaped({1}, {}), (Dims{}));
  EXPECT_EQ(Reshaped({0, 3}, {0, -1}), (Dims{0, 0}));
}

TEST(Reshape, AnUnknownDimensionThatIsCopiedCancelsOut) {
  EXPECT_EQ(Reshaped({-1, 3, 4}, {0, -1}), (Dims{-1, 12}));
  EXPECT_EQ(Reshaped({-1, 3, 4}, {0, 12}), (Dims{-1, 12}));
  EXPECT_EQ(Reshaped({-1, 3, 4}, {-1, 12}), (Dims{-1, 12}));
  EXPECT_EQ(Reshaped({-1, 3}, {-1, 2}), (Dims{-1, 2}));
  EXPECT_EQ(Reshaped({5, -1}, {-1, 0}), (Dims{5, -1}));
}

TEST(Reshape, SaysWhatDoesNotFit) {
  EXPECT_THAT(ReshapeError({2, 3}, {4, 2}), HasSubstr("6 elements"));
  EXPECT_THAT(ReshapeError({2, 3}, {4, -1}), HasSubstr("do not divide by 4"));
  EXPECT_THAT(ReshapeError({2, 3}, {-1, -1}), HasSubstr("more than one -1"));
  EXPECT_THAT(ReshapeError({6}, {2, 0}), HasSubstr("0 at position 1"));
  EXPECT_THAT(ReshapeError({6}, {-2, 3}), HasSubstr("-2"));
  EXPECT_THAT(ReshapeError({-1, 3}, {0, 4}), HasSubstr("reshape2(X float32"));
}

TEST(Multiplex, AShapeIsWhatAllOfXKnow) {
  auto pick = [](Dims one, Dims two) {
    return Call("multiplex").In("X", one).In("X", two).In("Ids", {4, 1});
  };
  EXPECT_EQ(pick({-1, 2}, {4, 2}).Shape(), (Dims{4, 2}));
  EXPECT_EQ(pick({4, -1}, {-1, 2}).Shape(), (Dims{4, 2}));
  EXPECT_THAT(pick({-1, 2}, {4, 3}).Error(), HasSubstr("one shape"));
}

TEST(ScatterNdAdd, AnIndexOfUnknownDepthFits) {
  Call call("scatter_nd_add");
  call.In("X", {3, 4}).In("Index", {2, -1}, DType::kInt64);
  EXPECT_EQ(call.In("Updates", {2, 4}).Shape(), (Dims{3, 4}));
}

TEST(Reshape, AShapeTensorTellsOnlyTheRank) {
  EXPECT_EQ(Call("reshape2")
                .In("X", {2, 3})
                .In("ShapeTensor", {2}, DType::kInt32)
                .Shape(),
            (Dims{-1, -1}));
  EXPECT_EQ(Call("reshape2")
                .In("X", {2, 3})
                .In("ShapeTensor", {2}, DType::kInt64)
                .Set("shape", Ints{0, -1})
                .Shape(),
            (Dims{2, -1}));
}

TEST(Squeeze, OfADimensionThatIsNotKnown) {
  EXPECT_EQ(Call("squeeze2").In("X", {-1, 1, 3}).Set("axes", Ints{0}).Shape(),
            (Dims{1, 3}));
  EXPECT_EQ(Call("squeeze2").In("X", {-1, 1, 3}).Shape(), (Dims{-1, 3}));
}

TEST(Squeeze, LeavesWhatIsNotOne) {
  auto squeezed = [](Ints axes) {
    return Call("squeeze2").In("X", {1, 3, 1}).Set("axes", axes).Shape();
  };
  EXPECT_EQ(squeezed({}), (Dims{3}));
  EXPECT_EQ(squeezed({0, 1}), (Dims{3, 1}));
  EXPECT_EQ(squeezed({-1}), (Dims{1, 3}));
}

TEST(Unsqueeze, InsertsOneAfterTheOther) {
  EXPECT_EQ(Call("unsqueeze2").In("X", {3}).Set("axes", Ints{0, 2}).Shape(),
            (Dims{1, 3, 1}));
  EXPECT_THAT(Call("unsqueeze2").In("X", {3}).Set("axes", Ints{3}).Error(),
              HasSubstr("axis is 3"));
}

TEST(Concat, AddsUpTheAxisAndKeepsTheRest) {
  EXPECT_EQ(Call("concat").In("X", {2, 3}).In("X", {4, 3}).Shape(),
            (Dims{6, 3}));
  EXPECT_EQ(Call("concat")
                .In("X", {-1, 3})
                .In("X", {5, 2})
                .Set("axis", int64_t{-1})
                .Shape(),
            (Dims{5, 5}));
  EXPECT_EQ(Call("concat").In("X", {-1, 3}).In("X", {5, -1}).Shape(),
            (Dims{-1, 3}));
}

TEST(Concat, NamesThePartThatDoesNotFit) {
  EXPECT_THAT(Call("concat").In("X", {2, 3}).In("X", {2, 4}).Error(),
              HasSubstr("x[1] has 4 in dimension 1"));
  EXPECT_THAT(Call("concat").In("X", {2, 3}).In("X", {2}).Error(),
              HasSubstr("x[1] has shape [2]"));
  EXPECT_THAT(Call("concat").In("X", {2}).In("X", {2}, DType::kInt64).Error(),
              HasSubstr("int64"));
  EXPECT_THAT(Call("concat").Error(), HasSubstr("empty list"));
}

std::vector<Dims> SplitDims(Dims x, int64_t num, Ints sections, int64_t axis) {
  std::vector<Dims> dims;
  auto types = Call("split")
                   .In("X", x)
                   .Set("num", num)
                   .Set("sections", sections)
                   .Set("axis", axis)
                   .Types();
  for (const TensorType& type : types.value()) dims.push_back(type.dims);
  return dims;
}

TEST(Split, TakesEqualPartsOrSections) {
  EXPECT_EQ(SplitDims({6, 2}, 3, {}, 0),
            (std::vector<Dims>{{2, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(SplitDims({2, 6}, 0, {1, -1, 2}, -1),
            (std::vector<Dims>{{2, 1}, {2, 3}, {2, 2}}));
  EXPECT_EQ(SplitDims({-1, 6}, 0, {2, -1}, 0),
            (std::vector<Dims>{{2, 6}, {-1, 6}}));
  EXPECT_EQ(SplitDims({-1}, 2, {}, 0), (std::vector<Dims>{{-1}, {-1}}));
}

TEST(Split, RefusesPartsThatDoNotFit) {
  auto error = [](int64_t num, Ints sections) {
    return Call("split")
        .In("X", {7})
        .Set("num", num)
        .Set("sections", sections)
        .Error();
  };
  EXPECT_THAT(error(2, {}), HasSubstr("size 7"));
  EXPECT_THAT(error(0, {3, 3}), HasSubstr("does not fit"));
  EXPECT_THAT(error(0, {-1, -1}), HasSubstr("does not fit"));
  EXPECT_THAT(error(0, {8, -1}), HasSubstr("does not fit"));
}

TEST(Expand, MinusOneKeepsADimension) {
  auto expand = [](Dims x, Ints shape) {
    return Call("expand_v2").In("X", x).Set("shape", shape);
  };
  EXPECT_EQ(expand({1, 3}, {4, 2, -1}).Shape(), (Dims{4, 2, 3}));
  EXPECT_EQ(expand({-1, 1}, {-1, 5}).Shape(), (Dims{-1, 5}));
  EXPECT_THAT(expand({3}, {4}).Error(), HasSubstr("asks for 4"));
  EXPECT_THAT(expand({3}, {-1, 3}).Error(), HasSubstr("no dimension"));
  EXPECT_THAT(expand({2, 3}, {3}).Error(), HasSubstr("fewer dimensions"));
}

TEST(Tile, FillsTheShorterSideWithOnes) {
  auto tile = [](Dims x, Ints times) {
    return Call("tile").In("X", x).Set("repeat_times", times).Shape();
  };
  EXPECT_EQ(tile({2, 3}, {2}), (Dims{2, 6}));
  EXPECT_EQ(tile({3}, {2, 2}), (Dims{2, 6}));
  EXPECT_EQ(tile({-1, 3}, {2, 2}), (Dims{-1, 6}));
}

Call SliceOf(Dims x, Ints axes, Ints starts, Ints ends) {
  return Call("slice")
      .In("Input", x)
      .Set("axes", axes)
      .Set("starts", starts)
      .Set("ends", ends);
}

TEST(Slice, CountsAsPythonDoes) {
  EXPECT_EQ(SliceOf({5, 4}, {0, 1}, {1, -3}, {3, 100}).Shape(), (Dims{2, 3}));
  EXPECT_EQ(SliceOf({5, 4}, {0}, {4}, {2}).Shape(), (Dims{0, 4}));
  EXPECT_EQ(SliceOf({-1, 4}, {0}, {1}, {3}).Shape(), (Dims{-1, 4}));
  EXPECT_EQ(
      SliceOf({5, 4}, {0}, {1}, {2}).Set("decrease_axis", Ints{0}).Shape(),
      (Dims{4}));
  EXPECT_EQ(SliceOf({5}, {0}, {1}, {2}).Set("decrease_axis", Ints{0}).Shape(),
            (Dims{1}));
}

TEST(Slice, NamesWhatIsWrong) {
  EXPECT_THAT(SliceOf({5}, {1}, {0}, {1}).Error(), HasSubstr("axes is 1"));
  EXPECT_THAT(SliceOf({5}, {0}, {0, 1}, {1}).Error(),
              HasSubstr("equally long"));
}

TEST(StridedSlice, WalksBothWays) {
  auto strided = [](int64_t start, int64_t end, int64_t step) {
    return Call("strided_slice")
        .In("Input", {5})
        .Set("axes", Ints{0})
        .Set("starts", Ints{start})
        .Set("ends", Ints{end})
        .Set("strides", Ints{step})
        .Shape();
  };
  EXPECT_EQ(strided(0, 5, 2), (Dims{3}));
  EXPECT_EQ(strided(-1, -100, -2), (Dims{3}));
  EXPECT_EQ(strided(3, 0, -1), (Dims{3}));
  EXPECT_EQ(strided(0, 3, -1), (Dims{0}));
}

TEST(Gather, ReplacesTheAxis) {
  EXPECT_EQ(Call("gather")
                .In("X", {5, 4})
                .In("Index", {-1}, DType::kInt32)
                .Set("axis", int64_t{1})
                .Shape(),
            (Dims{5, -1}));
  EXPECT_THAT(
      Call("gather").In("X", {5}).In("Index", {2}, DType::kFloat32).Error(),
      HasSubstr("int32 or int64"));
}

TEST(GatherNd, TakesTheLastDimensionAsPosition) {
  auto gather = [](Dims index) {
    return Call("gather_nd")
        .In("X", {5, 4, 3})
        .In("Index", index, DType::kInt64);
  };
  EXPECT_EQ(gather({-1, 2}).Shape(), (Dims{-1, 3}));
  EXPECT_EQ(gather({7, 3}).Shape(), (Dims{7}));
  EXPECT_THAT(gather({7, 4}).Error(), HasSubstr("at most 3"));
}

TEST(FillConstant, RefusesNegativeDimensions) {
  EXPECT_THAT(Call("fill_constant").Set("shape", Ints{2, -1}).Error(),
              HasSubstr("not negative"));
  EXPECT_EQ(Call("fill_constant").In("ShapeTensor", {3}, DType::kInt32).Shape(),
            (Dims{-1, -1, -1}));
}

}  // namespace
}  // namespace fleet::program
