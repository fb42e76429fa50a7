// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that move elements around without computing with them: new shapes, parts,
// copies.

namespace fleet::program {
namespace {

using Ints = std::vector<int64_t>;
using Types = Result<std::vector<TensorType>>;

std::vector<TensorType> One(DType dtype, Dims dims) {
  return {{dtype, std::move(dims)}};
}

// ---- the same elements in another shape

Types TransposeShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Ints& axis = t.attr<Ints>("axis");
  if (axis.size() != x.dims.size()) {
    return InvalidArgument("perm ", ToString(axis), " must name each of the ",
                           x.dims.size(), " dimensions of X once");
  }
  Dims dims;
  std::vector<bool> seen(axis.size());
  for (int64_t a : axis) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(a, x.dims.size(), "perm"));
    if (seen[i]) {
      return InvalidArgument("perm ", ToString(axis), " names dimension ", i,
                             " twice");
    }
    seen[i] = true;
    dims.push_back(x.dims[i]);
  }
  return One(x.dtype, dims);
}

Status TooManyElements(const Dims& x, const Ints& shape) {
  return InvalidArgument("cannot reshape ", ToString(x), " to ",
                         ToString(shape), ": more than 2^63 elements");
}

// 0 copies the dimension at the same place, -1 takes what is left. A dimension
// of X that is not known and copied by 0 cancels out of the count.
Result<Dims> ReshapeDims(const Dims& x, const Ints& shape) {
  Dims out = shape;
  int64_t have = 1, want = 1;
  int inferred = -1;
  bool known = true;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0) {
      if (i >= x.size()) {
        return InvalidArgument("shape ", ToString(shape), " has 0 at position ",
                               i, ", but X has only ", x.size(), " dimensions");
      }
      out[i] = x[i];
      if (x[i] != -1 && __builtin_mul_overflow(want, x[i], &want)) {
        return TooManyElements(x, shape);
      }
    } else if (out[i] == -1) {
      if (inferred >= 0) {
        return InvalidArgument("shape ", ToString(shape),
                               " has more than one -1");
      }
      inferred = static_cast<int>(i);
    } else if (out[i] < 0) {
      return InvalidArgument("shape ", ToString(shape), " has ", out[i],
                             ": a dimension is positive, 0 or -1");
    } else if (__builtin_mul_overflow(want, out[i], &want)) {
      return TooManyElements(x, shape);
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    bool copied = i < shape.size() && shape[i] == 0;
    if (x[i] != -1) {
      have *= x[i];
    } else if (!copied) {
      known = false;
    }
  }
  if (!known) return out;
  if (inferred < 0) {
    if (have != want) {
      return InvalidArgument("cannot reshape ", ToString(x), " to ",
                             ToString(shape), ": ", have,
                             " elements do not become ", want);
    }
    return out;
  }
  if (want == 0 ? have != 0 : have % want != 0) {
    return InvalidArgument("cannot reshape ", ToString(x), " to ",
                           ToString(shape), ": ", have,
                           " elements do not divide by ", want);
  }
  out[inferred] = want == 0 ? 0 : have / want;
  return out;
}

Types ReshapeShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (t.has("ShapeTensor")) {
    Dims dims = DimsFromTensor(t, "ShapeTensor", "shape");
    for (size_t i = 0; i < dims.size() && i < x.dims.size(); ++i) {
      if (dims[i] == 0) dims[i] = x.dims[i];
    }
    return One(x.dtype, dims);
  }
  ASSIGN_OR_RETURN(Dims dims, ReshapeDims(x.dims, t.attr<Ints>("shape")));
  return One(x.dtype, dims);
}

Types FlattenShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  size_t rank = x.dims.size();
  if (rank == 0) return One(x.dtype, {1});
  ASSIGN_OR_RETURN(int64_t start, NormalizeAxis(t.attr<int64_t>("start_axis"),
                                                rank, "start_axis"));
  ASSIGN_OR_RETURN(int64_t stop, NormalizeAxis(t.attr<int64_t>("stop_axis"),
                                               rank, "stop_axis"));
  if (start > stop) {
    return InvalidArgument("start_axis ", start, " lies behind stop_axis ",
                           stop);
  }
  Dims dims(x.dims.begin(), x.dims.begin() + start);
  dims.push_back(
      NumElements(Dims(x.dims.begin() + start, x.dims.begin() + stop + 1)));
  dims.insert(dims.end(), x.dims.begin() + stop + 1, x.dims.end());
  return One(x.dtype, dims);
}

