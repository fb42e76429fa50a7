// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <utility>

#include "fleet/program/builder.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

// The end of a dimension, whatever its size.
constexpr int64_t kEnd = std::numeric_limits<int32_t>::max();

using Number = std::variant<int64_t, Value>;

// A bound of a range, or what stands for one that is left out.
Number BoundOr(const IndexRange::Bound& bound, int64_t otherwise) {
  if (const auto* number = std::get_if<int64_t>(&bound)) return *number;
  if (const auto* value = std::get_if<Value>(&bound)) return *value;
  return otherwise;
}

bool IsOpen(const IndexRange::Bound& bound) {
  return std::holds_alternative<std::monostate>(bound);
}

bool IsMask(const IndexPart& part) {
  const Value* value = std::get_if<Value>(&part);
  return value != nullptr && value->dtype() == DType::kBool;
}

// Whether a value picks one position rather than a list of them.
bool IsNumber(const Value& value) {
  return value.dtype() != DType::kBool &&
         (value.dims().empty() || value.dims() == Dims{1});
}

// How many dimensions of x a part stands for.
size_t DimsOf(const IndexPart& part) {
  if (std::holds_alternative<NewAxis>(part)) return 0;
  if (std::holds_alternative<Rest>(part)) return 0;
  return IsMask(part) ? std::get<Value>(part).dims().size() : 1;
}

}  // namespace

// The parts of an index, one for each dimension of x, and those of new ones.
bool Builder::SplitIndex(const Value& x, const std::vector<IndexPart>& index,
                         std::vector<IndexPart>& parts) {
  size_t taken = 0, rests = 0;
  for (const IndexPart& part : index) {
    taken += DimsOf(part);
    rests += std::holds_alternative<Rest>(part) ? 1 : 0;
  }
  const size_t rank = x.dims().size();
  if (rests > 1 || taken > rank) {
    Fail(InvalidArgument(rests > 1
                             ? "an index can have one kRest only"
                             : base::Concat(taken, " indices for ", x.name(),
                                            " of ", rank, " dimensions")));
    return false;
  }
  for (const IndexPart& part : index) {
    if (std::holds_alternative<Rest>(part)) {
      parts.insert(parts.end(), rank - taken, IndexRange{});
    } else {
      parts.push_back(part);
    }
  }
  if (rests == 0) parts.insert(parts.end(), rank - taken, IndexRange{});
  return true;
}

// Numbers and values of one element as one int64 tensor.
Value Builder::JoinedNumbers(
    const std::vector<std::variant<int64_t, Value>>& numbers) {
  Values rows;
  for (const auto& number : numbers) {
    if (const auto* known = std::get_if<int64_t>(&number)) {
      rows.push_back(FillConstant({.shape = {1},
                                   .str_value = std::to_string(*known),
                                   .dtype = DType::kInt64}));
      continue;
    }
    const Value row = Reshape2(std::get<Value>(number), {.shape = {1}});
    rows.push_back(Cast(row, DType::kInt64));
  }
  return Concat(rows);
}

// x cut by the numbers and ranges among the parts. A dimension that a number
// picks is left with one element.
Value Builder::CutByParts(const Value& x, const std::vector<IndexPart>& parts) {
  std::vector<int64_t> axes, steps;
  std::vector<Number> begins, ends;
  bool by_values = false, by_steps = false;
  int64_t dim = 0;
  for (const IndexPart& part : parts) {
    if (std::holds_alternative<NewAxis>(part)) continue;
    const int64_t axis = dim++;
    if (const auto* range = std::get_if<IndexRange>(&part)) {
      if (IsOpen(range->begin) && IsOpen(range->end) && range->step == 1) {
        continue;
      }
      if (range->step == 0) {
        Fail(InvalidArgument("the step of a range must not be zero"));
        return {};
      }
      const bool up = range->step > 0;
      begins.push_back(BoundOr(range->begin, up ? 0 : kEnd));
      ends.push_back(BoundOr(range->end, up ? kEnd : -kEnd));
      steps.push_back(range->step);
      by_values |= std::holds_alternative<Value>(begins.back()) ||
                   std::holds_alternative<Value>(ends.back());
      by_steps |= range->step != 1;
    } else if (const auto* number = std::get_if<int64_t>(&part)) {
      const int64_t size = x.dims()[static_cast<size_t>(axis)];
      if (size != -1 && (*number < -size || *number >= size)) {
        Fail(InvalidArgument("index ", *number, " is outside of dimension ",
                             axis, " of ", x.name(), ", which has ", size,
                             " elements"));
        return {};
      }
      begins.emplace_back(*number);
      ends.emplace_back(*number == -1 ? kEnd : *number + 1);
      steps.push_back(1);
    } else if (const auto* value = std::get_if<Value>(&part);
               value != nullptr && IsNumber(*value)) {
      begins.emplace_back(*value);
      ends.emplace_back(*value + 1.0);
      steps.push_back(1);
      by_values = true;
    } else {
      continue;
    }
    axes.push_back(axis);
  }
  if (axes.empty() || !status().ok()) return x;
  const auto known = [](const auto& numbers, int64_t instead) {
    std::vector<int64_t> list;
    for (const auto& number : numbers) {
      const auto* value = std::get_if<int64_t>(&number);
      list.push_back(value == nullptr ? instead : *value);
    }
    return list;
  };
  if (by_values) {
    if (by_steps) {
      Fail(Unimplemented("a range with a step cannot stand beside a value"));
      return {};
    }
    const Value first = JoinedNumbers(begins);
    const Value last = JoinedNumbers(ends);
    return Slice(x, axes,
                 {.starts_tensor = first,
                  .ends_tensor = last,
                  .starts = known(begins, -1),
                  .ends = known(ends, -1)});
  }
  if (by_steps) {
    return StridedSlice(x, axes, known(begins, 0), known(ends, 0), steps);
  }
  return Slice(x, axes, {.starts = known(begins, 0), .ends = known(ends, 0)});
}

