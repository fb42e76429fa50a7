// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/rows.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "fleet/base/simd.h"
#include "fleet/ops/sums.h"

namespace fleet::ops {
namespace {

// Fewer elements than this are not worth a thread of their own.
constexpr int64_t kGrain = 16384;

template <class F>
void ForRows(Matrix size, F f) {
  at::parallel_for(0, size.rows, std::max<int64_t>(kGrain / size.columns, 1),
                   f);
}

// The sum and the maximum of a row, in several parts: one would wait for itself
// at every element.
constexpr int64_t kLanes = 16;

float Largest(int64_t n, const float* x) {
  float top = x[0];
  int64_t j = 0;
  if (n >= kLanes) {
    float tops[kLanes];
    std::copy_n(x, kLanes, tops);
    for (j = kLanes; j + kLanes <= n; j += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) {
        const float a = x[j + k];
        tops[k] = tops[k] < a ? a : tops[k];
      }
    }
    for (float one : tops) top = std::max(top, one);
  }
  for (; j < n; ++j) top = std::max(top, x[j]);
  return top;
}

float SumOfRow(int64_t n, const float* x) {
  float parts[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) parts[k] += x[j + k];
  }
  float total = 0;
  if (j > 0) {
    for (float part : parts) total += part;
  }
  for (; j < n; ++j) total += x[j];
  return total;
}

// Rows [begin, end) of y = softmax(x), in blocks that stay in the first-level
// cache. `shifted` sees each row less its maximum, before the exponential.
template <class Shifted, class Summed>
void SoftmaxBlocks(int64_t begin, int64_t end, int64_t n, const float* x,
                   float* y, Shifted shifted, Summed summed) {
  const int64_t block = std::max<int64_t>(4096 / n, 1);
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(first + block, end);
    for (int64_t i = first; i < last; ++i) {
      const float* row = x + i * n;
      float* out = y + i * n;
      const float top = Largest(n, row);
      for (int64_t j = 0; j < n; ++j) out[j] = row[j] - top;
      shifted(i, out);
    }
    base::Exp(y + first * n, y + first * n, (last - first) * n);
    for (int64_t i = first; i < last; ++i) {
      float* out = y + i * n;
      const float total = SumOfRow(n, out);
      const float scale = 1 / total;
      for (int64_t j = 0; j < n; ++j) out[j] *= scale;
      summed(i, total);
    }
  }
}

// Whether the label of row i counts.
bool Counts(Labels labels, int64_t i, int64_t num_classes) {
  const int64_t label = labels.classes[i];
  if (label == labels.ignore) return false;
  TORCH_CHECK(label >= 0 && label < num_classes, "label ", label, " at row ", i,
              " is outside [0, ", num_classes, ")");
  return true;
}

int64_t CheckLabels(Matrix size, Labels labels) {
  int64_t count = 0;
  for (int64_t i = 0; i < size.rows; ++i) {
    count += Counts(labels, i, size.columns);
  }
  return count;
}

}  // namespace

std::optional<Matrix> RowsAlong(std::span<const int64_t> dims, int64_t axis) {
  const auto last = static_cast<int64_t>(dims.size()) - 1;
  if (last < 0 || (axis != -1 && axis != last)) return std::nullopt;
  Matrix size{1, dims[last]};
  for (int64_t dim : dims.first(last)) size.rows *= dim;
  if (size.rows == 0 || size.columns == 0) return std::nullopt;
  return size;
}

LossReduction ReadReduction(const std::string& text) {
  if (text == "none") return LossReduction::kNone;
  if (text == "mean") return LossReduction::kMean;
  TORCH_CHECK(text == "sum", "reduction must be 'mean', 'sum' or 'none', but ",
              "is '", text, "'");
  return LossReduction::kSum;
}

void SoftmaxRows(Matrix size, const float* x, float* y) {
  ForRows(size, [&](int64_t begin, int64_t end) {
    SoftmaxBlocks(
        begin, end, size.columns, x, y, [](int64_t, const float*) {},
        [](int64_t, float) {});
  });
}

void SoftmaxRowsGrad(Matrix size, const float* y, const float* dy, float* dx) {
  const int64_t n = size.columns;
  ForRows(size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* out = y + i * n;
      const float* g = dy + i * n;
      float dot = 0;
      for (int64_t j = 0; j < n; ++j) dot += out[j] * g[j];
      for (int64_t j = 0; j < n; ++j) dx[i * n + j] = out[j] * (g[j] - dot);
    }
  });
}

int64_t CrossEntropyRows(Matrix size, const float* x, Labels labels,
                         float* softmax, float* loss) {
  const int64_t count = CheckLabels(size, labels);
  ForRows(size, [&](int64_t begin, int64_t end) {
    SoftmaxBlocks(
        begin, end, size.columns, x, softmax,
        [&](int64_t i, const float* shifted) {
          const int64_t label = labels.classes[i];
          loss[i] = label == labels.ignore ? 0 : -shifted[label];
        },
        [&](int64_t i, float total) {
          if (labels.classes[i] != labels.ignore) loss[i] += std::log(total);
        });
  });
  return count;
}

void ReducedCrossEntropyRows(Matrix size, const float* x, Labels labels,
                             LossReduction reduction, float* softmax,
                             float* each, float* loss, float* total) {
  const int64_t count = CrossEntropyRows(size, x, labels, softmax, each);
  *total = static_cast<float>(count);
  if (reduction == LossReduction::kNone) return;
  double sum = Total(size.rows, each);
  if (reduction == LossReduction::kMean && count != 0) {
    sum /= static_cast<double>(count);
  }
  *loss = static_cast<float>(sum);
}

void CrossEntropyRowsGrad(Matrix size, const float* softmax, Labels labels,
                          LossReduction reduction, const float* total,
                          const float* dloss, float* dx) {
  const int64_t n = size.columns;
  const bool one_dloss = reduction != LossReduction::kNone;
  const bool divides = reduction == LossReduction::kMean && *total != 0;
  const float scale = divides ? 1 / *total : 1;
  ForRows(size, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool ignored = labels.classes[i] == labels.ignore;
      const float g = ignored ? 0 : dloss[one_dloss ? 0 : i] * scale;
      for (int64_t j = 0; j < n; ++j) dx[i * n + j] = softmax[i * n + j] * g;
      if (!ignored) dx[i * n + labels.classes[i]] -= g;
    }
  });
}

void LogLossRows(Matrix size, const float* x, Labels labels, float* loss) {
  for (int64_t i = 0; i < size.rows; ++i) {
    loss[i] = Counts(labels, i, size.columns)
                  ? -std::log(x[i * size.columns + labels.classes[i]])
                  : 0;
  }
}

void LogLossRowsGrad(Matrix size, const float* x, Labels labels,
                     const float* dloss, float* dx) {
  const int64_t n = size.columns;
  ForRows(size, [&](int64_t begin, int64_t end) {
    std::fill(dx + begin * n, dx + end * n, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      if (labels.classes[i] == labels.ignore) continue;
      const int64_t at = i * n + labels.classes[i];
      dx[at] = -dloss[i] / x[at];
    }
  });
}

}  // namespace fleet::ops