Types SqueezeShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Ints& axes = t.attr<Ints>("axes");
  std::vector<bool> gone(x.dims.size(), axes.empty());
  for (int64_t axis : axes) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis, x.dims.size(), "axis"));
    if (!x.dims.empty()) gone[i] = true;
  }
  // Who names a dimension that is not known yet means that it will be one.
  auto is_one = [&](int64_t n) { return n == 1 || (n == -1 && !axes.empty()); };
  Dims dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (!gone[i] || !is_one(x.dims[i])) dims.push_back(x.dims[i]);
  }
  return One(x.dtype, dims);
}

Types UnsqueezeShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  Dims dims = x.dims;
  for (int64_t axis : t.attr<Ints>("axes")) {
    ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis, dims.size() + 1, "axis"));
    dims.insert(dims.begin() + i, 1);
  }
  return One(x.dtype, dims);
}

Types Flatten2Shape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const int64_t axis = t.attr<int64_t>("axis");
  if (axis < 0 || axis > static_cast<int64_t>(x.dims.size())) {
    return InvalidArgument("axis is ", axis, " but X has ", x.dims.size(),
                           " dimensions");
  }
  const auto middle = x.dims.begin() + axis;
  return std::vector<TensorType>{{x.dtype,
                                  {NumElements(Dims(x.dims.begin(), middle)),
                                   NumElements(Dims(middle, x.dims.end()))}}};
}

void DefineReshaping(OpDefiner& ops) {
  ops.Define("transpose2(X; axis: ints) -> Out", TransposeShape, "Out' -> X'")
      .Python("tensor.manipulation.transpose(x, perm, name)",
              "Dimensions in the order `perm`.");
  ops.Define("reshape2(X, ShapeTensor?; shape: ints = []) -> Out", ReshapeShape,
             "X, Out' -> X'");
  ops.Define(
         "flatten_contiguous_range(X; start_axis: int = 1, stop_axis: int = "
         "-1) "
         "-> Out",
         FlattenShape, "X, Out' -> X'")
      .Python(
          "tensor.manipulation.flatten(x, start_axis=0, stop_axis, name)",
          "Dimensions start_axis to stop_axis, both included, joined to one.");
  ops.Define("squeeze2(X; axes: ints = []) -> Out", SqueezeShape,
             "X, Out' -> X'")
      .Python("tensor.manipulation.squeeze(x, axis=None, name)",
              "Without the dimensions of size 1: all, or those of `axis` that "
              "are.");
  ops.Define("unsqueeze2(X; axes: ints) -> Out", UnsqueezeShape,
             "X, Out' -> X'")
      .Python("tensor.manipulation.unsqueeze(x, axis, name)",
              "With dimensions of size 1 inserted, one after the other, at "
              "`axis`.");
  ops.Define("flatten2(X; axis: int = 1) -> Out", Flatten2Shape,
             "X, Out' -> X'");
}

// ---- joining and splitting

Types ConcatShape(const OpTypes& t) {
  auto parts = t.list("X");
  if (parts.empty()) return InvalidArgument("x is an empty list");
  Dims dims = parts[0].dims;
  ASSIGN_OR_RETURN(int64_t axis,
                   NormalizeAxis(t.attr<int64_t>("axis"), dims.size(), "axis"));
  if (dims.empty()) return InvalidArgument("tensors without dimensions");
  for (size_t k = 1; k < parts.size(); ++k) {
    const Dims& part = parts[k].dims;
    if (part.size() != dims.size()) {
      return InvalidArgument("x[", k, "] has shape ", ToString(part),
                             ", not as many dimensions as x[0] ",
                             ToString(parts[0].dims));
    }
    if (parts[k].dtype != parts[0].dtype) {
      return InvalidArgument("x[", k, "] is ", Name(parts[k].dtype),
                             " but x[0] is ", Name(parts[0].dtype));
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (static_cast<int64_t>(i) == axis) {
        dims[i] = dims[i] == -1 || part[i] == -1 ? -1 : dims[i] + part[i];
      } else if (dims[i] == -1) {
        dims[i] = part[i];
      } else if (part[i] != -1 && part[i] != dims[i]) {
        return InvalidArgument("x[", k, "] has ", part[i], " in dimension ", i,
                               ", but those before have ", dims[i],
                               "; only dimension ", axis, " may differ");
      }
    }
  }
  return One(parts[0].dtype, dims);
}

