// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/rows.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "fleet/base/simd.h"

namespace fleet::ops {
namespace {

// Fewer elements than this are not worth a thread of their own.
constexpr int64_t kGrain = 16384;

template <class F>
void ForRows(Matrix size, F f) {
  at::parallel_for(0, size.rows, std::max<int64_t>(kGrain / size.columns, 1),
                   f);
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
      float top = row[0];
      for (int64_t j = 1; j < n; ++j) top = std::max(top, row[j]);
      for (int64_t j = 0; j < n; ++j) out[j] = row[j] - top;
      shifted(i, out);
    }
    base::Exp(y + first * n, y + first * n, (last - first) * n);
    for (int64_t i = first; i < last; ++i) {
      float* out = y + i * n;
      float total = 0;
      for (int64_t j = 0; j < n; ++j) total += out[j];
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

void CrossEntropyRowsGrad(Matrix size, const float* softmax, Labels labels,
                          const float* dloss, bool one_dloss, float scale,
                          float* dx) {
  const int64_t n = size.columns;
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

double Total(int64_t n, const float* x) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += x[i + lane];
  }
  for (; i < n; ++i) sums[i % 8] += x[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace fleet::ops
