// SPDX-License-Identifier: Apache-2.0

// What a row holds when it is made. The values follow from the seed, the key
// and the column alone: a key gets the same row whichever server makes it,
// whenever, beside whichever others.

#ifndef FLEET_TABLE_INITIALIZER_H_
#define FLEET_TABLE_INITIALIZER_H_

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "fleet/base/status.h"
#include "fleet/table/key.h"

namespace fleet::table {

struct ConstantInit {
  float value = 0.0f;
};

// Evenly in [low, high).
struct UniformInit {
  float low = -1.0f;
  float high = 1.0f;
};

struct NormalInit {
  float mean = 0.0f;
  float deviation = 1.0f;
};

// Normal, drawn again while further than two deviations from the mean.
struct TruncatedNormalInit {
  float mean = 0.0f;
  float deviation = 1.0f;
};

// Glorot: evenly in +-sqrt(6 / (fan_in + fan_out)), or normal with deviation
// sqrt(2 / (fan_in + fan_out)). For an embedding of [rows, dim], fan_in is rows
// and fan_out is dim.
struct XavierInit {
  double fan_in = 0.0;
  double fan_out = 0.0;
  bool uniform = true;
};

using Initializer = std::variant<ConstantInit, UniformInit, NormalInit,
                                 TruncatedNormalInit, XavierInit>;

// InvalidArgument for an empty interval, a negative deviation, no fan.
Status CheckInitializer(const Initializer& initializer);

// Fills `row` with the first values of the row of `key`. Thread-safe.
void FillRow(const Initializer& initializer, uint64_t seed, Key key,
             std::span<float> row);

}  // namespace fleet::table

#endif  // FLEET_TABLE_INITIALIZER_H_
