// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops on sequences of different lengths. The rows of X are those of all
// sequences, one behind the other; Lod (int64) says where each of them begins,
// and ends with the number of rows. See lod.h.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

constexpr DType kOffsets = DType::kInt64;

Status CheckRows(const OpTypes& t, const char* slot) {
  if (!t.in(slot).dims.empty()) return OkStatus();
  return InvalidArgument(slot, " has no dimensions");
}

// The number of sequences that the offsets in `slot` describe.
int64_t NumSequences(const OpTypes& t, const char* slot) {
  const int64_t n = NumElements(t.in(slot).dims);
  return n < 1 ? -1 : n - 1;
}

Dims WithFirst(Dims dims, int64_t first) {
  dims[0] = first;
  return dims;
}

Types PoolShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const std::string& type = t.attr<std::string>("pooltype");
  bool known = false;
  for (const char* name : {"SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"}) {
    known |= type == name;
  }
  if (!known) {
    return InvalidArgument(
        "pooltype must be SUM, AVERAGE, SQRT, MAX, FIRST or LAST, not '", type,
        "'");
  }
  const TensorType& x = t.in("X");
  Dims dims = WithFirst(x.dims, NumSequences(t, "Lod"));
  return std::vector<TensorType>{{x.dtype, dims}, {DType::kInt32, dims}};
}

Types SoftmaxShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  RETURN_IF_ERROR(CheckRows(t, "X"));
  if (x.dims.size() > 2 || (x.dims.size() == 2 && x.dims[1] > 1)) {
    return InvalidArgument("X must have shape [rows] or [rows, 1], not ",
                           ToString(x.dims));
  }
  return std::vector<TensorType>{x};
}

// As X, with a number of rows that only the offsets tell.
Types NewRows(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const TensorType& x = t.in("X");
  return std::vector<TensorType>{{x.dtype, WithFirst(x.dims, -1)},
                                 {kOffsets, {-1}}};
}

Types ExpandAsShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const TensorType& x = t.in("X");
  return std::vector<TensorType>{{x.dtype, WithFirst(x.dims, -1)}};
}

Types ConcatShape(const OpTypes& t) {
  std::span<const TensorType> x = t.list("X");
  if (x.empty() || x.size() != t.list("Lod").size()) {
    return InvalidArgument("every tensor in X must be a sequence");
  }
  int64_t rows = 0;
  for (const TensorType& one : x) {
    if (one.dims.empty()) return InvalidArgument("X has no dimensions");
    const int64_t n = one.dims[0];
    rows = rows < 0 || n < 0 ? -1 : rows + n;
  }
  return std::vector<TensorType>{{x[0].dtype, WithFirst(x[0].dims, rows)},
                                 {kOffsets, t.list("Lod")[0].dims}};
}

Types PadShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const TensorType& x = t.in("X");
  const int64_t length = t.attr<int64_t>("padded_length");
  Dims dims = x.dims;
  dims[0] = length > 0 ? length : -1;
  dims.insert(dims.begin(), NumSequences(t, "Lod"));
  return std::vector<TensorType>{{x.dtype, dims}, {DType::kInt64, {dims[0]}}};
}

Types UnpadShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (x.dims.size() < 2) {
    return InvalidArgument("X must have shape [sequences, length, ...], not ",
                           ToString(x.dims));
  }
  Dims dims(x.dims.begin() + 1, x.dims.end());
  dims[0] = -1;
  const int64_t n = x.dims[0];
  return std::vector<TensorType>{{x.dtype, dims},
                                 {kOffsets, {n < 0 ? -1 : n + 1}}};
}

// A mask [..., maxlen] of the lengths in X.
Types MaskShape(const OpTypes& t) {
  Dims dims = t.in("X").dims;
  const int64_t maxlen = t.attr<int64_t>("maxlen");
  dims.push_back(t.has("MaxLenTensor") || maxlen < 0 ? -1 : maxlen);
  DType dtype = t.dtype_attr("out_dtype");
  return std::vector<TensorType>{
      {dtype == DType::kNone ? DType::kInt64 : dtype, dims}};
}

// Filter [contextLength * width, filters].
Types ConvShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Dims& filter = t.in("Filter").dims;
  const int64_t length = t.attr<int64_t>("contextLength");
  if (x.dims.size() != 2 || filter.size() != 2) {
    return InvalidArgument("X ", ToString(x.dims), " and Filter ",
                           ToString(filter), " must have two dimensions");
  }
  if (t.attr<int64_t>("contextStride") != 1) {
    return InvalidArgument("contextStride must be 1");
  }
  if (length < 1 ||
      (x.dims[1] >= 0 && KnownToDiffer(filter[0], length * x.dims[1]))) {
    return InvalidArgument("Filter ", ToString(filter), " must have ",
                           length * x.dims[1], " rows");
  }
  return std::vector<TensorType>{{x.dtype, {x.dims[0], filter[1]}}};
}

