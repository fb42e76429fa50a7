// SPDX-License-Identifier: Apache-2.0

// Kernels of our own for GPUs, where ATen's take many launches or make the host
// wait: checks of indices, the loss of classification, the update rules. They
// are compiled when first needed, by the NVRTC that LibTorch brings along.
//
// The build picks one of two files: gpu_kernels.cc where LibTorch has CUDA and
// CUDA's headers are there, else gpu_kernels_absent.cc, in which
// HasGpuKernels() is false. Hardly anything else may be called then.

#ifndef FLEET_OPS_GPU_KERNELS_H_
#define FLEET_OPS_GPU_KERNELS_H_

#include <array>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "fleet/optim/update.h"
#include "fleet/optim/update_rule.h"

namespace fleet::ops {

// Whether the functions below work on `device`. The first call for a device
// compiles them (under a second); when that fails a warning says why, once.
// Thread-safe.
bool HasGpuKernels(at::Device device);

// All of them queue their work on the current stream and return. Tensors are on
// the device and contiguous. They throw what LibTorch throws.

// Where a kernel leaves word of an element that it found outside of its range:
// one number in memory of the host that the device can write. Zero: none was.
struct RangeNote {
  int64_t position;
  int64_t value;  // cut to 32 bits
};
at::Tensor NewNotes(int64_t count);  // zeros, each of them a note
// What is in a note, which is zero again afterwards. False: nothing.
bool TakeNote(const at::Tensor& note, RangeNote* out);

// Until what was queued on the current stream is done: notes are then final.
void WaitForGpu(at::Device device);

// `index` (int64) with every element outside [begin, end) that is not `allowed`
// replaced by `instead`, and a note of one of them.
at::Tensor GpuCheckRange(const at::Tensor& index, int64_t begin, int64_t end,
                         int64_t allowed, int64_t instead,
                         const at::Tensor& note);

enum class GpuReduction : int { kNone = 0, kSum, kMean };

// Softmax cross entropy of logits [rows, classes] (float) with labels [rows]
// (int64). A label outside counts as ignored and leaves a note.
struct GpuLosses {
  at::Tensor loss;          // [rows] for kNone, else [1]
  at::Tensor softmax;       // [rows, classes]
  at::Tensor total_weight;  // [1]: how many rows count
};
GpuLosses GpuCrossEntropy(const at::Tensor& logits, const at::Tensor& label,
                          int64_t ignore_index, GpuReduction reduction,
                          const at::Tensor& note);
// The gradient of the logits. `dloss` has one element, or one for each row.
at::Tensor GpuCrossEntropyGrad(const at::Tensor& softmax,
                               const at::Tensor& label,
                               const at::Tensor& total_weight,
                               const at::Tensor& dloss, int64_t ignore_index,
                               GpuReduction reduction);

// `x` (float) summed to `sizes`, of which one dimension at most is not 1, as
// at::sum_to does. Undefined where ATen is the better choice; may be called for
// any tensor and in any build.
at::Tensor GpuSumTo(const at::Tensor& x, at::IntArrayRef sizes);

// One parameter in one step; everything float.
struct GpuUpdate {
  at::Tensor values;
  at::Tensor gradient;
  std::array<at::Tensor, optim::kMaxState> state;    // undefined: not kept
  at::Tensor learning_rate;                          // one; undefined: 1
  std::array<at::Tensor, optim::kMaxPowers> powers;  // one each
  optim::Decay decay;
  optim::Transform transform;
  double rate_factor = 1.0;
  bool advances_powers = false;
};

// False for rules that take norms over a whole parameter.
bool GpuUpdates(const optim::UpdateRule& rule);
// What optim::Apply does, with learning rates and powers read on the device.
// One launch for every 32 parameters, and one for their powers.
void GpuApply(const optim::UpdateRule& rule,
              std::span<const GpuUpdate> updates);

}  // namespace fleet::ops

#endif  // FLEET_OPS_GPU_KERNELS_H_
