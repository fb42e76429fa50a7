// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/step.h"

#include <algorithm>

#include <c10/util/SmallVector.h>

#include "fleet/ops/aten_error.h"

namespace fleet::exec {
namespace {

using Tensors = c10::SmallVector<at::Tensor, 8>;

Tensors Gather(const Frame& frame, std::span<const Place> places) {
  Tensors tensors;
  for (Place place : places) {
    tensors.push_back(place == kNothing ? at::Tensor() : frame.values[place]);
  }
  return tensors;
}

void Scatter(Frame& frame, std::span<const Place> places,
             std::span<at::Tensor> tensors) {
  for (size_t i = 0; i < places.size() && i < tensors.size(); ++i) {
    if (places[i] != kNothing) frame.values[places[i]] = std::move(tensors[i]);
  }
}

Status Explain(const Step& step, const Frame& frame, const Status& reason) {
  std::string given;
  for (Place place : step.inputs) {
    if (!given.empty()) given += ", ";
    if (place == kNothing) {
      given += "nothing";
      continue;
    }
    const at::Tensor& value = frame.values[place];
    if (place < frame.names.size()) given += frame.names[place] + " ";
    given += value.defined()
                 ? program::ToString(program::TensorType{
                       ops::ToDType(value.scalar_type()), value.sizes().vec()})
                 : "without a value";
  }
  return reason.WithContext(step.what + "(" + given + ")");
}

}  // namespace

Status RunOne(Step& step, Frame& frame) {
  Status status;
  try {
    status = step.Run(frame);
  } catch (const std::exception& error) {
    status = ops::FromException(error);
  }
  return status.ok() ? status : Explain(step, frame, status);
}

Status RunAll(const Steps& steps, Frame& frame) {
  for (const std::unique_ptr<Step>& step : steps) {
    RETURN_IF_ERROR(RunOne(*step, frame));
  }
  return OkStatus();
}

Status KernelStep::Run(Frame& frame) {
  Tensors tensors = Gather(frame, inputs);
  ops::KernelCall call{tensors, slot_end, attrs, frame.context,
                       ops::GradNeeds(needs)};
  (backward ? op->backward : op->forward)(call);
  Scatter(frame, outputs, call.out);
  return OkStatus();
}

Status ExtensionCall::Run(Frame& frame) {
  Tensors given = Gather(frame, inputs);
  Tensors made = Gather(frame, outputs);
  RETURN_IF_ERROR(extension_->Run(given, made));
  Scatter(frame, outputs, made);
  return OkStatus();
}

Status OptimizerStep::Run(Frame& frame) {
  auto value = [&](Place place) {
    return place == kNothing ? at::Tensor() : frame.values[place];
  };
  std::vector<ops::OptimizerUpdate> updates;
  updates.reserve(updates_.size());
  Place asked = kNothing;  // once for all: on a GPU the host waits for it
  bool skips = false;
  for (const Update& from : updates_) {
    if (from.skip != asked) {
      asked = from.skip;
      skips = asked != kNothing && value(asked).item<bool>();
    }
    if (skips) continue;
    ops::OptimizerUpdate& to = updates.emplace_back();
    to.values = value(from.values);
    to.gradient = value(from.gradient);
    to.learning_rate = value(from.learning_rate);
    for (size_t k = 0; k < to.state.size(); ++k) {
      to.state[k] = value(from.state[k]);
    }
    for (size_t k = 0; k < to.powers.size(); ++k) {
      to.powers[k] = value(from.powers[k]);
    }
    to.decay = from.decay;
    to.transform = from.transform;
    to.rate_factor = from.rate_factor;
    to.advances_powers = from.advances_powers;
  }
  ops::ApplyOptimizer(rule_, updates);
  return OkStatus();
}

bool OptimizerStep::Updates(Place values) const {
  return std::any_of(updates_.begin(), updates_.end(),
                     [&](const Update& u) { return u.values == values; });
}

bool OptimizerStep::MaySkip() const {
  return std::any_of(updates_.begin(), updates_.end(),
                     [](const Update& u) { return u.skip != kNothing; });
}

}  // namespace fleet::exec
