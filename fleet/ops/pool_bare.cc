// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "fleet/ops/kernels.h"
#include "fleet/program/window.h"

// Pools of images with the channels last: every inner loop runs over channels.
// The kernels have the channels first; a maximum is exact either way.

namespace fleet::ops {
namespace {

// A maximum, for which a number says which element of its window won, or the
// mean over all of an image.
struct PoolShape {
  bool max;
  int64_t batch, channels;
  int64_t in_size[2], out_size[2];
  int64_t kernel[2], stride[2], begin[2];
};

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

// The mean over all of each image, and its gradient.
void MeanOfImage(const PoolShape& s, const float* x, float* y) {
  const int64_t area = s.in_size[0] * s.in_size[1];
  const float share = 1.0f / static_cast<float>(area);
  std::fill_n(y, s.channels, 0.0f);
  for (int64_t i = 0; i < area; ++i) {
    for (int64_t c = 0; c < s.channels; ++c) y[c] += x[i * s.channels + c];
  }
  for (int64_t c = 0; c < s.channels; ++c) y[c] *= share;
}

void MeanOfImageGrad(const PoolShape& s, const float* dy, float* dx) {
  const int64_t area = s.in_size[0] * s.in_size[1];
  const float share = 1.0f / static_cast<float>(area);
  for (int64_t i = 0; i < area; ++i) {
    for (int64_t c = 0; c < s.channels; ++c) {
      dx[i * s.channels + c] = dy[c] * share;
    }
  }
}

// ---- forms

// Nothing where a call is not one that the forms take: a maximum whose mask
// nobody else reads, so that a plan has it in 32 bits, or a mean.
std::optional<PoolShape> ReadPool(const BareCall& c) {
  using Ints = std::vector<int64_t>;
  const std::string& type = c.def().name;
  const int x = c.In(0);
  const int y = c.backward() ? c.inputs().back() : c.Out(0);
  if (!c.IsImage(x) || !c.IsImage(y) ||
      program::ChannelsLast(c.attr<std::string>("data_format"))) {
    return std::nullopt;
  }
  const Dims &in = c.dims(x), &out = c.dims(y);
  PoolShape s{.max = type == "max_pool2d_with_index",
              .batch = in[0],
              .channels = in[1],
              .in_size = {in[2], in[3]},
              .out_size = {out[2], out[3]},
              .kernel = {in[2], in[3]},
              .stride = {1, 1},
              .begin = {0, 0}};
  bool whole = type == "adaptive_avg_pool2d";
  if (type == "pool2d") {
    s.max = c.attr<std::string>("pooling_type") == "max";
    whole = c.attr<bool>("global_pooling") || c.attr<bool>("adaptive");
  }
  if (!s.max) {
    if (whole && out[2] == 1 && out[3] == 1) return s;
    return std::nullopt;
  }
  const int mask = c.backward() ? c.In(1) : c.Out(1);
  if (whole || mask == kNone || c.type(mask).dtype != DType::kInt32) {
    return std::nullopt;
  }
  auto windows = program::MakeWindows(
      {.kernel = c.attr<Ints>("ksize"),
       .strides = c.attr<Ints>("strides"),
       .paddings = c.attr<Ints>("paddings"),
       .algorithm = c.attr<std::string>("padding_algorithm")},
      std::span(in).subspan(2));
  if (!windows.ok()) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const program::Window& w = (*windows)[i];
    s.kernel[i] = w.kernel;
    s.stride[i] = w.stride;
    s.begin[i] = w.begin;
    // Every window must see an element.
    if (w.begin >= w.kernel ||
        (s.out_size[i] - 1) * w.stride - w.begin >= s.in_size[i]) {
      return std::nullopt;
    }
  }
  return s;
}

ImageLayout PoolLayout(const BareCall& c) {
  return ReadPool(c) ? ImageLayout::kChannelsLast : ImageLayout::kAsDefined;
}

bool PoolForm(BareCall& c) {
  const auto shape = ReadPool(c);
  const int x = c.In(0), y = c.Out(0), mask = c.Out(1);
  if (!shape || !c.HasChannelsLast(x) || !c.HasChannelsLast(y)) return false;
  return c.Run({x}, [=, s = *shape](void* const* m) {
    ForImages(s, [&](int64_t in, int64_t out) {
      const float* from = FloatIn(m, x) + in;
      float* to = FloatOut(m, y) + out;
      if (s.max) {
        MaxOfImage(s, from, to, static_cast<int32_t*>(m[mask]) + out);
      } else {
        MeanOfImage(s, from, to);
      }
    });
  });
}

bool PoolGradForm(BareCall& c) {
  const auto shape = ReadPool(c);
  const int dy = c.inputs().back(), dx = c.Out(0);
  if (!shape || !c.AreFloat({dy, dx}) || !c.HasChannelsLast(dy) ||
      !c.HasChannelsLast(dx)) {
    return false;
  }
  const int mask = shape->max ? c.In(1) : kNone;
  return c.Run({mask, dy}, [=, s = *shape](void* const* m) {
    ForImages(s, [&](int64_t in, int64_t out) {
      const float* up = FloatIn(m, dy) + out;
      float* to = FloatOut(m, dx) + in;
      if (s.max) {
        MaxOfImageGrad(s, up, static_cast<const int32_t*>(m[mask]) + out, to);
      } else {
        MeanOfImageGrad(s, up, to);
      }
    });
  });
}

}  // namespace

void AddPoolForms(KernelTable& k) {
  for (const char* op :
       {"pool2d", "max_pool2d_with_index", "adaptive_avg_pool2d"}) {
    k.OnMemory(op, PoolForm, PoolGradForm, PoolLayout);
  }
}

}  // namespace fleet::ops
