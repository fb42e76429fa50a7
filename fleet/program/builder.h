// SPDX-License-Identifier: Apache-2.0

// Builds programs: every op is a function that appends an operation, and layers
// make their parameters themselves.
//
//   Program main, startup;
//   Builder b(main, startup, {.seed = 7});
//   Value x = b.Data("x", {-1, 784});
//   Value y = b.Data("y", {-1, 1}, DType::kInt64);
//   Value h = b.Fc(x, 128, {.activation = "relu"});
//   Value loss = b.Mean(b.SoftmaxWithCrossEntropy(b.Fc(h, 10), y).loss);
//   RETURN_IF_ERROR(plan::Minimize(b, loss, {.rule = optim::Adam{}}));
//
// The programs are those that the same calls in Python build, down to names. A
// function never fails by itself: the first failure is kept in status(), with
// the user's line, and what is called after it does nothing (building.h).
// plan/minimize.h looks at it.
//
// A layer that has the name of an op stands in front of it; the op is then
// b.Ops::LayerNorm(x, {.scale = scale}).

#ifndef FLEET_PROGRAM_BUILDER_H_
#define FLEET_PROGRAM_BUILDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fleet/program/op_functions.h"

namespace fleet::program {

// In all options, `name` is that of the layer, fc_0 without one, and
// `activation` that of an op of one input ("relu"). A parameter that may be
// left out is absent with std::nullopt.

struct FcOptions {
  int64_t num_flatten_dims = 1;  // so many stay, the others are one; -1: last
  ParamAttr weight = {};
  std::optional<ParamAttr> bias = ParamAttr();
  std::string activation = {};
  std::string name = {};
};

struct EmbeddingOptions {
  bool is_sparse = false;  // the gradient has only the rows that are looked up
  std::optional<int64_t> padding_idx = {};  // reads as zeros; < 0: from the end
  ParamAttr weight = {};
  DType dtype = DType::kFloat32;
};

struct SparseEmbeddingOptions {
  std::optional<int64_t> padding_idx = {};
  bool is_test = false;  // asking for a key makes no row
  // Which keys get a row: "none", "count_filter_entry:10",
  // "probability_entry:0.1", "show_click_entry:show:click".
  std::string entry = "none";
  // "SSDSparseTable": what does not fit into memory is kept on disk.
  std::string table_class = "MemorySparseTable";
  // Seconds after which servers erase rows that nobody asks for; 0: never.
  int64_t time_to_live = 0;
  ParamAttr weight = {};
  DType dtype = DType::kFloat32;
};

// Of convolutions. A list of one number stands for all dimensions.
struct ConvOptions {
  std::vector<int64_t> stride = {1};
  // One number for all, one per dimension, or (before, after) per dimension.
  std::vector<int64_t> padding = {0};
  std::string padding_algorithm = "EXPLICIT";  // or "SAME", "VALID"
  std::vector<int64_t> dilation = {1};
  int64_t groups = 1;
  ParamAttr weight = {};
  std::optional<ParamAttr> bias = ParamAttr();
  std::string activation = {};
  std::string data_format = {};  // "NCHW" or "NCDHW", unless channels are last
  std::string name = {};
};

struct BatchNormOptions {
  bool is_test = false;
  double momentum = 0.9;
  double epsilon = 1e-5;
  bool use_global_stats = false;
  ParamAttr scale = {};
  ParamAttr bias = {};
  std::string mean_name = {};  // of the running mean; else the layer's
  std::string variance_name = {};
  std::string activation = {};
  std::string data_layout = "NCHW";
  std::string name = {};
};

struct LayerNormOptions {
  int64_t begin_norm_axis = 1;
  double epsilon = 1e-5;
  std::optional<ParamAttr> scale = ParamAttr();
  std::optional<ParamAttr> bias = ParamAttr();
  std::string activation = {};
  std::string name = {};
};

struct GroupNormOptions {
  double epsilon = 1e-5;
  std::optional<ParamAttr> scale = ParamAttr();
  std::optional<ParamAttr> bias = ParamAttr();
  std::string activation = {};
  std::string data_layout = "NCHW";
  std::string name = {};
};

// One part of an index, x[...]: a number, which picks one position and takes
// its dimension away; a range; kNewAxis, a new dimension of one; kRest, all
// dimensions that the other parts leave; a list of positions; a value, which is
// one position if it has one element, or a list of positions, or a mask.
struct IndexRange {
  // A number, of which negative ones count from the end, or a value.
  using Bound = std::variant<std::monostate, int64_t, Value>;
  Bound begin = {};
  Bound end = {};  // the first that is left out
  int64_t step = 1;
};
struct NewAxis {};
struct Rest {};
inline constexpr NewAxis kNewAxis = {};
inline constexpr Rest kRest = {};
using IndexPart = std::variant<int64_t, IndexRange, NewAxis, Rest,
                               std::vector<int64_t>, Value>;

// The body of a branch: appends operations and returns what it makes.
using Branch = std::function<Values()>;

class Builder final : public Ops {
 public:
  using Ops::Ops;

  // What a run is fed; -1 is known only then. With lod_level 1 the rows belong
  // to sequences of different lengths (lod.h).
  Value Data(const std::string& name, const Dims& dims,
             DType dtype = DType::kFloat32, int lod_level = 0);
  // A parameter outside of any layer.
  Value Parameter(const Dims& dims, const ParamAttr& attr = {},
                  DType dtype = DType::kFloat32, Line at = Line::current());
  // The activation of that name of `x`; `x` itself for "".
  Value Activate(const Value& x, const std::string& activation,
                 Line at = Line::current());
  Value Cast(const Value& x, DType dtype, Line at = Line::current());

  // ---- layers

