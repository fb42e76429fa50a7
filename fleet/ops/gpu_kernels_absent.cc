// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include "fleet/ops/gpu_kernels.h"

// For a LibTorch without CUDA.

namespace fleet::ops {
namespace {

[[noreturn]] void Absent() {
  TORCH_CHECK(false, "this build has no kernels for GPUs");
  __builtin_unreachable();
}

}  // namespace

bool HasGpuKernels(at::Device) { return false; }

at::Tensor NewNotes(int64_t) { Absent(); }
bool TakeNote(const at::Tensor&, RangeNote*) { Absent(); }
void WaitForGpu(at::Device) { Absent(); }
at::Tensor GpuCheckRange(const at::Tensor&, int64_t, int64_t, int64_t, int64_t,
                         const at::Tensor&) {
  Absent();
}
GpuLosses GpuCrossEntropy(const at::Tensor&, const at::Tensor&, int64_t,
                          GpuReduction, const at::Tensor&) {
  Absent();
}
at::Tensor GpuCrossEntropyGrad(const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&, int64_t,
                               GpuReduction) {
  Absent();
}
at::Tensor GpuSumTo(const at::Tensor&, at::IntArrayRef) { return {}; }
bool GpuUpdates(const optim::UpdateRule&) { return false; }
void GpuApply(const optim::UpdateRule&, std::span<const GpuUpdate>) {
  Absent();
}

}  // namespace fleet::ops
