// SPDX-License-Identifier: Apache-2.0

// The kernels of gpu_kernels.cc, in CUDA C++, compiled when the process runs.
// What both sides know stands once: kGpuRules, the text of optim/rule_steps.h,
// which the build makes (CMakeLists.txt), and kGpuShared come before
// kGpuSource.

#ifndef FLEET_OPS_GPU_SOURCE_H_
#define FLEET_OPS_GPU_SOURCE_H_

namespace fleet::ops {

// Declarations, and the same as a text.
#define FLEET_GPU_SHARED(...) \
  __VA_ARGS__                 \
  inline constexpr char kGpuShared[] = #__VA_ARGS__;

extern const char kGpuRules[];

namespace gpu {

FLEET_GPU_SHARED(
    typedef long long i64;

    // What a launch of an update takes: so many parameters, in chunks of so
    // many elements, a block for each.
    constexpr int kPerLaunch = 32;
    constexpr i64 kChunk = 1024;

    struct One {
      float* p;
      const float* g;
      float* state[3];
      const float* rate;
      const float* power[2];
      i64 size;
      double factor;
      double decoupled;
      float scale, low, high, l1, l2;
      int first_block;
    };

    struct Batch {
      One one[kPerLaunch];
      double number[4];
      int count;
      int rule;
    };

    // What a launch takes that moves powers on.
    constexpr int kPowersPerLaunch = 240;

    struct Powers {
      float* first[kPowersPerLaunch];
      float* second[kPowersPerLaunch];
      double base[2];
      int count;
      int rule;
    };)

#undef FLEET_GPU_SHARED

}  // namespace gpu

inline constexpr char kGpuSource[] = R"cuda(

// ---- indices

// Keeps one of the notes that threads write at the same time, whichever: a store
// of eight bytes is never torn.
__device__ void Note(i64* note, i64 position, i64 value) {
  const i64 most = 0x7fffffff;
  i64 cut = value > most ? most : value < -most ? -most : value;
  *(volatile i64*)note = ((position + 1) << 32) | (cut & 0xffffffffLL);
}

extern "C" __global__ void CheckRange(const i64* index, i64* safe, i64 size,
                                      i64 begin, i64 end, i64 allowed,
                                      i64 instead, i64* note) {
  const i64 stride = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    i64 value = index[i];
    if ((value < begin || value >= end) && value != allowed) {
      Note(note, i, value);
      value = instead;
    }
    safe[i] = value;
  }
}

// ---- cross entropy

__device__ float WarpSum(float x) {
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
  return x;
}

__device__ float WarpMax(float x) {
  for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
  return x;
}

// The sums of a block of at most 32 warps, each of which brings its own in its
// first lane; known to the first thread.
__device__ void BlockSums(float* a, float* b) {
  __shared__ float as[32];
  __shared__ float bs[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    as[warp] = *a;
    bs[warp] = *b;
  }
  __syncthreads();
  if (warp != 0) return;
  const bool mine = lane < blockDim.x / 32;
  *a = WarpSum(mine ? as[lane] : 0.0f);
  *b = WarpSum(mine ? bs[lane] : 0.0f);
}

__device__ void Reduce(float sum, float count, int mean, float* out,
                       float* total) {
  BlockSums(&sum, &count);
  if (threadIdx.x != 0) return;
  if (out != nullptr) *out = mean && count != 0 ? sum / count : sum;
  *total = count;
}

