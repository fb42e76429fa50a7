// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/static_batch_norm.h"

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "fleet/program/attr_or.h"
#include "fleet/sync/sync_batch_norm.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using exec::ExtensionStep;
using program::AttrOr;
using program::Operation;

constexpr int kAbsent = -1;

// Where the only argument of a slot is among all of them.
int PlaceOf(const program::Slots& slots, std::string_view name) {
  int place = 0;
  for (const program::Slot& slot : slots) {
    if (slot.name == name && !slot.arguments.empty()) return place;
    place += static_cast<int>(slot.arguments.size());
  }
  return kAbsent;
}

// What both directions need.
class BatchNormStep : public ExtensionStep {
 public:
  BatchNormStep(comm::Communicator& communicator,
                std::chrono::milliseconds timeout, const Operation& op)
      : communicator_(communicator),
        inputs_(op.inputs),
        outputs_(op.outputs),
        last_(AttrOr(op, "data_layout", std::string("NCHW")) == "NHWC") {
    options_.epsilon = AttrOr(op, "epsilon", 1e-5);
    options_.momentum = AttrOr(op, "momentum", 0.9);
    options_.timeout = timeout;
  }

 protected:
  Tensor Input(std::span<const Tensor> inputs, std::string_view slot) const {
    const int place = PlaceOf(inputs_, slot);
    return place == kAbsent ? Tensor() : inputs[place];
  }
  void SetOutput(std::span<Tensor> outputs, std::string_view slot,
                 const Tensor& value) const {
    const int place = PlaceOf(outputs_, slot);
    if (place != kAbsent) outputs[place] = value;
  }
  SyncBatchNormOptions OptionsFor(const Tensor& x) const {
    SyncBatchNormOptions options = options_;
    options.channel_axis = last_ ? x.dim() - 1 : 1;
    return options;
  }

  comm::Communicator& communicator_;

 private:
  const program::Slots inputs_;
  const program::Slots outputs_;
  const bool last_;
  SyncBatchNormOptions options_;
};

class ForwardStep final : public BatchNormStep {
 public:
  using BatchNormStep::BatchNormStep;

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    const Tensor x = Input(inputs, "X");
    const Tensor mean = Input(inputs, "Mean");
    const Tensor variance = Input(inputs, "Variance");
    const Tensor scale = Input(inputs, "Scale"), bias = Input(inputs, "Bias");
    ASSIGN_OR_RETURN(SyncBatchNormForwardResult result,
                     SyncBatchNormForward(communicator_, x, scale, bias, mean,
                                          variance, OptionsFor(x)));
    SetOutput(outputs, "Y", result.out);
    SetOutput(outputs, "SavedMean", result.mean.to(mean.scalar_type()));
    SetOutput(outputs, "SavedVariance", result.inverse.to(mean.scalar_type()));
    // Changed in place.
    SetOutput(outputs, "MeanOut", mean);
    SetOutput(outputs, "VarianceOut", variance);
    return OkStatus();
  }
};

class BackwardStep final : public BatchNormStep {
 public:
  using BatchNormStep::BatchNormStep;

  Status Run(std::span<const Tensor> inputs,
             std::span<Tensor> outputs) override {
    const Tensor x = Input(inputs, "X");
    ASSIGN_OR_RETURN(
        SyncBatchNormGradients result,
        SyncBatchNormBackward(communicator_, x, Input(inputs, "Scale"),
                              Input(inputs, "SavedMean"),
                              Input(inputs, "SavedVariance"),
                              Input(inputs, "Y@GRAD"), OptionsFor(x)));
    SetOutput(outputs, "X@GRAD", result.input);
    SetOutput(outputs, "Scale@GRAD", result.weight);
    SetOutput(outputs, "Bias@GRAD", result.bias);
    return OkStatus();
  }
};

}  // namespace

Result<std::unique_ptr<ExtensionStep>> PrepareSyncBatchNorm(
    comm::Communicator& communicator, std::chrono::milliseconds timeout,
    const Operation& op) {
  std::unique_ptr<ExtensionStep> step;
  if (op.type.ends_with("_grad")) {
    step = std::make_unique<BackwardStep>(communicator, timeout, op);
  } else {
    step = std::make_unique<ForwardStep>(communicator, timeout, op);
  }
  return step;
}

}  // namespace fleet::sync
