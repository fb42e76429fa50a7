// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fleet/ops/eager/eager.h"
#include "fleet/ops/kernels.h"

// Shape rules and kernels are written apart; here both are asked, and must say
// the same.

namespace fleet::ops {
namespace {

using at::Tensor;
using program::OpTypes;
using program::TensorType;
using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;

struct Case {
  const char* op;
  std::vector<std::vector<Tensor>> slots;
  std::vector<std::pair<const char*, Attr>> attrs = {};
};

Tensor X(at::IntArrayRef shape) { return at::rand(shape) + 0.1; }
Tensor I(at::IntArrayRef values) { return at::tensor(values, at::kLong); }
Attr Type(DType dtype) { return static_cast<int64_t>(dtype); }

std::vector<Case> Cases() {
  Tensor x = X({2, 3, 4}), flat = X({6}), square = X({3, 4});
  Tensor mask = x > 0.5;
  int64_t one = 1, two = 2, last = -1;
  DType i32 = DType::kInt32, f64 = DType::kFloat64;
  return {
      {"transpose2", {{x}}, {{"axis", Ints{2, 0, -2}}}},
      {"reshape2", {{x}, {}}, {{"shape", Ints{0, -1}}}},
      {"reshape2", {{x}, {I({4, 6})}}},
      {"flatten_contiguous_range", {{x}}},
      {"flatten_contiguous_range", {{at::ones({})}}},
      {"squeeze2", {{X({1, 3, 1})}}},
      {"squeeze2", {{X({1, 3, 1})}}, {{"axes", Ints{0, 1}}}},
      {"unsqueeze2", {{x}}, {{"axes", Ints{0, -1}}}},
      {"concat", {{x, x}}, {{"axis", last}}},
      {"stack", {{x, x, x}}, {{"axis", last}}},
      {"split", {{x}}, {{"num", two}, {"axis", last}}},
      {"split", {{x}}, {{"sections", Ints{1, -1}}, {"axis", one}}},
      {"unstack", {{x}}, {{"axis", one}}},
      {"expand_v2", {{X({3, 1})}, {}}, {{"shape", Ints{2, -1, 5}}}},
      {"expand_as_v2", {{X({3, 1})}, {X({2, 3, 5})}}},
      {"tile", {{x}, {}}, {{"repeat_times", Ints{2}}}},
      {"tile", {{flat}, {}}, {{"repeat_times", Ints{2, 3}}}},
      {"repeat_interleave", {{x}, {}}, {{"Repeats", two}, {"dim", last}}},
      {"repeat_interleave", {{x}, {I({2, 0, 1})}}, {{"dim", one}}},
      {"flip", {{x}}, {{"axis", Ints{0, -1}}}},
      {"roll", {{x}}, {{"shifts", Ints{3}}}},
      {"cast", {{x}}, {{"in_dtype", Type(f64)}, {"out_dtype", Type(i32)}}},
      {"assign", {{x}}},
      {"increment", {{flat}}},
      {"shape", {{x}}},
      {"size", {{x}}},
      {"shard_index",
       {{I({1, 5})}},
       {{"index_num", int64_t{6}}, {"nshards", two}, {"shard_id", one}}},
      {"as_complex", {{X({3, 2})}}},
      {"slice",
       {{x}, {}, {}},
       {{"axes", Ints{1, -1}}, {"starts", Ints{1, -9}}, {"ends", Ints{9, -1}}}},
      {"slice",
       {{x}, {}, {}},
       {{"axes", Ints{0}},
        {"starts", Ints{1}},
        {"ends", Ints{2}},
        {"decrease_axis", Ints{0}}}},
      {"slice",
       {{flat}, {}, {}},
       {{"axes", Ints{0}},
        {"starts", Ints{1}},
        {"ends", Ints{2}},
        {"decrease_axis", Ints{0}}}},
      {"strided_slice",
       {{x}},
       {{"axes", Ints{1, 2}},
        {"starts", Ints{0, -1}},
        {"ends", Ints{3, -9}},
        {"strides", Ints{2, -3}}}},
      {"crop_tensor",
       {{x}, {}, {}},
       {{"shape", Ints{1, -1, 2}}, {"offsets", Ints{1, 1, 1}}}},
      {"gather", {{x}, {I({1, 0, 1})}}, {{"axis", one}}},
      {"index_select", {{x}, {I({1})}}, {{"dim", last}}},
      {"gather_nd", {{x}, {I({1, 2})}}},
      {"gather_nd", {{x}, {at::zeros({5, 1}, at::kInt)}}},
      {"gather_nd", {{x}, {I({1, 2, 3})}}},
      {"index_sample", {{square}, {at::zeros({3, 5}, at::kLong)}}},
      {"take_along_axis",
       {{x}, {at::zeros({1, 5, 4}, at::kLong)}},
       {{"Axis", one}}},
      {"scatter", {{square}, {I({2, 0})}, {X({2, 4})}}},
      {"scatter", {{square}, {I({2, 2})}, {X({2, 4})}}, {{"overwrite", false}}},
      {"scatter_nd_add", {{x}, {I({1, 2})}, {X({4})}}},
      {"put_along_axis",
       {{square}, {at::zeros({3, 1}, at::kLong)}, {X({1})}},
       {{"Axis", one}}},
      {"top_k_v2", {{x}, {}}, {{"k", two}, {"axis", one}}},
      {"argsort", {{x}}},
      {"arg_max", {{x}}, {{"axis", one}, {"dtype", Type(i32)}}},
      {"arg_max", {{x}}, {{"flatten", true}}},
      {"arg_min", {{x}}, {{"flatten", true}, {"keepdims", true}}},
      {"arg_min", {{flat}}},
      {"where", {{mask}, {x}, {X({4})}}},
      {"where_index", {{mask}}},
      {"masked_select", {{x}, {mask}}},
      {"unique",
       {{x}},
       {{"return_index", true},
        {"return_inverse", true},
        {"return_counts", true}}},
      {"unique",
       {{square}},
       {{"axis", Ints{1}},
        {"return_index", true},
        {"return_inverse", true},
        {"return_counts", true},
        {"dtype", Type(i32)}}},
      {"fill_constant", {{}, {}}, {{"shape", Ints{2, 0}}}},
      {"fill_constant", {{I({2, 3})}, {}}, {{"dtype", Type(i32)}}},
      {"fill_any_like", {{x}}, {{"dtype", Type(f64)}}},
      {"empty", {{}}, {{"shape", Ints{}}}},
      {"empty_like", {{x}}},
      {"range", {{}, {}, {}}, {{"end", 2.5}, {"step", 0.5}}},
      {"range", {{}, {}, {}}, {{"end", 5.0}, {"start", 7.0}}},
      {"linspace", {{}, {}, {}}, {{"num", int64_t{7}}}},
      {"eye", {}, {{"num_rows", two}, {"num_columns", one}}},
      {"tril_triu", {{x}}},
      {"diag_v2", {{flat}}, {{"offset", last}}},
      {"diag_v2", {{square}}, {{"offset", last}}},
      {"diag_v2", {{square}}, {{"offset", int64_t{9}}}},
      {"meshgrid", {{flat, X({2})}}},
      {"gaussian_random", {{}}, {{"shape", Ints{2, 3}}}},
      {"truncated_gaussian_random", {{}}, {{"shape", Ints{2, 3}}}},
      {"uniform_random", {{}}, {{"shape", Ints{4}}, {"dtype", Type(f64)}}},
      {"randint", {{}}, {{"shape", Ints{4}}, {"high", two}}},
      {"randperm", {}, {{"n", two}, {"dtype", Type(i32)}}},
      {"bernoulli", {{at::full({2, 2}, 0.5)}}},
      {"poisson", {{x}}},
      {"multinomial", {{square}}, {{"num_samples", two}}},
      {"multinomial", {{flat}}},
      {"linear_chain_crf",
       {{X({5, 3})}, {X({5, 3})}, {I({0, 1, 2, 0, 1})}, {}, {I({0, 2, 5})}}},
      {"linear_chain_crf",
       {{x}, {X({6, 4})}, {at::zeros({2, 3}, at::kLong)}, {I({3, 1})}, {}}},
      {"crf_decoding", {{X({5, 3})}, {X({5, 3})}, {}, {}, {I({0, 2, 5})}}},
      {"crf_decoding", {{x}, {X({6, 4})}, {}, {I({3, 1})}, {}}},
      {"deformable_conv",
       {{X({2, 4, 5, 6})},
        {X({2, 8, 5, 3})},
        {X({6, 2, 2, 1})},
        {X({2, 4, 5, 3})}},
       {{"strides", Ints{1, 2}},
        {"paddings", Ints{1, 0}},
        {"dilations", Ints{2, 1}},
        {"groups", two},
        {"deformable_groups", two}}},
      {"deformable_conv_v1",
       {{X({2, 1, 4, 4})}, {X({2, 18, 2, 2})}, {X({3, 1, 3, 3})}}},
      {"prior_box",
       {{X({1, 2, 3, 4})}, {X({1, 3, 9, 9})}},
       {{"min_sizes", Floats{2, 3}},
        {"max_sizes", Floats{4, 5}},
        {"aspect_ratios", Floats{2, 1}},
        {"flip", true}}},
      {"density_prior_box",
       {{X({1, 2, 3, 4})}, {X({1, 3, 9, 9})}},
       {{"densities", Ints{2, 1}},
        {"fixed_sizes", Floats{4, 5}},
        {"fixed_ratios", Floats{2}},
        {"flatten_to_2d", true}}},
      {"flatten2", {{x}}},
      {"one_hot", {{at::zeros({2, 1}, at::kLong)}}, {{"depth", two}}},
      {"expand", {{square}}, {{"expand_times", Ints{2, 3}}}},
      {"pad", {{square}}, {{"paddings", Ints{1, 0, 0, 2}}}},
      {"pad2d",
       {{X({1, 2, 3, 4})}},
       {{"paddings", Ints{1, 0, 2, 1}}, {"mode", std::string("reflect")}}},
      {"norm", {{x}}},
      {"cos_sim", {{square}, {square}}},
      {"label_smooth", {{square}, {}}},
      {"huber_loss", {{x}, {x}}},
      {"instance_norm", {{X({2, 3, 4})}, {}, {}}},
      {"merge_selected_rows", {{square}}},
      {"get_tensor_from_selected_rows", {{square}}},
  };
}

bool Agree(const TensorType& rule, const Tensor& tensor) {
  if (!tensor.defined()) return true;
  if (rule.dtype != ToDType(tensor.scalar_type())) return false;
  if (rule.dims.size() != static_cast<size_t>(tensor.dim())) return false;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (rule.dims[i] != -1 && rule.dims[i] != tensor.size(i)) return false;
  }
  return true;
}

TEST(ShapeRules, SayWhatTheKernelsDo) {
  OpLibrary library;
  for (const Case& test : Cases()) {
    const Op* op = library.Find(test.op);
    ASSERT_NE(op, nullptr) << test.op;
    Attrs attrs = op->def->DefaultAttrs();
    for (const auto& [name, value] : test.attrs) {
      ASSERT_GE(op->def->AttrIndex(name), 0) << test.op << " " << name;
      attrs[op->def->AttrIndex(name)] = value;
    }
    std::vector<Tensor> inputs;
    std::vector<uint32_t> ends;
    std::vector<std::vector<TensorType>> types;
    for (const std::vector<Tensor>& slot : test.slots) {
      types.emplace_back();
      for (const Tensor& t : slot) {
        inputs.push_back(t);
        types.back().push_back({ToDType(t.scalar_type()), t.sizes().vec()});
      }
      ends.push_back(inputs.size());
    }
    ASSERT_EQ(types.size(), op->def->inputs.size()) << test.op;
    auto rule = op->def->InferTypes(OpTypes(*op->def, types, attrs));
    auto out = RunEager(*op, inputs, ends, attrs, Context());
    ASSERT_TRUE(rule.ok()) << rule.status().ToString();
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    ASSERT_EQ(rule->size(), out->size()) << test.op;
    for (size_t i = 0; i < out->size(); ++i) {
      EXPECT_TRUE(Agree((*rule)[i], (*out)[i]))
          << test.op << " output " << i << ": the rule says "
          << ToString((*rule)[i]) << ", the kernel gives "
          << (*out)[i].scalar_type() << " " << (*out)[i].sizes();
    }
  }
}

}  // namespace
}  // namespace fleet::ops
