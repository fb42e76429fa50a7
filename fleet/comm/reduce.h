// SPDX-License-Identifier: Apache-2.0

// How elements of several ranks become one: the arithmetic behind every
// reduction, as types.h defines it. The same inputs in the same order give the
// same bits on every CPU. Nothing here needs alignment; thread-safe.

#ifndef FLEET_COMM_REDUCE_H_
#define FLEET_COMM_REDUCE_H_

#include <cstddef>
#include <span>

#include "fleet/comm/types.h"

namespace fleet::comm {

// into[i] = into[i] op from[i], for `count` elements. The mean is summed only:
// when all are in, call Divide. NaN wins over every number in max and min;
// integers wrap around.
void Combine(ReduceOp op, DataType type, std::byte* into, const std::byte* from,
             size_t count);

// data[i] = data[i] / by. Floats only.
void Divide(DataType type, std::byte* data, size_t count, int by);

// Every output[k][i] = inputs[0][i] op inputs[1][i] op ..., in this order, and
// for the mean divided by the number of inputs, which is at least one. float16
// and bfloat16 are rounded once, at the end. An output may be one of the
// inputs; other overlaps are not allowed.
void CombineAll(ReduceOp op, DataType type,
                std::span<const std::byte* const> inputs,
                std::span<std::byte* const> outputs, size_t count);

}  // namespace fleet::comm

#endif  // FLEET_COMM_REDUCE_H_
