// SPDX-License-Identifier: Apache-2.0

// What a line of a dataset's files holds: slots, in the order in which they
// stand on it, each "<n> v1 ... vn".

#ifndef FLEET_DATA_SLOT_H_
#define FLEET_DATA_SLOT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::data {

enum class SlotType {
  kInt64,  // also keys of 64 bits: from -2^63 to 2^64-1, kept as their bits
  kFloat32,
};

struct Slot {
  std::string name;
  SlotType type = SlotType::kInt64;
  // A sequence: as many rows as a sample has, where a dense slot has one.
  bool ragged = false;
  // The shape of a row. Empty: one number.
  std::vector<int64_t> dims = {};

  // Numbers of a row.
  size_t width() const {
    size_t product = 1;
    for (int64_t dim : dims) product *= static_cast<size_t>(dim);
    return product;
  }
};

// InvalidArgument for none, for two of a name, and for a size that is not at
// least 1.
Status CheckSlots(const std::vector<Slot>& slots);

}  // namespace fleet::data

#endif  // FLEET_DATA_SLOT_H_
