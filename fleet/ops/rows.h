// SPDX-License-Identifier: Apache-2.0

// Functions of the rows of a dense float matrix, over bare memory: kernels call
// them for such tensors, and the executor where types and shapes are known
// beforehand. An output may be the same memory as an input of its shape, unless
// said otherwise. Each splits its rows over the threads of LibTorch when there
// are enough of them.

#ifndef FLEET_OPS_ROWS_H_
#define FLEET_OPS_ROWS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fleet::ops {

struct Matrix {
  int64_t rows;
  int64_t columns;
};

// A tensor of this shape as a matrix whose rows go along `axis`; nothing where
// that is not the last dimension, or where there are no elements.
std::optional<Matrix> RowsAlong(std::span<const int64_t> dims,
                                int64_t axis = -1);

// y = softmax of each row of x.
void SoftmaxRows(Matrix size, const float* x, float* y);
// dx from y = SoftmaxRows(x).
void SoftmaxRowsGrad(Matrix size, const float* y, const float* dy, float* dx);

// Labels: one class per row. One that equals `ignore` counts nothing; any other
// outside [0, columns) throws c10::Error with its number.
struct Labels {
  const int64_t* classes;
  int64_t ignore;
};

// softmax = SoftmaxRows(x), which must not be x, and loss[i] = -log of the
// label's part of row i; 0 for an ignored one. Returns how many counted.
int64_t CrossEntropyRows(Matrix size, const float* x, Labels labels,
                         float* softmax, float* loss);
// What becomes of the losses of all rows.
enum class LossReduction { kNone, kMean, kSum };
// Throws c10::Error for what is not "none", "mean" or "sum".
LossReduction ReadReduction(const std::string& text);

// The same with one loss for all rows: their sum, or their mean over those that
// count (0 where none does). `each` has room for one loss a row; it is `loss`
// where nothing is reduced. `total` becomes how many counted.
void ReducedCrossEntropyRows(Matrix size, const float* x, Labels labels,
                             LossReduction reduction, float* softmax,
                             float* each, float* loss, float* total);
// dx = (softmax - onehot(label)) times what reaches each loss: dloss[i] where
// nothing is reduced, else dloss[0], for a mean over `total`. 0 for ignored
// rows. `total` is only read for a mean.
void CrossEntropyRowsGrad(Matrix size, const float* softmax, Labels labels,
                          LossReduction reduction, const float* total,
                          const float* dloss, float* dx);

// loss[i] = -log(x[i, label]) for rows of probabilities; 0 for ignored ones.
void LogLossRows(Matrix size, const float* x, Labels labels, float* loss);
// dx = -dloss[i] / x[i, label] at the labels, 0 elsewhere. Not in place.
void LogLossRowsGrad(Matrix size, const float* x, Labels labels,
                     const float* dloss, float* dx);

}  // namespace fleet::ops

#endif  // FLEET_OPS_ROWS_H_
