// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/gpu_kernels.h"

#include <algorithm>
#include <set>
#include <variant>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAStream.h>

#include "fleet/base/log.h"
#include "fleet/base/status.h"
#include "fleet/ops/gpu_code.h"
#include "fleet/ops/gpu_source.h"
#include "fleet/optim/rule_steps.h"

namespace fleet::ops {
namespace {

using at::Tensor;
using gpu::Batch;
using gpu::kChunk;
using gpu::kPerLaunch;
using gpu::kPowersPerLaunch;
using gpu::One;
using gpu::Powers;
using Number = gpu::i64;

GpuCode& Code() {
  static GpuCode code(
      base::Concat(kGpuRules, "\n", gpu::kGpuShared, "\n", kGpuSource));
  return code;
}

// Arguments in the order of the kernel's parameters, of exactly their types.
template <class... Arguments>
void Launch(at::Device device, const char* kernel, int64_t blocks,
            unsigned threads, Arguments... arguments) {
  const c10::DeviceGuard guard(device);
  void* pointers[] = {static_cast<void*>(&arguments)...};
  void* stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  Code().Launch(device, kernel, static_cast<unsigned>(blocks), threads, stream,
                pointers);
}

const Number* Integers(const Tensor& t) {
  static_assert(sizeof(Number) == sizeof(int64_t));
  return reinterpret_cast<const Number*>(t.const_data_ptr<int64_t>());
}
const float* Read(const Tensor& t) { return t.const_data_ptr<float>(); }
float* Write(const Tensor& t) { return t.mutable_data_ptr<float>(); }
Number* NoteOf(const Tensor& note) {
  return reinterpret_cast<Number*>(note.mutable_data_ptr<int64_t>());
}

// Enough to keep any GPU busy; the loops in the kernels do the rest.
int64_t Blocks(int64_t items, int64_t per_block) {
  constexpr int64_t kMost = 4096;
  return std::clamp<int64_t>((items + per_block - 1) / per_block, 1, kMost);
}

}  // namespace

bool HasGpuKernels(at::Device device) {
  if (!device.is_cuda()) return false;
  const Status status = Code().Prepare(device);
  if (status.ok()) return true;
  static const bool said = [&] {
    FLEET_LOG(WARNING) << device.str()
                       << " goes without kernels of our own, and programs "
                          "without CUDA graphs: "
                       << status.ToString();
    return true;
  }();
  static_cast<void>(said);
  return false;
}

// ---- indices

Tensor NewNotes(int64_t count) {
  return at::zeros({count}, at::TensorOptions(at::kLong).pinned_memory(true));
}

bool TakeNote(const Tensor& note, RangeNote* out) {
  volatile int64_t* word = note.mutable_data_ptr<int64_t>();
  const int64_t found = *word;
  if (found == 0) return false;
  *word = 0;
  out->position = (found >> 32) - 1;
  out->value = static_cast<int32_t>(found & 0xffffffff);
  return true;
}

void WaitForGpu(at::Device device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());
  gpu.synchronizeStream(gpu.getStream(device));
}

Tensor GpuCheckRange(const Tensor& index, int64_t begin, int64_t end,
                     int64_t allowed, int64_t instead, const Tensor& note) {
  Tensor safe = at::empty_like(index);
  const int64_t size = index.numel();
  if (size == 0) return safe;
  auto* out = reinterpret_cast<Number*>(safe.mutable_data_ptr<int64_t>());
  Launch(index.device(), "CheckRange", Blocks(size, 256), 256, Integers(index),
         out, Number{size}, Number{begin}, Number{end}, Number{allowed},
         Number{instead}, NoteOf(note));
  return safe;
}

// ---- cross entropy

GpuLosses GpuCrossEntropy(const Tensor& logits, const Tensor& label,
                          int64_t ignore_index, GpuReduction reduction,
                          const Tensor& note) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  // So much one block does faster than several with a second launch.
  constexpr int64_t kSmall = 32 << 10;
  const bool one_block = rows * classes <= kSmall;
  const bool narrow = one_block && classes <= 32;
  const int64_t blocks = one_block ? 1 : Blocks(rows, 8);
  const int64_t warps = std::min<int64_t>(rows, 32);
  const unsigned threads = narrow ? 32 * std::min<int64_t>((rows + 31) / 32, 32)
                           : one_block ? 32 * warps
                                       : 256;
  const int mean = reduction == GpuReduction::kMean ? 1 : 0;
  GpuLosses out;
  out.softmax = at::empty_like(logits);
  out.total_weight = at::empty({1}, logits.options());
  Tensor losses, sum;
  if (reduction == GpuReduction::kNone || !one_block) {
    losses = at::empty({rows}, logits.options());
  }
  if (reduction != GpuReduction::kNone) {
    sum = at::empty({1}, logits.options());
  }
  float* to_losses = losses.defined() ? Write(losses) : nullptr;
  float* to_sum = sum.defined() ? Write(sum) : nullptr;
  float* to_total = Write(out.total_weight);
  Launch(logits.device(), narrow ? "CrossEntropyNarrow" : "CrossEntropy",
         blocks, threads, Read(logits), Integers(label), Write(out.softmax),
         to_losses, to_sum, to_total, Number{rows}, Number{classes},
         Number{ignore_index}, mean, NoteOf(note));
  if (!one_block) {
    Launch(logits.device(), "SumLosses", 1, 1024,
           static_cast<const float*>(to_losses), Integers(label), to_sum,
           to_total, Number{rows}, Number{classes}, Number{ignore_index}, mean);
  }
  out.loss = reduction == GpuReduction::kNone ? losses : sum;
  return out;
}

