// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/slot.h"

#include <set>

namespace fleet::data {

Status CheckSlots(const std::vector<Slot>& slots) {
  if (slots.empty()) {
    return InvalidArgument(
        "dataset: there are no slots: say which variables "
        "its lines hold");
  }
  std::set<std::string> names;
  for (const Slot& slot : slots) {
    if (!names.insert(slot.name).second) {
      return InvalidArgument("dataset: slot ", slot.name, " is named twice");
    }
    for (int64_t dim : slot.dims) {
      if (dim >= 1) continue;
      return InvalidArgument(
          "dataset: slot ", slot.name,
          " has a row of unknown size: give all sizes but the first, or make "
          "it a sequence with lod_level=1 and rows of one number");
    }
  }
  return OkStatus();
}

}  // namespace fleet::data