Types StackShape(const OpTypes& t) {
  auto parts = t.list("X");
  if (parts.empty()) return InvalidArgument("x is an empty list");
  Dims dims = parts[0].dims;
  for (size_t k = 1; k < parts.size(); ++k) {
    const Dims& part = parts[k].dims;
    if (!CanBeOne(dims, part)) {
      return InvalidArgument("x[", k, "] has shape ", ToString(part),
                             ", but x[0] has ", ToString(parts[0].dims));
    }
    dims = KnownOfBoth(dims, part);
    if (parts[k].dtype != parts[0].dtype) {
      return InvalidArgument("x[", k, "] is ", Name(parts[k].dtype),
                             " but x[0] is ", Name(parts[0].dtype));
    }
  }
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               dims.size() + 1, "axis"));
  dims.insert(dims.begin() + axis, static_cast<int64_t>(parts.size()));
  return One(parts[0].dtype, dims);
}

Types SplitShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  int64_t num = t.attr<int64_t>("num");
  Ints sections = t.attr<Ints>("sections");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  if (x.dims.empty()) return InvalidArgument("x has no dimensions");
  int64_t size = x.dims[axis];
  if (num > 0) {
    if (size % num != 0 && size != -1) {
      return InvalidArgument("dimension ", axis, " of size ", size,
                             " cannot be split into ", num, " equal parts");
    }
    sections.assign(num, size == -1 ? -1 : size / num);
  } else {
    int64_t sum = 0, open = 0;
    for (int64_t section : sections) {
      if (section == -1) ++open;
      if (section < -1) {
        return InvalidArgument("num_or_sections ", ToString(sections), " has ",
                               section);
      }
      sum += std::max<int64_t>(section, 0);
    }
    bool fits = size == -1 || (open == 0 ? sum == size : sum <= size);
    if (sections.empty() || open > 1 || !fits) {
      return InvalidArgument("num_or_sections ", ToString(sections),
                             " does not fit dimension ", axis, " of size ",
                             size, "; one of them may be -1");
    }
    for (int64_t& section : sections) {
      if (section == -1 && size != -1) section = size - sum;
    }
  }
  std::vector<TensorType> out(sections.size(), x);
  for (size_t i = 0; i < out.size(); ++i) out[i].dims[axis] = sections[i];
  return out;
}

Types UnbindShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  if (x.dims.empty()) return InvalidArgument("x has no dimensions");
  int64_t num = t.attr<int64_t>("num");
  int64_t size = x.dims[axis];
  if (num > 0 && size != -1 && num != size) {
    return InvalidArgument("num is ", num, " but dimension ", axis, " has ",
                           size);
  }
  if (size == -1) size = num;
  if (size <= 0) {
    return InvalidArgument("the size of dimension ", axis,
                           " must be known to take X apart along it");
  }
  TensorType part = x;
  part.dims.erase(part.dims.begin() + axis);
  return std::vector<TensorType>(size, part);
}

void DefineJoining(OpDefiner& ops) {
  ops.Define("concat(X*; axis: int = 0) -> Out", ConcatShape, "X, Out' -> X'")
      .Python("tensor.manipulation.concat(x, axis, name)",
              "The tensors of the list x one after the other along `axis`.");
  ops.Define("stack(X*; axis: int = 0) -> Y", StackShape, "Y' -> X'")
      .Python("tensor.manipulation.stack(x, axis, name)",
              "The tensors of the list x beside each other along a new "
              "dimension `axis`.");
  ops.Define(
      "split(X; num: int = 0, sections: ints = [], axis: int = 0) -> Out*",
      SplitShape, "Out' -> X'");
  ops.Define("unstack(X; axis: int = 0, num: int = 0) -> Y*", UnbindShape,
             "Y' -> X'")
      .Python("tensor.manipulation.unbind(input, axis, name)",
              "The slices of the tensor along `axis`, without that dimension.")
      .Python("tensor.manipulation.unstack(x, axis, num=None, name)",
              "The slices of x along `axis`, without that dimension; `num` is "
              "their number.");
}

// ---- copies along dimensions

// X repeated to `shape`, in which -1 keeps the dimension of X.
Result<Dims> ExpandDims(const Dims& x, const Dims& shape) {
  if (shape.size() < x.size()) {
    return InvalidArgument("shape ", ToString(shape),
                           " has fewer dimensions than X ", ToString(x));
  }
  Dims out = shape;
  size_t shift = shape.size() - x.size();
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t from = i < shift ? 1 : x[i - shift];
    if (out[i] == -1 && i < shift) {
      return InvalidArgument("shape ", ToString(shape), " has -1 at position ",
                             i, ", where X ", ToString(x), " has no dimension");
    }
    if (out[i] == -1) out[i] = from;
    if (from != out[i] && from != 1 && from != -1) {
      return InvalidArgument("dimension ", i, " of shape ", ToString(shape),
                             " asks for ", out[i], " where X ", ToString(x),
                             " has ", from);
    }
  }
  return out;
}

