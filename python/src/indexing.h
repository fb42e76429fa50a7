// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_INDEXING_H_
#define FLEET_PYTHON_SRC_INDEXING_H_

#include "tensor.h"

namespace fleet::python {

// x[index] for ints, slices, None, ..., lists, arrays, masks and tensors, or a
// tuple of those. The result never shares memory with x, and has at least one
// dimension.
at::Tensor GetItem(const at::Tensor& x, nb::handle index);

// x[index] = value, in place; value is broadcast. A number or a tensor.
void SetItem(at::Tensor& x, nb::handle index, nb::handle value);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_INDEXING_H_