// A warp for each row. With one block, the sums too.
extern "C" __global__ void CrossEntropy(const float* x, const i64* labels,
                                        float* softmax, float* losses,
                                        float* out, float* total, i64 rows,
                                        i64 classes, i64 ignore, int mean,
                                        i64* note) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 warps = blockDim.x / 32;
  float sum = 0, count = 0;
  for (i64 row = blockIdx.x * warps + warp; row < rows;
       row += gridDim.x * warps) {
    const float* in = x + row * classes;
    float top = __int_as_float(0xff800000);
    for (i64 j = lane; j < classes; j += 32) top = fmaxf(top, in[j]);
    top = WarpMax(top);
    float all = 0;
    for (i64 j = lane; j < classes; j += 32) all += expf(in[j] - top);
    all = WarpSum(all);
    const float scale = 1 / all;
    for (i64 j = lane; j < classes; j += 32) {
      softmax[row * classes + j] = expf(in[j] - top) * scale;
    }
    if (lane != 0) continue;
    const i64 label = labels[row];
    bool counts = label != ignore;
    if (counts && (label < 0 || label >= classes)) {
      Note(note, row, label);
      counts = false;
    }
    const float loss = counts ? logf(all) - (in[label] - top) : 0.0f;
    if (losses != nullptr) losses[row] = loss;
    sum += loss;
    count += counts ? 1.0f : 0.0f;
  }
  if (gridDim.x == 1) Reduce(sum, count, mean, out, total);
}

// A thread for each row, and one block: for few classes.
extern "C" __global__ void CrossEntropyNarrow(
    const float* x, const i64* labels, float* softmax, float* losses,
    float* out, float* total, i64 rows, i64 classes, i64 ignore, int mean,
    i64* note) {
  const int wide = (int)classes;
  float sum = 0, count = 0;
  for (i64 row = threadIdx.x; row < rows; row += blockDim.x) {
    const float* in = x + row * classes;
    float* to = softmax + row * classes;
    const i64 label = labels[row];
    float top = in[0];
    for (int j = 1; j < wide; ++j) top = fmaxf(top, in[j]);
    float all = 0;
    for (int j = 0; j < wide; ++j) all += expf(in[j] - top);
    const float scale = 1 / all;
    for (int j = 0; j < wide; ++j) to[j] = expf(in[j] - top) * scale;
    bool counts = label != ignore;
    if (counts && (label < 0 || label >= classes)) {
      Note(note, row, label);
      counts = false;
    }
    const float loss = counts ? logf(all) - (in[label] - top) : 0.0f;
    if (losses != nullptr) losses[row] = loss;
    sum += loss;
    count += counts ? 1.0f : 0.0f;
  }
  Reduce(WarpSum(sum), WarpSum(count), mean, out, total);
}

// What one block does after many of CrossEntropy.
extern "C" __global__ void SumLosses(const float* losses, const i64* labels,
                                     float* out, float* total, i64 rows,
                                     i64 classes, i64 ignore, int mean) {
  float sum = 0, count = 0;
  for (i64 row = threadIdx.x; row < rows; row += blockDim.x) {
    const i64 label = labels[row];
    sum += losses[row];
    count += label != ignore && label >= 0 && label < classes ? 1.0f : 0.0f;
  }
  sum = WarpSum(sum);
  count = WarpSum(count);
  Reduce(sum, count, mean, out, total);
}

extern "C" __global__ void CrossEntropyGrad(const float* softmax,
                                            const i64* labels,
                                            const float* total,
                                            const float* dloss, float* dx,
                                            i64 rows, i64 classes, i64 ignore,
                                            int per_row, int mean) {
  const i64 stride = (i64)gridDim.x * blockDim.x;
  const float weight = mean && *total != 0 ? *total : 1.0f;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * classes;
       i += stride) {
    const i64 row = i / classes;
    const i64 label = labels[row];
    const bool counts = label != ignore && label >= 0 && label < classes;
    const float g = dloss[per_row ? row : 0] / weight;
    const float hot = i - row * classes == label ? 1.0f : 0.0f;
    dx[i] = counts ? (softmax[i] - hot) * g : 0.0f;
  }
}

// ---- sums

// out[c] is the sum of x[o][c][i] over o and i; a block for each c.
extern "C" __global__ void ChannelSums(const float* x, float* out, i64 outer,
                                       i64 channels, i64 inner) {
  const unsigned size = (unsigned)(outer * inner), width = (unsigned)inner;
  const float* from = x + blockIdx.x * inner;
  const i64 stride = channels * inner;
  float a[4] = {0, 0, 0, 0};
  for (unsigned i = threadIdx.x; i < size; i += 4 * blockDim.x) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned at = i + k * blockDim.x;
      if (at < size) a[k] += from[at / width * stride + at % width];
    }
  }
  float sum = WarpSum((a[0] + a[1]) + (a[2] + a[3])), none = 0;
  BlockSums(&sum, &none);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The sums of columns where inner is 1: 32 columns for each block of 32 warps.