// Lists of positions along the first dimensions as one tensor, whose last
// dimension goes over the lists. Lists of numbers are joined here already.
Value Builder::JoinedLists(const std::vector<List>& lists) {
  std::vector<const std::vector<int64_t>*> known;
  for (const auto& [dim, ids] : lists) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(&ids)) {
      known.push_back(list);
    }
  }
  if (known.size() < lists.size()) {
    Values ids;
    for (const auto& [dim, list] : lists) ids.push_back(ListOf(list));
    const auto rank = static_cast<int64_t>(ids[0].dims().size());
    return Stack(ids, {.axis = rank});
  }
  std::vector<double> joined;
  for (size_t i = 0; i < known[0]->size(); ++i) {
    for (const auto* list : known) {
      if (list->size() != known[0]->size()) {
        Fail(InvalidArgument("lists of ", known[0]->size(), " and ",
                             list->size(), " positions in one index"));
        return {};
      }
      joined.push_back(static_cast<double>((*list)[i]));
    }
  }
  return Constant({static_cast<int64_t>(known[0]->size()),
                   static_cast<int64_t>(known.size())},
                  DType::kInt64, std::move(joined));
}

// A list of positions, or a mask, as a tensor.
Value Builder::ListOf(const std::variant<Value, std::vector<int64_t>>& ids) {
  if (const auto* value = std::get_if<Value>(&ids)) return *value;
  const auto& list = std::get<std::vector<int64_t>>(ids);
  return Constant({static_cast<int64_t>(list.size())}, DType::kInt64,
                  std::vector<double>(list.begin(), list.end()));
}

// x at lists of positions along some dimensions.
Value Builder::PickByLists(const Value& x, const std::vector<List>& lists) {
  for (size_t i = 0; lists.size() > 1 && i < lists.size(); ++i) {
    if (lists[i].first == static_cast<int64_t>(i)) continue;
    Fail(Unimplemented("lists must stand first in an index of a program"));
    return {};
  }
  if (lists.size() > 1) return GatherNd(x, JoinedLists(lists));
  const int64_t dim = lists[0].first;
  Value ids = ListOf(lists[0].second);
  if (ids.dtype() == DType::kBool) {
    ids = Reshape2(WhereIndex(ids), {.shape = {-1}});
  }
  if (ids.dims().size() == 1) return Gather(x, ids, {.axis = dim});
  if (dim != 0) {
    Fail(Unimplemented(
        "a list of more than one dimension must stand first in an index"));
    return {};
  }
  const auto rank = static_cast<int64_t>(ids.dims().size());
  return GatherNd(x, Unsqueeze2(ids, {rank}));
}