Types ReshapeShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const int64_t width = t.attr<int64_t>("new_dim");
  if (x.dims.size() != 2 || width < 1) {
    return InvalidArgument("X ", ToString(x.dims), " with new_dim ", width);
  }
  const int64_t n = NumElements(x.dims);
  return std::vector<TensorType>{{x.dtype, {n < 0 ? -1 : n / width, width}},
                                 {kOffsets, t.in("Lod").dims}};
}

Types EnumerateShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const int64_t size = t.attr<int64_t>("win_size");
  if (size < 1) return InvalidArgument("win_size is ", size);
  return std::vector<TensorType>{{t.in("X").dtype, {t.in("X").dims[0], size}}};
}

Types ResetShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckRows(t, "X"));
  const auto& target = t.attr<std::vector<int64_t>>("target_lod");
  Dims offsets =
      t.has("Y") ? t.in("Y").dims : Dims{static_cast<int64_t>(target.size())};
  if (t.has("YLod")) offsets = t.in("YLod").dims;
  if (!t.has("Y") && target.empty()) {
    return InvalidArgument("neither Y nor target_lod says where to cut");
  }
  return std::vector<TensorType>{t.in("X"), {kOffsets, offsets}};
}

// Filter [future rows + 1, width].
Types RowConvShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  const Dims& filter = t.in("Filter").dims;
  if (x.dims.size() != 2 || filter.size() != 2 ||
      KnownToDiffer(filter[1], x.dims[1])) {
    return InvalidArgument("Filter ", ToString(filter),
                           " must have the width of X ", ToString(x.dims));
  }
  return std::vector<TensorType>{x};
}

}  // namespace

void DefineSequenceOps(OpDefiner& ops) {
  // One row for each sequence. MaxIndex: the rows that MAX took; an empty
  // sequence gives pad_value.
  ops.Define(
      "sequence_pool(X, Lod; pooltype: string = 'AVERAGE', "
      "pad_value: float = 0.0) -> Out, MaxIndex!",
      PoolShape, "X, Lod, MaxIndex, Out' -> X'");
  ops.Define("sequence_softmax(X, Lod) -> Out", SoftmaxShape,
             "Out, Lod, Out' -> X'");
  ops.Define("sequence_reverse(X, Lod) -> Y", SameAs("X"), "Lod, Y' -> X'");
  // Sequence i of X, or row i if X has no offsets, as often as sequence i of Y
  // has rows.
  ops.Define(
      "sequence_expand(X, Y, XLod?, YLod; ref_level: int = -1) -> Out, "
      "OutLod!",
      NewRows, "X, XLod, YLod, Out' -> X'");
  // Row i of X as often as sequence i of Y has rows.
  ops.Define("sequence_expand_as(X, Y, YLod) -> Out", ExpandAsShape,
             "X, YLod, Out' -> X'");
  // Sequence i of all X together is sequence i of Out.
  ops.Define("sequence_concat(X*, Lod*) -> Out, OutLod!", ConcatShape,
             "X, Lod, Out' -> X'");
  ops.Define(
      "sequence_pad(X, PadValue, Lod; padded_length: int = -1) -> Out, Length!",
      PadShape, "X, Lod, Out' -> X'");
  ops.Define("sequence_unpad(X, Length) -> Out, OutLod!", UnpadShape,
             "X, Length, Out' -> X'");
  ops.Define(
      "sequence_mask(X, MaxLenTensor?; maxlen: int = -1, "
      "out_dtype: dtype = int64) -> Y!",
      MaskShape);
  // Around each row `contextLength` rows from `contextStart` on, with zeros
  // outside of its sequence, times Filter.
  ops.Define(
      "sequence_conv(X, Filter, Lod; contextLength: int, "
      "contextStart: int = 0, contextStride: int = 1) -> Out",
      ConvShape, "X, Filter, Lod, Out' -> X', Filter'");
  // Each row with those that follow it, weighted by the rows of Filter.
  ops.Define("row_conv(X, Filter, Lod) -> Out", RowConvShape,
             "X, Filter, Lod, Out' -> X', Filter'");
  ops.Define("sequence_reshape(X, Lod; new_dim: int) -> Out, OutLod!",
             ReshapeShape, "X, Out' -> X'");
  // Length[i] rows of sequence i, from Offset[i] on.
  ops.Define("sequence_slice(X, Offset, Length, Lod) -> Out, OutLod!", NewRows,
             "X, Offset, Length, Lod, Out' -> X'");
  ops.Define(
      "sequence_enumerate(X, Lod; win_size: int, pad_value: int = 0) -> Out!",
      EnumerateShape);
  // X with other offsets: those of Y, or the numbers in Y, or `target_lod`.
  ops.Define("lod_reset(X, Y?, YLod?; target_lod: ints = []) -> Out, OutLod!",
             ResetShape, "Out' -> X'");
}

}  // namespace fleet::program