Tensor GpuCrossEntropyGrad(const Tensor& softmax, const Tensor& label,
                           const Tensor& total_weight, const Tensor& dloss,
                           int64_t ignore_index, GpuReduction reduction) {
  const int64_t rows = softmax.size(0), classes = softmax.size(1);
  Tensor dx = at::empty_like(softmax);
  if (dx.numel() == 0) return dx;
  Launch(softmax.device(), "CrossEntropyGrad", Blocks(dx.numel(), 256), 256,
         Read(softmax), Integers(label), Read(total_weight), Read(dloss),
         Write(dx), Number{rows}, Number{classes}, Number{ignore_index},
         dloss.numel() == 1 ? 0 : 1, reduction == GpuReduction::kMean ? 1 : 0);
  return dx;
}

// ---- sums

Tensor GpuSumTo(const Tensor& x, at::IntArrayRef sizes) {
  if (!x.device().is_cuda() || x.scalar_type() != at::kFloat ||
      !x.is_contiguous() || x.numel() == 0 ||
      static_cast<int64_t>(sizes.size()) > x.dim()) {
    return {};
  }
  // The one dimension that stays.
  const int64_t missing = x.dim() - static_cast<int64_t>(sizes.size());
  int64_t kept = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    if (kept >= 0 || sizes[i] != x.size(missing + i)) return {};
    kept = missing + static_cast<int64_t>(i);
  }
  if (kept < 0) return {};
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (i < kept) outer *= x.size(i);
    if (i > kept) inner *= x.size(i);
  }
  const int64_t channels = x.size(kept), each = outer * inner;
  // A block sums so many elements at most; beyond that ATen's kernel, which
  // spreads a sum over blocks, is faster.
  constexpr int64_t kRows = 4096, kElements = 64 << 10;
  if (inner == 1 ? each > kRows : each > kElements) return {};
  if (!HasGpuKernels(x.device())) return {};
  Tensor out = at::empty(sizes, x.options());
  if (inner == 1) {
    Launch(x.device(), "ColumnSums", (channels + 31) / 32, 1024, Read(x),
           Write(out), Number{outer}, Number{channels});
  } else {
    const unsigned threads = each > 2048 ? 1024 : 256;
    Launch(x.device(), "ChannelSums", channels, threads, Read(x), Write(out),
           Number{outer}, Number{channels}, Number{inner});
  }
  return out;
}

// ---- update rules

namespace {

// What a launch may hand over on every GPU.
static_assert(sizeof(Batch) <= 4096 && sizeof(Powers) <= 4096);

One OneOf(const GpuUpdate& update) {
  One one{};
  one.p = Write(update.values);
  one.g = Read(update.gradient);
  for (size_t k = 0; k < update.state.size(); ++k) {
    if (update.state[k].defined()) one.state[k] = Write(update.state[k]);
  }
  if (update.learning_rate.defined()) one.rate = Read(update.learning_rate);
  for (size_t k = 0; k < update.powers.size(); ++k) {
    if (update.powers[k].defined()) one.power[k] = Read(update.powers[k]);
  }
  one.size = update.values.numel();
  one.factor = update.rate_factor;
  one.decoupled = update.decay.decoupled;
  one.scale = static_cast<float>(update.transform.scale);
  one.low = static_cast<float>(update.transform.min);
  one.high = static_cast<float>(update.transform.max);
  one.l1 = static_cast<float>(update.decay.l1);
  one.l2 = static_cast<float>(update.decay.l2);
  return one;
}

// The powers move on, each of them once.
void AdvancePowers(const optim::UpdateRule& rule,
                   std::span<const GpuUpdate> updates) {
  const size_t num_powers = optim::PowerNames(rule).size();
  if (num_powers == 0) return;
  std::set<const float*> seen;
  Powers powers{};
  powers.rule = static_cast<int>(rule.index());
  for (size_t k = 0; k < num_powers; ++k) {
    powers.base[k] = optim::PowerBase(rule, k);
  }
  auto launch = [&](at::Device device) {
    if (powers.count > 0) Launch(device, "Advance", 1, 256, powers);
    powers.count = 0;
  };
  for (const GpuUpdate& update : updates) {
    if (!update.advances_powers) continue;
    auto take = [&](size_t k) -> float* {
      if (k >= num_powers) return nullptr;
      float* power = Write(update.powers[k]);
      return seen.insert(power).second ? power : nullptr;
    };
    powers.first[powers.count] = take(0);
    powers.second[powers.count] = take(1);
    if (++powers.count == kPowersPerLaunch) launch(update.values.device());
  }
  launch(updates[0].values.device());
}

}  // namespace

bool GpuUpdates(const optim::UpdateRule& rule) {
  return !std::holds_alternative<optim::Lamb>(rule) &&
         !std::holds_alternative<optim::Lars>(rule);
}

void GpuApply(const optim::UpdateRule& rule,
              std::span<const GpuUpdate> updates) {
  if (updates.empty()) return;
  TORCH_CHECK(GpuUpdates(rule), "the rule has no kernel");
  const at::Device device = updates[0].values.device();
  Batch batch{};
  batch.rule = static_cast<int>(rule.index());
  std::visit(optim::CopyNumbers{batch.number}, rule);
  int64_t blocks = 0;
  auto launch = [&] {
    if (blocks > 0) Launch(device, "Update", blocks, 256, batch);
    batch.count = 0;
    blocks = 0;
  };
  for (const GpuUpdate& update : updates) {
    if (update.values.numel() == 0) continue;
    One& one = batch.one[batch.count++];
    one = OneOf(update);
    one.first_block = static_cast<int>(blocks);
    blocks += (one.size + kChunk - 1) / kChunk;
    if (batch.count == kPerLaunch) launch();
  }
  launch();
  AdvancePowers(rule, updates);
}

}  // namespace fleet::ops