Types ExpandShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (t.has("ShapeTensor")) {
    return One(x.dtype, DimsFromTensor(t, "ShapeTensor", "shape"));
  }
  ASSIGN_OR_RETURN(Dims dims, ExpandDims(x.dims, t.attr<Ints>("shape")));
  return One(x.dtype, dims);
}

Types ExpandAsShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Dims& y = t.in("Y").dims;
  if (y.size() < x.dims.size()) {
    return InvalidArgument("y ", ToString(y), " has fewer dimensions than x ",
                           ToString(x.dims));
  }
  Dims dims = y;
  size_t shift = y.size() - x.dims.size();
  for (size_t i = shift; i < y.size(); ++i) {
    int64_t from = x.dims[i - shift];
    if (from > 1 && dims[i] == -1) dims[i] = from;
    if (from != dims[i] && from != 1 && from != -1) {
      return InvalidArgument("x ", ToString(x.dims), " does not expand to y ",
                             ToString(y));
    }
  }
  return One(x.dtype, dims);
}

Types TileShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  Dims times = t.has("RepeatTimes")
                   ? DimsFromTensor(t, "RepeatTimes", "repeat_times")
                   : t.attr<Ints>("repeat_times");
  Dims dims = x.dims;
  if (times.size() < dims.size()) {
    times.insert(times.begin(), dims.size() - times.size(), 1);
  }
  dims.insert(dims.begin(), times.size() - dims.size(), 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (times[i] < 0 && !t.has("RepeatTimes")) {
      return InvalidArgument("repeat_times ", ToString(times), " has ",
                             times[i]);
    }
    dims[i] = dims[i] == -1 || times[i] == -1 ? -1 : dims[i] * times[i];
  }
  return One(x.dtype, dims);
}

Types RepeatInterleaveShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("dim"),
                                               x.dims.size(), "axis"));
  if (x.dims.empty()) return InvalidArgument("x has no dimensions");
  TensorType out = x;
  int64_t repeats = t.attr<int64_t>("Repeats");
  if (t.has("RepeatsTensor")) {
    const Dims& counts = t.in("RepeatsTensor").dims;
    int64_t size = x.dims[axis];
    if (counts.size() != 1 || (counts[0] != size && counts[0] != 1 &&
                               counts[0] != -1 && size != -1)) {
      return InvalidArgument("repeats ", ToString(counts),
                             " must have one number for each of the ", size,
                             " in dimension ", axis);
    }
    out.dims[axis] = -1;
  } else if (repeats < 0) {
    return InvalidArgument("repeats is ", repeats);
  } else if (x.dims[axis] != -1) {
    out.dims[axis] *= repeats;
  }
  return std::vector<TensorType>{out};
}

// Every one of `attr`'s numbers is a dimension of X.
ShapeRule AxesOfX(const std::string& attr) {
  return [attr](const OpTypes& t) -> Types {
    for (int64_t axis : t.attr<Ints>(attr)) {
      RETURN_IF_ERROR(
          NormalizeAxis(axis, t.in("X").dims.size(), "axis").status());
    }
    return std::vector<TensorType>{t.in("X")};
  };
}

// As programs of Paddle 1.8 say it: how often, for each dimension.
Types ExpandTimesShape(const OpTypes& t) {
  TensorType out = t.in("X");
  const Ints& times = t.attr<Ints>("expand_times");
  if (times.size() != out.dims.size()) {
    return InvalidArgument("expand_times has ", times.size(), " numbers for X ",
                           ToString(out.dims));
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 1) return InvalidArgument("expand_times has ", times[i]);
    if (out.dims[i] >= 0) out.dims[i] *= times[i];
  }
  return std::vector<TensorType>{out};
}

