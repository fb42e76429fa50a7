// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/spread.h"

#include <utility>

namespace fleet::ops {

std::optional<Spread> SpreadOf(const Dims& x, Dims y, int64_t axis) {
  if (x == y) {
    Spread all;
    for (int64_t dim : x) all.middle *= dim;
    return all;
  }
  int64_t numel_y = 1;
  for (int64_t dim : y) numel_y *= dim;
  if (numel_y == 1 && !x.empty()) {
    // Rows of one column are rows, as those of a layer with one output: their
    // sums are taken alike.
    Spread one;
    int64_t& all = x.back() == 1 ? one.outer : one.inner;
    for (int64_t dim : x) all *= dim;
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

std::optional<Spread> ReadSpread(const BareCall& c, int x, int y, int out) {
  if (!c.AreFloat({x, y, out}) || c.numel(out) != c.numel(x)) {
    return std::nullopt;
  }
  if (c.ChannelsLast(x) && c.dims(x) != c.dims(y) && c.numel(y) != 1) {
    // One number per channel: the layout leaves nothing else.
    return Spread{.outer = c.numel(x) / c.numel(y), .middle = c.numel(y)};
  }
  return SpreadOf(c.dims(x), c.dims(y),
                  c.has_attr("axis") ? c.attr<int64_t>("axis") : -1);
}

}  // namespace fleet::ops
