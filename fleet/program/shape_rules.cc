// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/shape_rules.h"

#include <algorithm>
#include <utility>

namespace fleet::program {
namespace {

// Position of a type in the order of promotion.
int Rank(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 0;
    case DType::kUint8:
      return 1;
    case DType::kInt8:
      return 2;
    case DType::kInt16:
      return 3;
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      return 5;
    case DType::kFloat16:
      return 6;
    case DType::kBfloat16:
      return 7;
    case DType::kFloat32:
      return 8;
    case DType::kFloat64:
      return 9;
    case DType::kComplex64:
      return 10;
    case DType::kComplex128:
      return 11;
    case DType::kNone:
      return -1;
  }
  return -1;
}

std::vector<TensorType> ForAllOutputs(const OpTypes& types,
                                      const TensorType& type) {
  return std::vector<TensorType>(types.def().outputs.size(), type);
}

}  // namespace

ShapeRule SameAs(std::string slot) {
  return [slot = std::move(slot)](
             const OpTypes& t) -> Result<std::vector<TensorType>> {
    return ForAllOutputs(t, t.in(slot));
  };
}

ShapeRule SameShapeAs(std::string slot, DType dtype) {
  return [slot = std::move(slot),
          dtype](const OpTypes& t) -> Result<std::vector<TensorType>> {
    return ForAllOutputs(t, {dtype, t.in(slot).dims});
  };
}

ShapeRule BroadcastXY(DType dtype) {
  return [dtype](const OpTypes& t) -> Result<std::vector<TensorType>> {
    const TensorType& x = t.in("X");
    const TensorType& y = t.in("Y");
    int64_t axis = t.def().AttrIndex("axis") < 0 ? -1 : t.attr<int64_t>("axis");
    ASSIGN_OR_RETURN(Dims left, AlignAt(y.dims, x.dims, axis));
    ASSIGN_OR_RETURN(Dims right, AlignAt(x.dims, y.dims, axis));
    ASSIGN_OR_RETURN(Dims dims, BroadcastDims(left, right));
    return ForAllOutputs(
        t, {dtype == DType::kNone ? Promote(x.dtype, y.dtype) : dtype, dims});
  };
}

ShapeRule Reduce(DType dtype) {
  return [dtype](const OpTypes& t) -> Result<std::vector<TensorType>> {
    const TensorType& x = t.in("X");
    const auto& axes = t.attr<std::vector<int64_t>>("dim");
    bool keep = t.attr<bool>("keep_dim");
    bool all = t.attr<bool>("reduce_all") || axes.empty();
    std::vector<bool> gone(x.dims.size(), all);
    for (int64_t axis : axes) {
      ASSIGN_OR_RETURN(int64_t i, NormalizeAxis(axis, x.dims.size(), "axis"));
      gone[i] = true;
    }
    Dims dims;
    for (size_t i = 0; i < x.dims.size(); ++i) {
      if (!gone[i]) dims.push_back(x.dims[i]);
      if (gone[i] && keep) dims.push_back(1);
    }
    if (dims.empty()) dims.push_back(1);
    return ForAllOutputs(t, {dtype == DType::kNone ? x.dtype : dtype, dims});
  };
}

Result<Dims> BroadcastDims(const Dims& x, const Dims& y) {
  Dims out(std::max(x.size(), y.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t a = i < x.size() ? x[x.size() - 1 - i] : 1;
    int64_t b = i < y.size() ? y[y.size() - 1 - i] : 1;
    if (a != b && a != 1 && b != 1 && a != -1 && b != -1) {
      return InvalidArgument("shapes ", ToString(x), " and ", ToString(y),
                             " do not broadcast: ", a, " against ", b);
    }
    int64_t wide = a == 1 ? b : a;
    if (wide == -1 && b > 1) wide = b;
    out[out.size() - 1 - i] = wide;
  }
  return out;
}

Result<Dims> AlignAt(const Dims& x, Dims y, int64_t axis) {
  if (axis == -1 || y.size() >= x.size()) return y;
  if (axis < 0 || axis > static_cast<int64_t>(x.size())) {
    return InvalidArgument("axis is ", axis, " but must lie in [-1, ", x.size(),
                           "]");
  }
  // Ones at the end do not count; what is not known must be one to fit.
  while (axis + y.size() > x.size() && !y.empty() &&
         !KnownToDiffer(y.back(), 1)) {
    y.pop_back();
  }
  if (axis + y.size() > x.size()) {
    return InvalidArgument("shape ", ToString(y), " does not fit into ",
                           ToString(x), " from dimension ", axis, " on");
  }
  y.insert(y.end(), x.size() - axis - y.size(), 1);
  return y;
}

Result<int64_t> NormalizeAxis(int64_t axis, size_t rank,
                              std::string_view what) {
  auto r = static_cast<int64_t>(rank);
  if (r == 0) return InvalidArgument(what, " of a tensor without dimensions");
  if (axis < -r || axis >= r) {
    return InvalidArgument(what, " is ", axis, " but must lie in [", -r, ", ",
                           r - 1, "] for a tensor of ", rank, " dimensions");
  }
  return axis < 0 ? axis + r : axis;
}

DType Promote(DType x, DType y) {
  if ((x == DType::kUint8 && y == DType::kInt8) ||
      (x == DType::kInt8 && y == DType::kUint8)) {
    return DType::kInt16;
  }
  if ((x == DType::kFloat16 && y == DType::kBfloat16) ||
      (x == DType::kBfloat16 && y == DType::kFloat16)) {
    return DType::kFloat32;
  }
  return Rank(x) >= Rank(y) ? x : y;
}

Dims DimsFromTensor(const OpTypes& types, std::string_view slot,
                    std::string_view attr) {
  const auto& known = types.attr<std::vector<int64_t>>(attr);
  if (!known.empty()) return known;
  int64_t rank = NumElements(types.in(slot).dims);
  return Dims(rank < 0 ? 1 : rank, -1);
}

bool CanBeOne(const Dims& a, const Dims& b) {
  bool can = a.size() == b.size();
  for (size_t i = 0; can && i < a.size(); ++i) can = !KnownToDiffer(a[i], b[i]);
  return can;
}

Dims KnownOfBoth(const Dims& a, const Dims& b) {
  Dims dims = a;
  for (size_t i = 0; i < a.size(); ++i) {
    if (dims[i] == -1) dims[i] = b[i];
  }
  return dims;
}

int64_t NumElements(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d < 0) return -1;
    n *= d;
  }
  return n;
}

}  // namespace fleet::program