void DefineCopying(OpDefiner& ops) {
  ops.Define("expand_v2(X, ShapeTensor?; shape: ints = []) -> Out", ExpandShape,
             "X, Out' -> X'");
  ops.Define("expand_as_v2(X, Y) -> Out", ExpandAsShape, "X, Out' -> X'")
      .Python("tensor.manipulation.expand_as(x, y, name)",
              "x repeated along dimensions of size 1 to the shape of y.");
  ops.Define("tile(X, RepeatTimes?; repeat_times: ints = []) -> Out", TileShape,
             "X, Out' -> X'");
  ops.Define(
      "repeat_interleave(X, RepeatsTensor?; Repeats: int = 1, dim: int = 0) "
      "-> Out",
      RepeatInterleaveShape, "X, RepeatsTensor, Out' -> X'");
  ops.Define("flip(X; axis: ints) -> Out", AxesOfX("axis"), "Out' -> X'")
      .Python("tensor.manipulation.flip(x, axis, name)",
              "Reversed along the dimensions `axis`.")
      .Python("tensor.manipulation.reverse(x, axis, name)",
              "Reversed along the dimensions `axis`.");
  ops.Define("roll(X; shifts: ints, axis: ints = []) -> Out", AxesOfX("axis"),
             "Out' -> X'")
      .Python("tensor.manipulation.roll(x, shifts, axis=None, name)",
              "Elements shifted along `axis` (of the flat tensor without one), "
              "and those pushed out brought back at the other end.");
  ops.Define("expand(X; expand_times: ints) -> Out", ExpandTimesShape,
             "X, Out' -> X'");
}

// ---- types and facts

Types CastShape(const OpTypes& t) {
  return One(t.dtype_attr("out_dtype"), t.in("X").dims);
}

Types ShapeShape(const OpTypes& t) {
  return One(DType::kInt32, {static_cast<int64_t>(t.in("Input").dims.size())});
}

Types AsRealShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  bool wide = x.dtype == DType::kComplex128;
  if (!wide && x.dtype != DType::kComplex64) {
    return InvalidArgument("x must be complex, not ", Name(x.dtype));
  }
  Dims dims = x.dims;
  dims.push_back(2);
  return One(wide ? DType::kFloat64 : DType::kFloat32, dims);
}

Types AsComplexShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  bool wide = x.dtype == DType::kFloat64;
  if (x.dims.empty() || KnownToDiffer(x.dims.back(), 2) ||
      (!wide && x.dtype != DType::kFloat32)) {
    return InvalidArgument(
        "x must be float32 or float64 with a last dimension of 2");
  }
  return One(wide ? DType::kComplex128 : DType::kComplex64,
             Dims(x.dims.begin(), x.dims.end() - 1));
}

void DefineFacts(OpDefiner& ops) {
  ops.Define("cast(X; in_dtype: dtype, out_dtype: dtype) -> Out", CastShape,
             "Out' -> X'");
  ops.Define("assign(X) -> Out", SameAs("X"), "Out' -> X'")
      .Python("tensor.creation.clone(x, name)",
              "A copy that gradients flow through.");
  ops.Define("increment(X; step: float = 1.0) -> Out", SameAs("X"),
             "Out' -> X'");
  ops.Define("shape(Input) -> Out!", ShapeShape)
      .Python("tensor.creation.shape(input)", "The shape, as an int32 tensor.");
  ops.Define("size(Input) -> Out!",
             [](const OpTypes&) -> Types { return One(DType::kInt64, {1}); })
      .Python("tensor.manipulation.numel(x, name)",
              "The number of elements, as an int64 tensor.");
  ops.Define(
         "shard_index(X; index_num: int, nshards: int, shard_id: int, "
         "ignore_value: int = -1) -> Out!",
         SameAs("X"))
      .Python(
          "tensor.manipulation.shard_index(input, index_num, nshards, "
          "shard_id, ignore_value)",
          "The place of each index within shard `shard_id` of `nshards`, or "
          "ignore_value for those of other shards.");
  ops.Define("as_real(X) -> Out", AsRealShape, "Out' -> X'")
      .Python(
          "tensor.manipulation.as_real(x, name)",
          "A complex tensor as pairs of real numbers in a new last dimension.");
  ops.Define("as_complex(X) -> Out", AsComplexShape, "Out' -> X'")
      .Python(
          "tensor.manipulation.as_complex(x, name)",
          "Pairs of real numbers in the last dimension as complex numbers.");
}

}  // namespace

void DefineManipulationOps(OpDefiner& ops) {
  DefineReshaping(ops);
  DefineJoining(ops);
  DefineCopying(ops);
  DefineFacts(ops);
}

void AddManipulationPrecisions(Precisions& listed) {
  listed.Add(Precision::kGray,
             {"assign", "cast", "concat", "expand", "expand_as_v2", "expand_v2",
              "flatten2", "flatten_contiguous_range", "flip", "reshape2",
              "roll", "split", "squeeze2", "stack", "tile", "transpose2",
              "unsqueeze2", "unstack"});
}

}  // namespace fleet::program
