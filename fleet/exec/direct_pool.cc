// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>

#include <ATen/Parallel.h>

#include "fleet/exec/direct.h"
#include "fleet/exec/plan_layout.h"

// Pools of images with the channels last: every inner loop runs over channels.

namespace fleet::exec {
namespace {

// The part [from, to) of a window that lies inside the image.
struct Inside {
  int64_t from, to;
};

Inside Clip(const PoolShape& s, int axis, int64_t place) {
  const int64_t start = place * s.stride[axis] - s.begin[axis];
  return {std::max<int64_t>(-start, 0),
          std::min(s.kernel[axis], s.in_size[axis] - start)};
}

// Where x[c] beats best[c], it takes its place, and `number` that of which[c].
// A NaN wins, and the first of equals. Masks in place of branches, so that the
// compiler makes vectors of it; the same below.
void KeepLarger(int64_t n, const float* __restrict x, int32_t number,
                float* __restrict best, int32_t* __restrict which) {
  for (int64_t c = 0; c < n; ++c) {
    const float a = best[c], b = x[c];
    const int32_t wins =
        -static_cast<int32_t>(!(b <= a)) & -static_cast<int32_t>(a == a);
    which[c] = (number & wins) | (which[c] & ~wins);
    best[c] = wins != 0 ? b : a;
  }
}

void AddWhere(int64_t n, const float* __restrict x,
              const int32_t* __restrict which, int32_t number,
              float* __restrict to) {
  for (int64_t c = 0; c < n; ++c) {
    const float taken = x[c];
    to[c] += which[c] == number ? taken : 0.0f;
  }
}

void MaxOfImage(const PoolShape& s, const float* x, float* y, int32_t* mask) {
  const int64_t channels = s.channels;
  for (int64_t i = 0; i < s.out_size[0]; ++i) {
    const Inside rows = Clip(s, 0, i);
    for (int64_t j = 0; j < s.out_size[1]; ++j) {
      const Inside columns = Clip(s, 1, j);
      float* best = y + (i * s.out_size[1] + j) * channels;
      int32_t* which = mask + (i * s.out_size[1] + j) * channels;
      bool first = true;
      for (int64_t r = rows.from; r < rows.to; ++r) {
        const int64_t row = i * s.stride[0] - s.begin[0] + r;
        for (int64_t q = columns.from; q < columns.to; ++q) {
          const int64_t column = j * s.stride[1] - s.begin[1] + q;
          const float* from = x + (row * s.in_size[1] + column) * channels;
          const auto number = static_cast<int32_t>(r * s.kernel[1] + q);
          if (first) {
            std::memcpy(best, from, channels * sizeof(float));
            std::fill_n(which, channels, number);
            first = false;
            continue;
          }
          KeepLarger(channels, from, number, best, which);
        }
      }
    }
  }
}

void MaxOfImageGrad(const PoolShape& s, const float* dy, const int32_t* mask,
                    float* dx) {
  const int64_t channels = s.channels;
  std::fill_n(dx, s.in_size[0] * s.in_size[1] * channels, 0.0f);
  for (int64_t i = 0; i < s.out_size[0]; ++i) {
    const Inside rows = Clip(s, 0, i);
    for (int64_t j = 0; j < s.out_size[1]; ++j) {
      const Inside columns = Clip(s, 1, j);
      const float* up = dy + (i * s.out_size[1] + j) * channels;
      const int32_t* which = mask + (i * s.out_size[1] + j) * channels;
      for (int64_t r = rows.from; r < rows.to; ++r) {
        const int64_t row = i * s.stride[0] - s.begin[0] + r;
        for (int64_t q = columns.from; q < columns.to; ++q) {
          const int64_t column = j * s.stride[1] - s.begin[1] + q;
          float* to = dx + (row * s.in_size[1] + column) * channels;
          const auto number = static_cast<int32_t>(r * s.kernel[1] + q);
          AddWhere(channels, up, which, number, to);
        }
      }
    }
  }
}

template <class F>
void ForImages(const PoolShape& s, F f) {
  const int64_t in = s.in_size[0] * s.in_size[1] * s.channels;
  const int64_t out = s.out_size[0] * s.out_size[1] * s.channels;
  at::parallel_for(0, s.batch, std::max<int64_t>(32768 / in, 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t n = begin; n < end; ++n) f(n * in, n * out);
                   });
}

bool MakePool(Graph& g, int node) {
  Node& n = g.nodes[node];
  const auto shape = ReadPool(g, n);
  const int x = g.In(n, 0), y = g.Out(n, 0), mask = g.Out(n, 1);
  if (!shape || !LiesLast(g, x) || !LiesLast(g, y)) return false;
  g.Reads(node, {x});
  if (shape->max) {
    n.direct = [=, s = *shape](void* const* m) {
      auto* numbers = static_cast<int32_t*>(m[mask]);
      ForImages(s, [&](int64_t in, int64_t out) {
        MaxOfImage(s, FloatIn(m, x) + in, FloatOut(m, y) + out, numbers + out);
      });
    };
    return true;
  }
  n.direct = [=, s = *shape](void* const* m) {
    const int64_t area = s.in_size[0] * s.in_size[1];
    const float share = 1.0f / static_cast<float>(area);
    ForImages(s, [&](int64_t in, int64_t out) {
      const float* from = FloatIn(m, x) + in;
      float* to = FloatOut(m, y) + out;
      std::fill_n(to, s.channels, 0.0f);
      for (int64_t i = 0; i < area; ++i) {
        for (int64_t c = 0; c < s.channels; ++c) {
          to[c] += from[i * s.channels + c];
        }
      }
      for (int64_t c = 0; c < s.channels; ++c) to[c] *= share;
    });
  };
  return true;
}

bool MakePoolGrad(Graph& g, int node) {
  Node& n = g.nodes[node];
  const auto shape = ReadPool(g, n);
  const int dy = n.inputs.back(), dx = g.Out(n, 0);
  if (!shape || !g.AreFloat({dy, dx}) || !LiesLast(g, dy) || !LiesLast(g, dx)) {
    return false;
  }
  if (shape->max) {
    const int mask = g.In(n, 1);
    g.Reads(node, {mask, dy});
    n.direct = [=, s = *shape](void* const* m) {
      const auto* numbers = static_cast<const int32_t*>(m[mask]);
      ForImages(s, [&](int64_t in, int64_t out) {
        MaxOfImageGrad(s, FloatIn(m, dy) + out, numbers + out,
                       FloatOut(m, dx) + in);
      });
    };
    return true;
  }
  g.Reads(node, {dy});
  n.direct = [=, s = *shape](void* const* m) {
    const int64_t area = s.in_size[0] * s.in_size[1];
    const float share = 1.0f / static_cast<float>(area);
    ForImages(s, [&](int64_t in, int64_t out) {
      const float* up = FloatIn(m, dy) + out;
      float* to = FloatOut(m, dx) + in;
      for (int64_t i = 0; i < area; ++i) {
        for (int64_t c = 0; c < s.channels; ++c) {
          to[i * s.channels + c] = up[c] * share;
        }
      }
    });
  };
  return true;
}

}  // namespace

void AddPoolForms(DirectForms& forms) {
  for (const char* op :
       {"pool2d", "max_pool2d_with_index", "adaptive_avg_pool2d"}) {
    forms[op] = MakePool;
  }
  for (const char* op : {"pool2d_grad", "max_pool2d_with_index_grad",
                         "adaptive_avg_pool2d_grad"}) {
    forms[op] = MakePoolGrad;
  }
}

}  // namespace fleet::exec
