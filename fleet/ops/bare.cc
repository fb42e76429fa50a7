// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/bare.h"

#include <algorithm>

namespace fleet::ops {

int BareCall::In(size_t slot) const {
  const size_t begin = slot == 0 ? 0 : slot_end_[slot - 1];
  return begin < slot_end_[slot] ? inputs_[begin] : kNone;
}

int64_t BareCall::numel(int value) const {
  int64_t n = 1;
  for (int64_t dim : dims(value)) n *= dim;
  return n;
}

bool BareCall::AreFloat(std::span<const int> values) const {
  return std::all_of(values.begin(), values.end(),
                     [&](int value) { return IsFloat(value); });
}

bool BareCall::AreFloat(std::initializer_list<int> values) const {
  return AreFloat(std::span(values.begin(), values.size()));
}

bool BareCall::AreFloatOrNone(std::initializer_list<int> values) const {
  return std::all_of(values.begin(), values.end(), [&](int value) {
    return value == kNone || IsFloat(value);
  });
}

bool BareCall::IsImage(int value) const {
  return IsFloat(value) && dims(value).size() == 4 && numel(value) > 0;
}

bool BareCall::HasChannelsLast(int value) const {
  const Dims& d = dims(value);
  return ChannelsLast(value) || d.size() == 2 || d[1] == 1 ||
         numel(value) == d[0] * d[1];
}

}  // namespace fleet::ops
