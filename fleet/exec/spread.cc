// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/spread.h"

#include <utility>

namespace fleet::exec {

std::optional<Spread> SpreadOf(const Dims& x, Dims y, int64_t axis) {
  if (x == y) {
    Spread all;
    for (int64_t dim : x) all.middle *= dim;
    return all;
  }
  int64_t numel_y = 1;
  for (int64_t dim : y) numel_y *= dim;
  if (numel_y == 1) {
    Spread one;
    for (int64_t dim : x) one.inner *= dim;
    return one;
  }
  const auto rank = static_cast<int64_t>(x.size());
  if (axis < 0) axis = rank - static_cast<int64_t>(y.size());
  // Ones on either side are part of the spreading.
  while (!y.empty() && y.back() == 1) y.pop_back();
  while (!y.empty() && y.front() == 1) {
    y.erase(y.begin());
    ++axis;
  }
  const auto end = axis + static_cast<int64_t>(y.size());
  if (axis < 0 || end > rank) return std::nullopt;
  Spread spread;
  for (int64_t i = 0; i < rank; ++i) {
    if (i < axis) {
      spread.outer *= x[i];
    } else if (i >= end) {
      spread.inner *= x[i];
    } else if (x[i] == y[i - axis]) {
      spread.middle *= x[i];
    } else {
      return std::nullopt;
    }
  }
  return spread;
}

std::optional<Spread> ReadSpread(const Graph& g, const Node& n, int x, int y,
                                 int out) {
  if (!g.AreFloat({x, y, out}) || g.numel(out) != g.numel(x)) {
    return std::nullopt;
  }
  const int axis = n.kernel->def().AttrIndex("axis");
  if (g.values[x].channels_last && g.dims(x) != g.dims(y) && g.numel(y) != 1) {
    // One number per channel: the layout leaves nothing else.
    return Spread{.outer = g.numel(x) / g.numel(y), .middle = g.numel(y)};
  }
  return SpreadOf(g.dims(x), g.dims(y),
                  axis < 0 ? -1 : std::get<int64_t>(n.kernel->attrs[axis]));
}

}  // namespace fleet::exec