  // x W + b, or of several inputs the sum of their products plus b.
  Value Fc(const Value& x, int64_t size, const FcOptions& options = {},
           Line at = Line::current());
  Value Fc(const Values& xs, int64_t size, const FcOptions& options = {},
           Line at = Line::current());
  // The rows of a new parameter [num_rows, width] that `ids` names.
  Value Embedding(const Value& ids, int64_t num_rows, int64_t width,
                  const EmbeddingOptions& options = {},
                  Line at = Line::current());
  // The same of a table that servers have, where there are any: it grows with
  // the keys that it meets, and num_rows says nothing.
  Value SparseEmbedding(const Value& ids, int64_t num_rows, int64_t width,
                        const SparseEmbeddingOptions& options = {},
                        Line at = Line::current());
  Value Conv2d(const Value& x, int64_t num_filters,
               const std::vector<int64_t>& filter_size,
               const ConvOptions& options = {}, Line at = Line::current());
  Value Conv3d(const Value& x, int64_t num_filters,
               const std::vector<int64_t>& filter_size,
               const ConvOptions& options = {}, Line at = Line::current());
  // Each channel with mean 0 and variance 1, times a scale, plus a bias.
  Value BatchNorm(const Value& x, const BatchNormOptions& options = {},
                  Line at = Line::current());
  // The same over the dimensions from begin_norm_axis on.
  Value LayerNorm(const Value& x, const LayerNormOptions& options = {},
                  Line at = Line::current());
  // The same in each of `groups` groups of channels.
  Value GroupNorm(const Value& x, int64_t groups,
                  const GroupNormOptions& options = {},
                  Line at = Line::current());
  // The same in each channel of each example.
  Value InstanceNorm(const Value& x, const GroupNormOptions& options = {},
                     Line at = Line::current());

  // ---- branches and loops

  // What then() returns where `condition`, one bool, holds, else what
  // otherwise() returns; both return as many values of the same types.
  Values Cond(const Value& condition, const Branch& then,
              const Branch& otherwise = {}, Line at = Line::current());
  // Runs what `body` appends where `condition`, one bool, holds. What others
  // read of it are variables that were there before, and that it writes.
  void If(const Value& condition, const std::function<void()>& body,
          Line at = Line::current());
  // What the branch returns whose condition holds first, else otherwise().
  Values Case(const std::vector<std::pair<Value, Branch>>& branches,
              const Branch& otherwise, Line at = Line::current());
  // What the branch with the number `index` returns, else otherwise().
  Values SwitchCase(const Value& index,
                    const std::vector<std::pair<int64_t, Branch>>& branches,
                    const Branch& otherwise, Line at = Line::current());
  // `values` after `values = body(values)` as long as condition(values), one
  // bool, holds. body returns as many values of the same types.
  Values While(const std::function<Value(const Values&)>& condition,
               const std::function<Values(const Values&)>& body,
               const Values& values, Line at = Line::current());

  // ---- indexing

  // x[index]: Item(x, {IndexRange{1, 3}, kRest, 0}).
  Value Item(const Value& x, const std::vector<IndexPart>& index,
             Line at = Line::current());
  // x[index] = value, as operations that write x. The shape of x must be known;
  // parts are numbers, ranges, kNewAxis and kRest, or the index is one mask.
  void SetItem(const Value& x, const std::vector<IndexPart>& index,
               const Value& value, Line at = Line::current());

 private:
  // Operations of bodies.
  bool IsPredicate(const char* function, const Value& value);
  int AddBody();
  void AppendBody(const std::string& op, int body, Slot input, const char* flag,
                  bool flag_value);
  Value NewVariable(const std::string& kind, const Value& like, int block);
  void Write(const Value& value, const Value& to);
  bool RunBranch(const Value& condition, const Branch& branch, Values& held);
  Value Select(const Value& otherwise, const Value& then, const Value& mask);
  // Parts of indices.
  bool SplitIndex(const Value& x, const std::vector<IndexPart>& index,
                  std::vector<IndexPart>& parts);
  Value CutByParts(const Value& x, const std::vector<IndexPart>& parts);
  // A dimension, and the positions along it that are picked.
  using List = std::pair<int64_t, std::variant<Value, std::vector<int64_t>>>;
  Value ListOf(const std::variant<Value, std::vector<int64_t>>& ids);
  Value JoinedLists(const std::vector<List>& lists);
  Value PickByLists(const Value& x, const std::vector<List>& lists);
  Value JoinedNumbers(const std::vector<std::variant<int64_t, Value>>& numbers);

  // The name of a new layer: `name`, or fc_0 of the kind fc.
  std::string LayerName(const std::string& kind, const std::string& name) {
    return name.empty() ? NewName(kind) : name;
  }
  Value Weight(const Dims& dims, DType dtype, const ParamAttr& attr,
               const Initializer& initializer = init::XavierUniform{});
  Value Bias(const Dims& dims, DType dtype,
             const std::optional<ParamAttr>& attr);
  Value Product(const Value& x, int64_t size, const FcOptions& options);
  Value Conv(int rank, const Value& x, int64_t num_filters,
             const std::vector<int64_t>& filter_size,
             const ConvOptions& options, Line at);
  // The number of channels; fails where it is not known.
  int64_t Channels(const char* layer, const Value& x,
                   const std::string& layout);
  Value NormByGroups(const char* layer, const Value& x, int64_t groups,
                     const GroupNormOptions& options, Line at);
};

// a + b and so on, with the shorter shape spread over the longer one's end.
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
inline Value operator+(double a, const Value& b) { return b + a; }
inline Value operator*(double a, const Value& b) { return b * a; }
Value operator-(double a, const Value& b);
Value operator-(const Value& a);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_BUILDER_H_
