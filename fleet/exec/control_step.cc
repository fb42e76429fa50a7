// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/control_step.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

namespace fleet::exec {
namespace {

// A condition, or a number that chooses.
template <class T>
Result<T> One(const Frame& frame, Place place, const char* what) {
  const at::Tensor& value = frame.values[place];
  if (!value.defined()) return FailedPrecondition(what, " has no value");
  if (value.numel() != 1) {
    return InvalidArgument(what, " must be one element, not ",
                           program::ToString(value.sizes().vec()));
  }
  return value.item<T>();
}

Result<size_t> Index(const Frame& frame, Place place, const char* what) {
  ASSIGN_OR_RETURN(int64_t index, One<int64_t>(frame, place, what));
  if (index < 0) return InvalidArgument(what, " is ", index);
  return static_cast<size_t>(index);
}

}  // namespace

Status ConditionalStep::Run(Frame& frame) {
  bool runs = true;
  if (scalar_) {
    ASSIGN_OR_RETURN(runs, One<bool>(frame, condition_[0], "the condition"));
  } else {
    runs = std::all_of(condition_.begin(), condition_.end(), [&](Place place) {
      return frame.values[place].defined() && frame.values[place].numel() > 0;
    });
  }
  return runs ? RunAll(body_, frame) : OkStatus();
}

Status WhileStep::Run(Frame& frame) {
  for (;;) {
    ASSIGN_OR_RETURN(bool more, One<bool>(frame, condition_, "the condition"));
    if (!more) return OkStatus();
    RETURN_IF_ERROR(RunAll(body_, frame));
  }
}

Status SelectInputStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs.back(), "Mask"));
  if (index + 1 >= inputs.size()) {
    return InvalidArgument("Mask is ", index, ", but there are ",
                           inputs.size() - 1, " to choose from");
  }
  frame.values[outputs[0]] = frame.values[inputs[index]];
  return OkStatus();
}

Status SelectOutputStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs.back(), "Mask"));
  if (index >= outputs.size()) {
    return InvalidArgument("Mask is ", index, ", but there are ",
                           outputs.size(), " to choose from");
  }
  const at::Tensor value = frame.values[inputs[0]];
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNothing) continue;
    frame.values[outputs[i]] = i == index ? value : at::Tensor();
  }
  return OkStatus();
}

Status WriteArrayStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs[1], "I"));
  std::vector<at::Tensor>& array = frame.arrays[outputs[0]];
  if (array.size() <= index) array.resize(index + 1);
  array[index] = frame.values[inputs[0]];
  return OkStatus();
}

Status ReadArrayStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs[1], "I"));
  const std::vector<at::Tensor>& array = frame.arrays[inputs[0]];
  if (index >= array.size()) {
    return InvalidArgument("I is ", index, ", but the array has ", array.size(),
                           " places");
  }
  frame.values[outputs[0]] = array[index];
  return OkStatus();
}

Status AddToArrayStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs[1], "I"));
  const at::Tensor& value = frame.values[inputs[0]];
  if (!value.defined()) return OkStatus();
  std::vector<at::Tensor>& array = frame.arrays[outputs[0]];
  if (array.size() <= index) array.resize(index + 1);
  at::Tensor& sum = array[index];
  sum = sum.defined() ? sum.add(value) : value;
  return OkStatus();
}

Status TakeFromArrayStep::Run(Frame& frame) {
  ASSIGN_OR_RETURN(size_t index, Index(frame, inputs[1], "I"));
  std::vector<at::Tensor>& array = frame.arrays[inputs[0]];
  at::Tensor taken;
  if (index < array.size()) taken = std::exchange(array[index], at::Tensor());
  if (outputs[0] == kNothing) return OkStatus();
  frame.values[outputs[0]] =
      taken.defined() ? taken : at::zeros_like(frame.values[inputs[2]]);
  return OkStatus();
}

Status ArrayLengthStep::Run(Frame& frame) {
  const auto length = static_cast<int64_t>(frame.arrays[inputs[0]].size());
  frame.values[outputs[0]] = at::full({1}, length, at::kLong);
  return OkStatus();
}

}  // namespace fleet::exec
