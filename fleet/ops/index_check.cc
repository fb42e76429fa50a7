// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/index_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/nonzero.h>

#include "fleet/ops/gpu_kernels.h"

namespace fleet::ops {
namespace {

void Fail(const char* what, int64_t index, int64_t position, int64_t begin,
          int64_t end) {
  TORCH_CHECK_INDEX(false, what, " ", index, " at position ", position,
                    " is outside [", begin, ", ", end, ")");
}

// Which checks come late. Kernels are plain functions over tensors and are not
// told who calls them, as they are not told whether gradients are recorded.
thread_local LateChecks* collecting = nullptr;

}  // namespace

void CheckIndices(const char* what, const at::Tensor& index, int64_t begin,
                  int64_t end) {
  if (index.device().is_cpu()) {
    at::Tensor flat = index.contiguous();
    const int64_t* data = flat.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      if (data[i] < begin || data[i] >= end) {
        Fail(what, data[i], i, begin, end);
      }
    }
    return;
  }
  at::Tensor flat = index.reshape({-1});
  at::Tensor bad = at::logical_or(flat < begin, flat >= end);
  if (!at::any(bad).item<bool>()) return;
  int64_t position = at::nonzero(bad)[0].item<int64_t>();
  Fail(what, flat[position].item<int64_t>(), position, begin, end);
}

at::Tensor CheckedIndices(const char* what, const at::Tensor& index,
                          int64_t begin, int64_t end) {
  LateChecks* late = LateChecks::Of(index.device());
  if (late == nullptr || begin >= end) {
    CheckIndices(what, index, begin, end);
    return index;
  }
  return GpuCheckRange(index.contiguous(), begin, end, begin, begin,
                       late->Add(what, begin, end));
}

LateChecks::Collecting::Collecting(LateChecks& checks) : before_(collecting) {
  collecting = &checks;
}

LateChecks::Collecting::~Collecting() { collecting = before_; }

LateChecks* LateChecks::Of(at::Device device) {
  return collecting != nullptr && HasGpuKernels(device) ? collecting : nullptr;
}

at::Tensor LateChecks::Add(std::string message) {
  return Add(message.c_str(), 0, -1);
}

at::Tensor LateChecks::Add(const char* what, int64_t begin, int64_t end) {
  TORCH_CHECK(checks_.size() < kMaxChecks, "more than ", kMaxChecks,
              " checks of indices");
  if (!notes_.defined()) notes_ = NewNotes(kMaxChecks);
  const auto position = static_cast<int64_t>(checks_.size());
  checks_.push_back(
      {operation_, what, begin, end, notes_.narrow(0, position, 1)});
  return checks_.back().note;
}

void LateChecks::Clear() {
  checks_.clear();
  if (notes_.defined()) notes_.zero_();
}

Status LateChecks::Take() {
  Status status;
  for (const Check& check : checks_) {
    RangeNote found;
    if (!TakeNote(check.note, &found) || !status.ok()) continue;
    if (check.end < check.begin) {
      status = InvalidArgument(check.operation, ": ", check.what);
      continue;
    }
    status = InvalidArgument(
        check.operation, ": ", check.what, " ", found.value, " at position ",
        found.position, " is outside [", check.begin, ", ", check.end, ")");
  }
  return status;
}

}  // namespace fleet::ops