Value Builder::Item(const Value& x, const std::vector<IndexPart>& index,
                    Line at) {
  if (!status().ok()) return {};
  Scope scope(*this);
  scope.At(at);
  if (index.size() == 1 && IsMask(index[0])) {
    const Value& mask = std::get<Value>(index[0]);
    if (mask.dims().size() == x.dims().size()) return MaskedSelect(x, mask);
    return GatherNd(x, WhereIndex(mask));
  }
  std::vector<IndexPart> parts;
  if (!SplitIndex(x, index, parts)) return {};
  Value out = CutByParts(x, parts);
  if (!status().ok()) return {};
  // What is left: new dimensions, ones to drop, lists of positions.
  std::vector<int64_t> added, dropped;
  std::vector<List> lists;
  int64_t dim = 0;   // of x
  int64_t made = 0;  // of the result without lists
  for (const IndexPart& part : parts) {
    if (std::holds_alternative<NewAxis>(part)) {
      added.push_back(made++);
      continue;
    }
    const Value* value = std::get_if<Value>(&part);
    const auto* list = std::get_if<std::vector<int64_t>>(&part);
    if (std::holds_alternative<int64_t>(part) ||
        (value != nullptr && IsNumber(*value))) {
      dropped.push_back(dim++);
      continue;
    }
    if (value != nullptr) lists.emplace_back(dim, *value);
    if (list != nullptr) lists.emplace_back(dim, *list);
    ++dim;
    ++made;
  }
  if (!lists.empty()) {
    if (!added.empty() || (!dropped.empty() && lists.size() > 1)) {
      Fail(
          Unimplemented("an index with lists cannot have kNewAxis or numbers "
                        "beside them in a program: index in two steps"));
      return {};
    }
    out = PickByLists(out, lists);
    const auto* first = std::get_if<Value>(&lists[0].second);
    const auto more =
        first == nullptr ? 0 : static_cast<int64_t>(first->dims().size()) - 1;
    for (int64_t& d : dropped) d += lists[0].first < d ? more : 0;
  }
  if (!dropped.empty()) {
    out = Squeeze2(out, {.axes = dropped});
    if (out && out.dims().empty()) out = Reshape2(out, {.shape = {1}});
  }
  if (!added.empty()) out = Unsqueeze2(out, added);
  return out;
}

void Builder::SetItem(const Value& x, const std::vector<IndexPart>& index,
                      const Value& value, Line at) {
  if (!status().ok()) return;
  Scope scope(*this);
  scope.At(at);
  const Value old = Assign(x);  // gradients need what x was before
  const auto as_x = [&](const Value& v) {
    return v.dtype() == x.dtype() ? v : Cast(v, x.dtype());
  };
  if (index.size() == 1 && IsMask(index[0])) {
    return Write(Where(std::get<Value>(index[0]), as_x(value), old), x);
  }
  std::vector<IndexPart> parts;
  if (!SplitIndex(x, index, parts)) return;
  const int64_t count = NumElements(x.dims());
  if (count < 0) {
    return Fail(Unimplemented(x.name(),
                              "[...] = value needs a shape that is "
                              "known, not ",
                              ToString(x.dims())));
  }
  // The positions of what is written, in x laid out as one row.
  Dims chosen;
  std::vector<int64_t> places{0};
  size_t dim = 0;
  for (const IndexPart& part : parts) {
    if (std::holds_alternative<NewAxis>(part)) {
      chosen.push_back(1);
      continue;
    }
    const int64_t size = x.dims()[dim++];
    std::vector<int64_t> picked;
    if (const auto* number = std::get_if<int64_t>(&part)) {
      if (*number < -size || *number >= size) {
        return Fail(InvalidArgument("index ", *number, " is outside of ",
                                    x.name(), " of shape ",
                                    ToString(x.dims())));
      }
      picked = {*number < 0 ? *number + size : *number};
    } else if (const auto* range = std::get_if<IndexRange>(&part)) {
      if (range->step <= 0) {
        return Fail(Unimplemented("SetItem needs ranges with a step above 0"));
      }
      const Number first = BoundOr(range->begin, 0);
      const Number last = BoundOr(range->end, size);
      if (first.index() != 0 || last.index() != 0) {
        return Fail(Unimplemented("SetItem needs ranges between numbers"));
      }
      const auto place = [size](const Number& number) {
        const int64_t n = std::get<int64_t>(number);
        return std::clamp<int64_t>(n < 0 ? n + size : n, 0, size);
      };
      for (int64_t i = place(first); i < place(last); i += range->step) {
        picked.push_back(i);
      }
      chosen.push_back(static_cast<int64_t>(picked.size()));
    } else {
      return Fail(Unimplemented(
          "SetItem takes no lists and no values but one mask: use Scatter"));
    }
    std::vector<int64_t> next;
    for (int64_t base : places) {
      for (int64_t i : picked) next.push_back(base * size + i);
    }
    places = std::move(next);
  }
  if (chosen.empty()) chosen.push_back(1);
  const Value spread = ExpandV2(as_x(value), {.shape = chosen});
  const Value flat = Reshape2(old, {.shape = {-1}});
  const Value updates = Reshape2(spread, {.shape = {-1}});
  const Value where =
      Constant({static_cast<int64_t>(places.size())}, DType::kInt64,
               std::vector<double>(places.begin(), places.end()));
  const Value written = Scatter(flat, where, updates, {.overwrite = true});
  Write(Reshape2(written, {.shape = x.dims()}), x);
}

}  // namespace fleet::program
