// SPDX-License-Identifier: Apache-2.0

// Functions of the rows of a dense float matrix, over bare memory: kernels call
// them for such tensors, and the executor where types and shapes are known
// beforehand. An output may be the same memory as an input of its shape, unless
// said otherwise. Each splits its rows over the threads of LibTorch when there
// are enough of them.

#ifndef FLEET_OPS_ROWS_H_
#define FLEET_OPS_ROWS_H_

#include <cstdint>

namespace fleet::ops {

struct Matrix {
  int64_t rows;
  int64_t columns;
};

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
// dx = (softmax - onehot(label)) * dloss[i] * scale, 0 for ignored rows.
// `one_dloss`: there is one dloss for all rows.
void CrossEntropyRowsGrad(Matrix size, const float* softmax, Labels labels,
                          const float* dloss, bool one_dloss, float scale,
                          float* dx);

// loss[i] = -log(x[i, label]) for rows of probabilities; 0 for ignored ones.
void LogLossRows(Matrix size, const float* x, Labels labels, float* loss);
// dx = -dloss[i] / x[i, label] at the labels, 0 elsewhere. Not in place.
void LogLossRowsGrad(Matrix size, const float* x, Labels labels,
                     const float* dloss, float* dx);

// The sum of n floats, accumulated in double in an order that depends on n
// alone.
double Total(int64_t n, const float* x);

}  // namespace fleet::ops

#endif  // FLEET_OPS_ROWS_H_
