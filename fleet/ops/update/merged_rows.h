// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_UPDATE_MERGED_ROWS_H_
#define FLEET_OPS_UPDATE_MERGED_ROWS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace fleet::ops {

// The rows of a sparse gradient, each once.
struct MergedRows {
  at::Tensor rows;    // int64 [n]
  at::Tensor values;  // [n, ...]
};

// Sums the values of equal rows of a COO tensor with one sparse dimension (the
// gradient of a sparse embedding), in the order in which they come. On the CPU
// the rows stay in that order, which needs no sorting: coalesce() takes ten
// times as long for the batch of a click model.
MergedRows MergeRows(const at::Tensor& gradient);

// The merged rows as a COO tensor of the gradient's shape.
at::Tensor Merged(const at::Tensor& gradient);

// Whether they are COO tensors of one kind, as gradients of look-ups in one
// table are.
bool AreRowsOfOneTable(at::TensorList gradients);

// The sum of such tensors of one shape: the rows of the first, then those of
// the second and so on, not merged. Added one by one, the rows of the first
// would be copied as often as there are others.
at::Tensor JoinRows(at::TensorList gradients);

// The sum of two gradients of one tensor, each dense or rows. Rows of one table
// are joined; equal rows are summed before they meet a dense gradient.
// The op `sum` of a program and the eager backward pass both add like this,
// from the first gradient to the last, so that they agree to the bit.
at::Tensor AddGradients(const at::Tensor& sum, const at::Tensor& next);

}  // namespace fleet::ops

#endif  // FLEET_OPS_UPDATE_MERGED_ROWS_H_