extern "C" __global__ void ColumnSums(const float* x, float* out, i64 rows,
                                      i64 columns) {
  __shared__ float sums[32][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 column = (i64)blockIdx.x * 32 + lane;
  float a = 0, b = 0;
  if (column < columns) {
    i64 row = warp;
    for (; row + 32 < rows; row += 64) {
      a += x[row * columns + column];
      b += x[(row + 32) * columns + column];
    }
    if (row < rows) a += x[row * columns + column];
  }
  sums[lane][warp] = a + b;
  __syncthreads();
  const float sum = WarpSum(sums[warp][lane]);
  const i64 mine = (i64)blockIdx.x * 32 + warp;
  if (lane == 0 && mine < columns) out[mine] = sum;
}

// ---- update rules

template <class Step>
__device__ void ForEach(const One& u, i64 begin, i64 end, double rate,
                        const fleet::optim::Adjusted<float>& gradient,
                        const Step& step) {
  const float keep = (float)(1.0 - rate * u.decoupled);
  float* p = u.p;
  const float* raw = u.g;
  float* s0 = u.state[0];
  float* s1 = u.state[1];
  float* s2 = u.state[2];
  for (i64 i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const float value = p[i] * keep;
    const float g = gradient(raw[i], p[i]);
    if constexpr (Step::kStates == 0) p[i] = step(value, g);
    if constexpr (Step::kStates == 1) p[i] = step(value, g, s0[i]);
    if constexpr (Step::kStates == 2) p[i] = step(value, g, s0[i], s1[i]);
    if constexpr (Step::kStates == 3) {
      float none = 0;  // a program may leave the last one out
      p[i] = step(value, g, s0[i], s1[i], s2 == nullptr ? none : s2[i]);
    }
  }
}

// Takes the step of a rule to the elements. Not a lambda, which NVRTC before
// 13.5 takes for a function of the host.
struct EachOf {
  const One& u;
  i64 begin, end;
  double rate;
  const fleet::optim::Adjusted<float>& gradient;

  template <class Step>
  __device__ void operator()(const Step& step) const {
    ForEach(u, begin, end, rate, gradient, step);
  }
};

extern "C" __global__ void __launch_bounds__(256)
    Update(const __grid_constant__ Batch batch) {
  using namespace fleet::optim;
  int k = 0;
  while (k + 1 < batch.count &&
         (int)blockIdx.x >= batch.one[k + 1].first_block) {
    ++k;
  }
  const One& u = batch.one[k];
  const i64 begin = (i64)((int)blockIdx.x - u.first_block) * kChunk;
  const i64 end = begin + kChunk < u.size ? begin + kChunk : u.size;
  const double rate = (u.rate == nullptr ? 1.0 : (double)*u.rate) * u.factor;
  const Adjusted<float> gradient = {u.scale, u.low, u.high, u.l1, u.l2};
  StepInput in = {{batch.number[0], batch.number[1], batch.number[2],
                   batch.number[3]},
                  rate,
                  {1.0, 1.0}};
  for (int j = 0; j < 2; ++j) {
    if (u.power[j] != nullptr) in.power[j] = (double)*u.power[j];
  }
  WithStep<float>(batch.rule, in,
                  EachOf{u, begin, end, rate, gradient});
}

extern "C" __global__ void Advance(const __grid_constant__ Powers powers) {
  const int i = threadIdx.x;
  if (i >= powers.count) return;
  float* both[2] = {powers.first[i], powers.second[i]};
  for (int k = 0; k < 2; ++k) {
    if (both[k] == nullptr) continue;
    *both[k] =
        fleet::optim::AdvancedPower(powers.rule, *both[k], powers.base[k]);
  }
}
)cuda";

}  // namespace fleet::ops

#endif  // FLEET_OPS_GPU_SOURCE_H_
